"""The engine: what is counted, what is called proved, and that nothing goes by unsaid."""

import numpy as np
import pytest
from run_tools import only, report_of, right, subject

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import select
from refnum.conformance.commands.check import engine
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.run import Plan, variants
from refnum.conformance.mismatches import replay
from refnum.conformance.reports import report as reports
from refnum.conformance.reports.badge import badge
from refnum.conformance.subjects.subject import Subject
from refnum.errors import FileError, UnsupportedError


def test_a_right_subject_passes_every_variant_and_elements_are_counted():
    document = report_of(subject())
    assert {row["outcome"] for row in document.results} == {"pass"} and len(document.results) == 3
    assert only(document)["compared"] > 4 * (128 + 8) and document.exit_status() == 0
    reports.check(document.document(), "this report")


def test_subjects_are_judged_side_by_side():
    def wrong(x, profile):
        packed, scales = right(x, profile)
        return packed ^ 1, scales

    document = report_of(subject(), subject(wrong, "w"))
    outcomes = {(row["subject"], row["outcome"]) for row in document.results}
    assert outcomes == {("k", "pass"), ("w", "mismatch")} and document.exit_status() == 1


def empty(operation, profile, params):
    yield Case(operation, profile, params, {"x": np.zeros((0, 32), np.float32)})


def none(*args):
    return iter(())


@pytest.mark.parametrize("cases", [none, empty])
def test_nothing_compared_is_not_verified_and_exit_3(cases):
    document = report_of(subject(), cases=cases)
    assert only(document)["outcome"] == "not-verified" and document.exit_status() == 3
    assert "NOT VERIFIED" in document.document()["footer"]["verdict"]


def test_no_subject_is_exit_3():
    assert report_of().exit_status() == 3


def test_unsupported_is_said_and_is_neither_pass_nor_mismatch():
    def refuse(x, profile):
        raise UnsupportedError("needs sm_90")

    document = report_of(subject(refuse))
    assert only(document)["outcome"] == "unsupported" and "needs sm_90" in only(document)["words"]
    assert document.exit_status() == 3


def test_a_refusal_of_some_cases_is_counted_beside_the_pass():
    def picky(x, profile):
        if x.shape != (1, 32):
            raise UnsupportedError("one block only")
        return right(x, profile)

    def two(operation, profile, params):
        if params["input"] == "float32":
            yield from control_cases(operation, profile, params)
            yield Case(operation, profile, params, {"x": np.ones((1, 32), np.float32)})

    def outside(case):
        return "" if case.inputs["x"].shape == (1, 32) else "one block only"

    document = report_of(subject(right, outside=outside), cases=two)
    row = only(document)
    assert (row["outcome"], row["cases"]) == ("pass", 1) and row["refused"] >= 1
    assert "one block only" in row["refusal"] and "refused" in row["evidence"]
    undeclared = report_of(subject(picky), cases=two)
    row = only(undeclared)
    assert row["outcome"] == "not-verified" and "does not declare to refuse" in row["words"]
    assert undeclared.exit_status() == 3


def test_a_subject_that_keeps_faulting_is_left_alone_and_the_run_goes_on():
    calls = []

    def broken(x, profile):
        calls.append(1)
        raise RuntimeError("illegal address")

    def many(operation, profile, params):
        for _ in range(20):
            yield from control_cases(operation, profile, params)

    document = report_of(subject(broken), subject(name="fine"), cases=many)
    assert len(calls) <= 3 * 5
    assert {row["outcome"] for row in document.results if row["subject"] == "fine"} == {"pass"}
    assert only(document)["outcome"] == "fault" and "illegal address" in only(document)["words"]
    assert document.exit_status() == 1


def test_a_supports_that_fails_is_a_fault_of_that_subject_alone():
    def absent(operation, profile, params):
        return params["absent"]

    document = report_of(subject(supports=absent), subject(name="fine"))
    row = only(document)
    assert (row["subject"], row["outcome"]) == ("k", "fault") and "its `supports` failed: KeyError" in row["words"]
    assert {row["outcome"] for row in document.results if row["subject"] == "fine"} == {"pass"}
    assert document.exit_status() == 1


def test_a_case_the_model_refuses_is_the_harness_s_fault_and_is_exit_1():
    def illegal(operation, profile, params):
        yield Case(operation, profile, params, {"x": np.zeros((1, 31), np.float32)}, label="odd")
        yield from control_cases(operation, profile, params)

    document = report_of(subject(), cases=illegal)
    assert "refused" in document.harness[0] and "odd" in document.harness[0] and document.exit_status() == 1
    whole = document.document()
    assert whole["footer"]["verdict"].startswith("NOT VERIFIED, the harness failed, at level standard (")
    assert "refnum: not verified, standard" in badge(whole)


def test_the_model_is_asked_again_where_memory_was_short(monkeypatch):
    """Other processes on a device free theirs, and this one has some that nothing uses."""
    short, released = [True], []

    def golden(case, run=engine.run_golden):
        if short:
            short.clear()
            raise MemoryError
        return run(case)

    monkeypatch.setattr(engine, "run_golden", golden)
    monkeypatch.setattr(engine, "release", released.append)
    document = report_of(subject())
    assert not short and not document.harness and document.exit_status() == 0
    assert released == ["numpy"] * (1 + len(document.results))  # then, and at the end of each variant


