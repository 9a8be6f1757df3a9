"""Wrong rules asked of TetraJet: none breaks, each of its own changes an answer, and a mismatch is named after it."""

import pytest

from refnum.conformance.bugs import WRONG, asked_of, same, wrong_answers
from refnum.conformance.bugs.suspects import SUSPECTS
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.commands.check.control_cases import control_cases

TETRAJET = ("quantize_tetrajet", "q_ema")


def _cases(operation):
    every = list(OPERATIONS[operation].variants())
    for params in (*every[::5], every[-1]):
        yield from control_cases(operation, "HOPPER", params)


@pytest.mark.parametrize("operation", TETRAJET)
def test_every_suspect_can_be_asked(operation):
    for case in _cases(operation):
        golden = run_golden(case)
        for suspect in SUSPECTS:
            if asked_of(suspect.operations, operation):
                suspect.rule(case, golden)


@pytest.mark.parametrize("note", [note for note in WRONG if note.startswith(("TETRAJET_", "QEMA_"))])
def test_each_own_rule_changes_an_answer(note):
    if note == "TETRAJET_BITS_IGNORED":
        pytest.skip("control cases have no random bits; a vector holds this rule")
    found = False
    for operation in TETRAJET:
        for case in _cases(operation):
            golden = run_golden(case)
            found |= any(not same(wrong, golden) for wrong in wrong_answers(note, case, golden))
    assert found


def test_rules_of_other_quantisers_are_not_asked():
    assert not asked_of(("quantize_*",), "quantize_tetrajet") and asked_of(("*",), "q_ema")
    assert asked_of(("quantize_*",), "quantize_nvfp4") and asked_of(TETRAJET, "q_ema")
