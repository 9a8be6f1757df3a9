"""The golden model and the comparator, mutated: examples of the operators, and mutants told apart."""

from __future__ import annotations

import pytest

from conformance.mutants import python as room
from conformance.mutants.python_operators import OPERATORS, PythonOperator, mutants_of
from conformance.mutants.verdict import KILLED, SURVIVED

TEXT = '''"""A constant 3 in words."""

def take(x: int = 5) -> int:
    """Return 4 at most."""
    if x < 0:
        raise ValueError(x - 1)
    return min(x + 2, 4)
'''


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: one.name)
def test_an_example_gives_its_mutants(operator: PythonOperator) -> None:
    text, wanted = operator.example
    assert tuple(m.applied(text) for m in mutants_of("x.py", text) if m.operator == operator.name) == wanted


def test_words_and_checks_of_arguments_are_left_alone() -> None:
    lines = {mutant.line for mutant in mutants_of("x.py", TEXT)}
    assert lines == {3, 7}


@pytest.fixture(scope="module")
def model() -> room.Shop:
    """A model that is asked a few vectors alone."""
    from conformance.frozen import frozen_cases

    room._questions[:] = [
        (case.label, case.operation, case.profile, dict(case.params), dict(case.inputs), tuple(outputs.values()))
        for case, outputs in frozen_cases("encode_e2m1", "HOPPER", {"input": "float32"})
    ]
    assert room._questions
    yield room.Shop.open(room.TARGETS[0])
    room._questions.clear()


def test_a_wrong_model_is_seen_by_a_vector(model: room.Shop) -> None:
    text = model.text("refnum/rounding.py")
    assert room.apart(lambda: room._asked(model.workshop, "refnum/rounding.py", text, False), 60) == {}
    kills = [room.judge(model, mutant, False) for mutant in mutants_of("refnum/rounding.py", text)[:12]]
    assert any(verdict.status == KILLED and verdict.case for verdict in kills)


def test_a_comparator_that_holds_everything_equal_is_seen_by_a_control() -> None:
    shop = room.Shop.open(room.TARGETS[1])
    text = shop.text("conformance/compare.py")
    blind = "def compare(*args, **kwargs):\n    return Comparison(compared=1)\n"
    found = room.apart(lambda: room._asked(shop.workshop, "conformance/compare.py", text + "\n" + blind, False), 120)
    assert found["status"] == KILLED and "control" in found["case"]
    assert room.apart(lambda: room._asked(shop.workshop, "conformance/compare.py", text, False), 120) == {}
    assert SURVIVED not in found.values()