def test_an_operation_the_model_lacks_is_not_run(monkeypatch):
    monkeypatch.delitem(refnum._PUBLIC, "quantize_mxfp4")
    monkeypatch.delitem(vars(refnum), "quantize_mxfp4", raising=False)
    row = only(report_of(subject(lambda x, profile: None)))
    assert row["outcome"] == "not-run" and "refnum has no quantize_mxfp4" in row["words"]


def flaky_until(limit):
    calls = []

    def kernel(x, profile):
        calls.append(1)
        packed, scales = right(x, profile)
        return (packed ^ np.uint8(len(calls) <= limit)), scales

    return kernel


def test_a_mismatch_that_does_not_come_back_is_flaky_not_pass():
    document = report_of(subject(flaky_until(1)))
    row = only(document)
    assert row["outcome"] == "flaky" and row["failures"][0]["reproduced"] == "0 of 3" and document.exit_status() == 1


def test_ctrl_c_leaves_a_valid_partial_report():
    last = []

    def impatient(x, profile):
        last.append(x.dtype)
        if len(last) > 5 and np.float32 not in last[-6:]:  # the second variant; before, its calls come one by one
            raise KeyboardInterrupt
        return right(x, profile)

    document = report_of(subject(impatient))
    final = document.document()
    reports.check(final, "this report")
    assert final["footer"]["status"] == "partial" and "cut short" in final["footer"]["verdict"]
    assert [row["outcome"] for row in final["results"]] == ["pass", "not-verified"]
    assert "cut short" in final["results"][1]["words"] and final["footer"]["exit"] == 3


def test_ctrl_c_before_anything_is_compared_is_not_run():
    def impatient(x, profile):
        raise KeyboardInterrupt

    document = report_of(subject(impatient))
    assert [row["outcome"] for row in document.results] == ["not-run"] and document.status == "partial"


def test_a_claimed_level_is_enough_and_the_next_level_is_still_shown():
    def signed_nan_codes(x, profile):
        packed, scales = (array.copy() for array in right(x, profile))
        packed[np.repeat(scales == 255, 16, axis=1)] = 0x77
        return packed, scales

    document = report_of(subject(signed_nan_codes, level=1), subject(signed_nan_codes, "strict"))
    rows = {row["subject"]: row for row in document.results if row["params"]["input"] == "float32"}
    assert rows["k"]["outcome"] == "pass" and rows["k"]["level"] == {"claimed": "L1", "reached": "L1"}
    assert rows["strict"]["outcome"] == "mismatch" and rows["strict"]["failures"][0]["fails"] == "L0"
    reports.check(document.document(), "this report")


# --- streams: corners, domains, samples -------------------------------------------------------------------------


# --- plans ------------------------------------------------------------------------------------------------------


def names(plan):
    return [(item.profile, tuple(item.params.values()), [s.name for s in item.subjects]) for item in variants(plan)]


def test_profiles_are_those_claimed_unless_asked_for():
    one = subject(name="a", profiles=("OCP",))
    two = subject(name="b")
    plan = Plan([one, two], select(["quantize_mxfp4"]), None, "smoke")
    assert names(plan) == [("HOPPER", ("float32",), ["b"]), ("OCP", ("float32",), ["a", "b"])]
    plan.profiles = ["CEIL"]
    assert names(plan) == [("CEIL", ("float32",), ["a", "b"])]


def test_an_operation_without_profile_runs_once():
    codes = Subject("k", {"mxfp4_to_fp8": refnum.mxfp4_to_fp8})
    plan = Plan([codes], select(["mxfp4_to_fp8"]), ["HOPPER", "OCP"], "standard")
    assert names(plan) == [("HOPPER", ("max",), ["k"]), ("HOPPER", ("amax",), ["k"])]


def test_a_disk_that_is_full_does_not_stop_the_run(tmp_path, monkeypatch):
    def full(*args):
        raise FileError("Cannot write x: No space left on device.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(replay, "save", full)
    document = report_of(subject(lambda x, profile: tuple(a ^ 1 for a in right(x, profile))), save=True)
    assert {row["outcome"] for row in document.results} == {"mismatch"}
    assert "no replay file: Cannot write x" in only(document)["failures"][0]["words"]
    reports.check(document.document(), "this report")


def test_a_device_that_dies_takes_no_innocent_subject_with_it(monkeypatch):
    dead = []

    def kills(x, profile):
        dead.append(1)
        raise RuntimeError("cudaErrorIllegalAddress")

    def innocent(x, profile):
        if dead:
            raise RuntimeError("cudaErrorIllegalAddress")
        return right(x, profile)

    monkeypatch.setattr(
        "refnum.conformance.commands.check.engine.alive", lambda library: library == "numpy" or not dead
    )
    monkeypatch.setattr("refnum.conformance.subjects.calls.call.to_library", lambda array, library: array)
    gpu = {"arrays": "torch-cuda"}
    document = report_of(subject(kills, "kills", **gpu), subject(innocent, "innocent", **gpu), subject(name="host"))
    outcomes = {
        name: {row["outcome"] for row in document.results if row["subject"] == name}
        for name in ("kills", "innocent", "host")
    }
    assert outcomes == {"kills": {"fault", "not-run"}, "innocent": {"not-run"}, "host": {"pass"}}
    words = next(row["words"] for row in document.results if row["subject"] == "innocent")
    assert "stopped answering while kills ran quantize_mxfp4" in words and len(dead) == 1
    assert document.exit_status() == 1
