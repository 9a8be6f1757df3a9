"""The harness proves itself: right controls pass, wrong ones fail for their reason, and a broken harness is caught."""

import dataclasses
import itertools

import numpy as np
import pytest

from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.commands.check import controls as room
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.controls import HarnessError, check_control, controls, verify
from refnum.conformance.subjects.calls.call import Called
from refnum.conformance.verdicts import compare as comparator

ALL = {control.subject.name: control for control in controls()}


@pytest.mark.parametrize("name", list(ALL))
def test_every_control_gets_its_verdict(name):
    check_control(ALL[name])


QUICK = ("twin", "ties_up", "nan_payload", "cached_by_pointer", "unwritten_tail", "view_of_input", "raises")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in ALL if name != "model"]
)
def test_every_control_gets_its_verdict_on_the_real_corners(name):
    check_control(ALL[name], thorough=True)


def test_both_kinds_of_control_exist_and_are_counted():
    counts = verify()
    assert counts["right_passed"] + counts["wrong_caught"] == len(ALL)
    assert counts["right_passed"] >= 2 and counts["wrong_caught"] >= 20


def test_verification_is_done_once_a_process(monkeypatch):
    verify()
    monkeypatch.setattr(room, "check_control", lambda *args: pytest.fail("judged again"))
    verify()


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_control_cases_are_legal_and_reach_every_operation(name):
    for params in OPERATIONS[name].variants():
        (case,) = control_cases(name, "HOPPER", params)
        assert sum(array.size for array in run_golden(case).values()) > 0


# --- a broken comparator must not survive its controls ----------------------------------------------------------


def always_equal(*args):
    return True


def nan_equals_anything(case, golden, observed, level):
    def same(left, right):
        if left.dtype == np.uint32:
            return bool(np.all((left == right) | (right & 0x7FFFFFFF > 0x7F800000)))
        return np.array_equal(left, right)

    return all(same(golden[name], observed[name]) for name in golden)


def first_row_only(case, golden, observed, level):
    return all(np.array_equal(golden[name][:1], observed[name][:1]) for name in golden)


def magnitudes_only(case, golden, observed, level):
    return all(np.array_equal(golden[name] & 0x77, observed[name] & 0x77) for name in golden)


@pytest.mark.parametrize("broken", [always_equal, nan_equals_anything, first_row_only, magnitudes_only])
def test_a_broken_comparator_is_caught_by_the_controls(monkeypatch, broken):
    monkeypatch.setattr(comparator, "equal_at", broken)
    with pytest.raises(HarnessError, match="the harness itself is broken"):
        for control in ALL.values():
            if control.subject.name != "model":
                check_control(control)


@pytest.mark.parametrize(
    ("module", "name", "replacement"),
    [
        ("refnum.conformance.commands.check.engine", "probe", lambda *args: None),
        ("refnum.conformance.subjects.arrays", "Guarded.trespass", lambda self: ""),
        (
            "refnum.conformance.subjects.calls.call",
            "_kept_contract",
            lambda case, given, results, live: Called(results, live),
        ),
    ],
)
def test_a_harness_without_its_probes_is_caught_by_the_controls(monkeypatch, module, name, replacement):
    monkeypatch.setattr(f"{module}.{name}", replacement)
    with pytest.raises(HarnessError):
        for control in ALL.values():
            if control.subject.name != "model":
                check_control(control)


def test_a_path_of_wide_domains_that_a_subject_ends_is_caught(monkeypatch):
    monkeypatch.setattr(room, "judge_on_device", lambda subject, case: Called(outcome=Outcome.PASS))
    with pytest.raises(HarnessError, match="exits must end in fault"):
        check_control(ALL["exits"])


def exhausted(*_, **__):
    raise MemoryError


@pytest.mark.parametrize("room", ["lay_out", "_kept_contract"])
@pytest.mark.parametrize("name", ["model", "ties_up"])
def test_want_of_memory_says_nothing_of_the_harness(monkeypatch, room, name):
    monkeypatch.setattr(f"refnum.conformance.subjects.calls.call.{room}", exhausted)
    few = dict(itertools.islice(ALL[name].subject.operations.items(), 2))  # one path of calls for all operations
    subject = dataclasses.replace(ALL[name].subject, operations=few)
    with pytest.raises(MemoryError, match="no room"):
        check_control(dataclasses.replace(ALL[name], subject=subject))


def test_want_of_memory_in_a_control_s_own_call_says_nothing_of_the_harness():
    control = ALL["sometimes"]
    subject = dataclasses.replace(control.subject, operations={"quantize_mxfp4": exhausted})
    with pytest.raises(MemoryError, match="no room"):
        check_control(dataclasses.replace(control, subject=subject))


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_ctrl_c_while_a_control_is_judged_says_nothing_of_the_harness():
    control = ALL["ties_up"]
    subject = dataclasses.replace(control.subject, operations={"quantize_mxfp4": interrupted})
    with pytest.raises(KeyboardInterrupt):
        check_control(dataclasses.replace(control, subject=subject))
