"""The operators' examples are what they say, and sources are seen without what is no code."""

from __future__ import annotations

import pytest

from refnum.conformance.commands.mutate import source
from refnum.conformance.commands.mutate.operators import OPERATORS, Operator, mutants_of

NAMES = (
    "tie rule", "sticky lost", "shift off by one", "mask", "table entry", "comparison", "sign", "clamp bound",
    "scale bias", "nibble order", "lane index", "tail guard", "barrier removed", "wrong stride", "ftz on",
)  # fmt: skip

TEXT = """// shifts >> 3 here are words
#ifdef __CUDA_ARCH__
inline int on_device(int x) { return x >> 4; }
#else
inline int on_host(int x) { return x >> 5; }
#endif
inline int both(int x) {
    static_assert(1 >> 0 == 1, "x >> 1");
    uint32_t w[4] = {};
    for (int i = 0; i < 4; ++i) w[i] = x >> 6;
    return asm_text("shl >> 7");
}
"""


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: f"{one.name}: {one.example[0]}")
def test_an_example_gives_its_mutants(operator: Operator) -> None:
    text, wanted = operator.example
    made = [
        text[: m.start()] + new + text[m.end() :] for m in operator.pattern.finditer(text) for new in operator.of(m)
    ]
    assert tuple(made) == wanted and text not in made


def test_every_operator_that_was_asked_for_is_there() -> None:
    assert {operator.name for operator in OPERATORS} == set(NAMES)
    assert all(next(o for o in OPERATORS if o.name == name).words for name in NAMES)


def test_only_code_is_mutated() -> None:
    shifts = [m for m in mutants_of("x.cuh", TEXT) if m.operator == "shift off by one"]
    assert [(m.old, m.side) for m in shifts[::2]] == [(">> 4", "device"), (">> 5", "host"), (">> 6", "")]


def test_loops_run_shorter_and_never_longer() -> None:
    changed = [m.applied(TEXT) for m in mutants_of("x.cuh", TEXT) if m.line == 10 and m.operator == "lane index"]
    assert any("i + 1 < 4" in text for text in changed)
    assert all("i <= 4" not in text and "[5]" not in text for text in changed)


def test_ids_are_unique_and_lines_right() -> None:
    mutants = mutants_of("x.cuh", TEXT)
    assert len({m.id for m in mutants}) == len(mutants) > 5
    assert all(TEXT.splitlines()[m.line - 1].count(m.old.strip()) for m in mutants)


def test_places_stay_where_they_are() -> None:
    assert len(source.masked(TEXT)) == len(TEXT) and source.masked(TEXT).count("\n") == TEXT.count("\n")
