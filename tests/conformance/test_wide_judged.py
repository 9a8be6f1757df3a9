"""A part of a wide domain judged where it lies: what is counted, and which rows of it the host looks at again."""

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import NO_LEVEL, Outcome
from refnum.conformance.cases.operation import run_golden
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts import judge_wide as module
from refnum.conformance.verdicts.tally import Tally

X = np.arange(1, 8 * 64 + 1, dtype=np.float32).reshape(8, 64)
CASE = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": X})


def judged(function, again=lambda: CASE):
    """Return the tally, whether the subject held, and the inputs of every call."""
    given = []

    def quantize_mxfp4(x, profile):
        given.append(x.copy())
        return function(x, len(given))

    one = Tally("k", CASE.operation, CASE.profile, CASE.params)
    subject = Subject("k", {CASE.operation: quantize_mxfp4})
    return one, module.judge_wide(subject, CASE, run_golden(CASE), one, 60.0, again), given


def flipped(x, *places):
    packed, scales = refnum.quantize_mxfp4(x)
    for place in places:
        packed[place] ^= 1
    return packed, scales


def test_a_right_part_is_one_call_and_all_of_its_elements():
    one, held, given = judged(lambda x, number: flipped(x))
    assert held is True and len(given) == 1
    assert (one.calls, one.compared, one.failing) == (1, 8 * 64 + 8 * 2, 0)


def test_the_first_wrong_row_is_judged_again_by_itself():
    def wrong(x, number):
        rows = [at for at, row in enumerate(x) if row[0] in (X[3, 0], X[5, 0])]
        return flipped(x, *((at, 7) for at in rows))

    one, held, given = judged(wrong)
    assert held is False and [len(x) for x in given] == [8, 1, 1]
    assert all(np.array_equal(x, X[3:4]) for x in given[1:])
    assert one.reached == NO_LEVEL and np.array_equal(one.failures[0].case.inputs["x"], X[3:4])


def test_what_a_row_alone_does_not_show_the_whole_does():
    one, held, given = judged(lambda x, number: flipped(x, *([(6, 0)] if len(x) == 8 else [])))
    assert held is False and [len(x) for x in given] == [8, 1, 8, 8]
    assert one.failures[0].case.inputs["x"].shape == X.shape and one.flips == 0


def test_what_is_wrong_once_is_one_flip_of_two_calls():
    one, held, given = judged(lambda x, number: flipped(x, *([(6, 0)] if number == 1 else [])))
    assert held is False and [len(x) for x in given] == [8, 1, 8] and one.flips == 1
    assert one.failures[0].words.startswith("1 of 2 calls") and (one.calls, one.repeated) == (3, 1)


@pytest.mark.parametrize("alive", [True, False])
def test_a_call_that_fails_is_made_again_on_the_first_row_unless_the_device_is_dead(monkeypatch, alive):
    def fails(x, number):
        raise RuntimeError("no")

    monkeypatch.setattr(module, "alive", lambda arrays: alive)
    other = CASE.with_inputs({"x": X[:2]})
    one, held, given = judged(fails, lambda: other)
    assert held is None and [len(x) for x in given] == ([8, 1] if alive else [8])
    assert np.array_equal(given[-1], X[:1] if alive else X)
    ((outcome, words, case),) = one.faults
    assert (outcome, words) == (Outcome.FAULT, "RuntimeError: no") and (case is other) is not alive
