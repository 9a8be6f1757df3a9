"""A kernel that is not deterministic is called flaky, with the count, at every rate; nothing else is blamed for it."""

import itertools

import numpy as np
import pytest
from run_tools import only, report_of, right, subject

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.findings import Shown, found_by
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import run_golden
from refnum.conformance.subjects.calls.call import Called
from refnum.conformance.verdicts import probes
from refnum.conformance.verdicts.blame import steady
from refnum.conformance.verdicts.judge import judge
from refnum.conformance.verdicts.repeats import excluded, odd_ones
from refnum.conformance.verdicts.smoke import smoke
from refnum.conformance.verdicts.tally import Tally

CASE = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.arange(64, dtype=np.float32).reshape(2, 32)})


def flips(when):
    """Return a right kernel that flips a bit in the calls that `when` picks by their number."""
    number = itertools.count(1)

    def quantize_mxfp4(x, profile, out=None):
        packed, scales = right(x, profile)
        if when(next(number)) and packed.size:
            packed[0, 0] ^= 1
        if out is None:
            return packed, scales
        for one, given in zip((packed, scales), out, strict=True):
            given[...] = one
        return out

    return quantize_mxfp4


def tally():
    return Tally("kernel", CASE.operation, CASE.profile, CASE.params)


def probed(function):
    counted, golden = tally(), run_golden(CASE)
    judged = subject(function)
    judge(judged, CASE, golden, counted, 60.0)
    probes.probe(judged, CASE, golden, counted, 60.0)
    return counted


@pytest.mark.parametrize("period", [2, 3, 5, 7, 11, 17, 29])
def test_whatever_the_rate_a_flip_is_a_flip_and_blames_nothing_else(period):
    for shift in range(min(period, 6)):
        counted = probed(flips(lambda number, shift=shift: number % period == shift % period))
        assert counted.close() is Outcome.FLAKY, (period, shift, counted.words)
        assert {failure.finding for failure in counted.failures} <= {"", "not-deterministic"}
        assert 0 < counted.flips <= counted.calls // 2 + 1 and f"{counted.flips} of {counted.calls}" in counted.words


def test_one_flip_in_any_one_call_is_called_flaky_or_not_seen_and_never_anything_else():
    counted = [probed(flips(lambda number, call=call: number == call)) for call in range(1, 46)]
    assert {one.close() for one in counted} == {Outcome.FLAKY, Outcome.PASS}
    assert {(one.outcome, one.flips) for one in counted} == {(Outcome.FLAKY, 1), (Outcome.PASS, 0)}
    assert sum(one.flips for one in counted) >= 20
    assert {failure.finding for one in counted for failure in one.failures} == {"not-deterministic"}


def test_flips_at_random_rates_never_blame_the_form_of_a_call():
    dice = np.random.default_rng(20261123)
    for rate in (0.5, 0.2, 0.05):
        for _ in range(8):
            counted = probed(flips(lambda _number, rate=rate: dice.random() < rate))
            if counted.flips:
                assert counted.close() is Outcome.FLAKY
            assert not {one.finding for one in counted.failures} & found_by(Shown.BYTES, Shown.LATER_BYTES) - {
                "not-deterministic"
            }


def test_a_habit_that_is_wrong_each_time_is_still_blamed():
    def strided(x, profile):
        flat = np.lib.stride_tricks.as_strided(x, x.shape, (x.shape[1] * x.itemsize, x.itemsize))
        return right(np.ascontiguousarray(flat), profile)

    counted = probed(strided)
    assert counted.close() is Outcome.MISMATCH and counted.flips == 0
    assert {"strides-ignored", "row-stride-ignored"} <= {one.finding for one in counted.failures}


def test_a_kernel_that_is_wrong_only_into_out_is_no_flaky_one():
    def quantize_mxfp4(x, profile, out=None):
        packed, scales = right(x, profile)
        if out is None:
            return packed, scales
        out[0][...], out[1][...] = packed, scales + 1
        return out

    counted = probed(quantize_mxfp4)
    assert counted.close() is Outcome.MISMATCH and counted.flips == 0
    assert {one.finding for one in counted.failures} == {"wrong-into-out"}


def test_a_kernel_is_steady_after_ten_calls_that_agree():
    calls = []

    def kernel(x, profile):
        calls.append(x.shape)
        return right(x, profile)

    counted = tally()
    assert steady(subject(kernel), CASE, run_golden(CASE), counted, 60.0)
    assert calls == [CASE.inputs["x"].shape] * 10 and (counted.calls, counted.repeated, counted.flips) == (10, 9, 0)


def test_a_run_says_flaky_with_the_count_and_a_wrong_kernel_that_flips_is_flaky_too():
    row = only(report_of(subject(flips(lambda number: number % 20 == 13))))
    assert row["outcome"] == "flaky" and row["calls"]["flips"] >= 1 and row["calls"]["excludes"] == 0
    assert f"{row['calls']['flips']} of {row['calls']['compared']} calls" in row["words"].replace(",", "")

    number = itertools.count()

    def wrong_and_flips(x, profile):
        packed, scales = refnum.quantize_mxfp4(x, profile.replace(name="wrong", ties="away"))
        return packed ^ np.uint8(next(number) % 7 == 3), scales

    assert only(report_of(subject(wrong_and_flips)))["outcome"] == "flaky"


def test_the_calls_of_a_pass_say_what_rate_of_flipping_they_exclude():
    document = report_of(subject())
    row = only(document)
    assert row["calls"]["flips"] == 0 and row["calls"]["compared"] >= row["cases"] + row["calls"]["repeated"]
    assert row["calls"]["excludes"] == row["calls"]["compared"] // 3 > 5
    assert f"more than 1 in {row['calls']['excludes']:,} flips" in row["evidence"]
    least = min(row["calls"]["excludes"] for row in document.results)
    assert f"flips above 1 in {least} calls excluded" in document.document()["footer"]["verdict"]


@pytest.mark.parametrize("calls", [3, 4, 5, 100, 4000, 12345])
def test_the_rate_that_is_excluded_would_have_gone_unseen_in_fewer_than_5_of_100_runs(calls):
    n = excluded(calls)
    assert 20 * (n - 1) ** calls < n**calls  # (1 - 1/n)^calls < 1/20, in integers
    assert excluded(2) == 0


def test_odd_ones_are_those_that_differ_from_most():
    one, other, third = (Called((np.array([value], np.uint8),)) for value in range(3))
    assert [odd_ones(calls) for calls in ([], [one], [one, one], [one, other, one], [one, other, third, third])] == [
        0, 0, 0, 1, 2
    ]  # fmt: skip


def test_a_kernel_that_is_wrong_in_its_very_first_call_alone_is_found():
    found = tally()
    assert smoke(subject(flips(lambda call: call == 1)), found, [CASE], 60.0, lambda _: None)
    assert found.flips == 1 and found.close() is Outcome.FLAKY
