"""Wrong rules asked of TetraJet: none breaks, and each of its own is seen by a vector."""

import json
from pathlib import Path

import pytest

from refnum.conformance.bugs import WRONG, asked_of
from refnum.conformance.bugs.suspects import SUSPECTS
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.commands.check.control_cases import control_cases

ROOT = Path(__file__).resolve().parents[2]
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


def test_each_own_rule_is_seen_by_a_vector():
    """A flag of a vector is earned: its rule changes the answer."""
    seen = set()
    for operation in TETRAJET:
        document = json.loads((ROOT / "vectors" / operation / "HOPPER.json").read_text(encoding="utf-8"))
        seen |= {flag for group in document["groups"] for vector in group["vectors"] for flag in vector["flags"]}
    assert seen == {note for note in WRONG if note.startswith(("TETRAJET_", "QEMA_"))}


def test_rules_of_other_quantisers_are_not_asked():
    assert not asked_of(("quantize_*",), "quantize_tetrajet") and asked_of(("*",), "q_ema")
    assert asked_of(("quantize_*",), "quantize_nvfp4") and asked_of(TETRAJET, "q_ema")
