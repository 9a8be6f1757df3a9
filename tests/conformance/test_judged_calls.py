"""One call judged: what is counted of it, when it is made again, and what came of a call outside of a contract."""

from dataclasses import replace

import numpy as np
import pytest

from refnum.conformance.cases.case import Case
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import NO_LEVEL, Outcome
from refnum.conformance.cases.operation import call_golden, run_golden
from refnum.conformance.subjects.calls.call import Called
from refnum.conformance.verdicts.judge import record
from refnum.conformance.verdicts.outside import Outside
from refnum.conformance.verdicts.tally import Tally

CASE = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.ones((1, 32), np.float32)}, label="ones")
NAN = replace(CASE, inputs={"x": np.full((1, 32), np.nan, np.float32)}, label="")
ITEMS = 16 + 1
LATE = Called(outcome=Outcome.TIMEOUT, words="late")


def tally(**more):
    return Tally("kernel", CASE.operation, CASE.profile, CASE.params, **more)


def answer(case=CASE, changed=0, finding=""):
    """A call's results, of which one code may have other bits."""
    packed, scales = (array.copy() for array in call_golden(case))
    packed[0, 0] ^= changed
    return Called((packed, scales), words=finding, finding=finding)


class Again:
    """Gives answers in turn, the last one from then on; keeps the cases that it is asked."""

    def __init__(self, *answers):
        self.answers, self.cases = answers, []

    def __call__(self, case):
        self.cases.append(case)
        return self.answers[min(len(self.cases), len(self.answers)) - 1]


def judged(called, again=None, case=CASE, how="", **more):
    """A new tally after one call, and whether the call held."""
    one = tally(**more)
    return one, record(called, case, run_golden(case), one, again, how)


def counts(one):
    return one.calls, one.repeated, one.flips, one.checked


def test_a_right_answer_is_one_call_and_is_not_made_again():
    again = Again(answer())
    one, held = judged(answer(), again)
    assert held is True and again.cases == []
    assert counts(one) == (1, 0, 0, 0) and (one.compared, one.failing, one.reached) == (ITEMS, 0, 0)


def test_a_wrong_answer_that_comes_back_is_counted_as_wrong():
    again = Again(answer(changed=1))
    one, held = judged(answer(changed=1), again)
    assert held is False and len(again.cases) == 1 and again.cases[0] is CASE
    assert counts(one) == (2, 1, 0, 1) and (one.compared, one.failing, one.reached) == (ITEMS, 1, NO_LEVEL)


@pytest.mark.parametrize(
    ("later", "flips"), [((0, 0), 1), ((0, 1), 1), ((2, 1), 1), ((2, 4), 2)], ids=["right", "one", "same", "all differ"]
)
def test_a_wrong_answer_that_does_not_come_back_is_a_flip_and_reaches_no_level(later, flips):
    again = Again(*(answer(changed=bits) for bits in later))
    one, held = judged(answer(changed=1), again)
    assert held is False and len(again.cases) == 2
    assert counts(one) == (3, 2, flips, 1) and (one.compared, one.reached) == (ITEMS, 0)
    (failure,) = one.failures
    assert failure.words == f"{flips} of 3 calls on the same inputs gave other bytes: the result is not determined"
    assert (failure.level, failure.finding, one.failing) == (NO_LEVEL, "not-deterministic", 1)


@pytest.mark.parametrize(("later", "comes_again", "finding"), [
    ((0, 0), 1, Finding.AFTER_ANOTHER), ((0, 0), 0, Finding.NOT_DETERMINISTIC), ((0, 2), 1, Finding.NOT_DETERMINISTIC),
])  # fmt: skip
def test_a_wrong_answer_that_comes_again_behind_another_variant_alone_is_no_flip(later, comes_again, finding):
    again, behind = Again(*(answer(changed=bits) for bits in later)), Again(answer(changed=comes_again))
    one = tally()
    assert record(answer(changed=1), CASE, run_golden(CASE), one, again, behind=behind) is False
    assert [failure.finding for failure in one.failures] == [finding]
    assert bool(one.flips) == (finding == Finding.NOT_DETERMINISTIC) and one.close() is (
        Outcome.FLAKY if one.flips else Outcome.MISMATCH
    )


def test_where_the_second_call_comes_to_no_result_the_first_counts():
    again = Again(LATE)
    one, held = judged(answer(changed=1), again)
    assert held is False and len(again.cases) == 1
    assert counts(one) == (1, 0, 0, 1) and (one.failing, one.reached) == (1, NO_LEVEL)


def test_a_breach_is_not_made_again_and_counts_beside_the_wrong_bytes():
    again = Again(answer())
    one, held = judged(answer(changed=1, finding="input-mutated"), again)
    assert held is False and again.cases == [] and counts(one) == (1, 0, 0, 0)
    assert [(failure.level, failure.finding) for failure in one.failures] == [
        (NO_LEVEL, ""),
        (NO_LEVEL, "input-mutated"),
    ]


def test_only_so_many_wrong_answers_of_a_variant_are_made_again():
    one, again, golden = tally(), Again(answer(changed=1)), run_golden(CASE)
    for _ in range(66):
        assert record(answer(changed=1), CASE, golden, one, again) is False
    assert len(again.cases) == 64 and counts(one) == (66 + 64, 64, 0, 64) and one.failing == 66


@pytest.mark.parametrize(
    ("known", "how", "undeclared"),
    [({}, "", 2), ({"declared": True}, "", 0), ({"no_room": True}, "", 0), ({}, "by a graph", 0)],
)
def test_a_refusal_is_undeclared_unless_something_declares_or_explains_it(known, how, undeclared):
    one = tally()
    for _ in range(2):
        called = Called(outcome=Outcome.UNSUPPORTED, words="too small", **known)
        assert record(called, CASE, run_golden(CASE), one, how=how) is None
    assert one.unsupported == {"too small": 2} and one.undeclared == ({"too small": 2} if undeclared else {})
    assert not one.faults and not one.calls


def test_a_fault_is_no_call_that_was_compared():
    one, held = judged(LATE, Again(answer()))
    assert held is None and one.faults == [(Outcome.TIMEOUT, "late", CASE)]
    assert counts(one) == (0, 0, 0, 0) and not one.failing and not one.unsupported


def test_of_a_refused_case_only_other_data_inside_of_the_contract_is_asked():
    refused = Called(outcome=Outcome.UNSUPPORTED, words="no")
    again = Again(refused)
    one, held = judged(refused, again, outside=Outside(("nonzero",)))
    assert held is None and not one.outside.cases
    assert [case.inputs["x"].any() for case in again.cases] == [True, True]
    assert [case.label for case in again.cases] == ["the same shapes, other data", "the same shapes, filled with 1"]


REFUSED = Called(outcome=Outcome.UNSUPPORTED, words="no NaN")


@pytest.mark.parametrize(
    ("called", "claimed", "what", "words"),
    [
        (answer(NAN), 0, "held", ""),
        (answer(NAN, changed=1), 1, "held", ""),
        (answer(NAN, changed=1), 0, "differing", f"x holds NaN or Inf in {NAN}"),
        (answer(NAN, finding="input-mutated"), 0, "differing", f"x holds NaN or Inf in {NAN} (input-mutated)"),
        (REFUSED, 0, "refused", ""),
        (LATE, 0, "failed", f"x holds NaN or Inf in {NAN} (late)"),
    ],
)
def test_a_call_outside_of_the_contract_is_told_and_counts_for_nothing(called, claimed, what, words):
    one, held = judged(called, Again(answer(NAN)), NAN, claimed=claimed, outside=Outside(("finite",)))
    told = one.outside
    assert held is None and told.example == words
    assert {name: getattr(told, name) for name in ("held", "differing", "refused", "failed")} == {
        **dict.fromkeys(("held", "differing", "refused", "failed"), 0),
        what: 1,
    }
    assert counts(one) == (0, 0, 0, 0) and not (one.compared or one.failing or one.unsupported or one.faults)
    labelled = judged(LATE, None, replace(NAN, label="all NaN"), outside=Outside(("finite",)))[0]
    assert labelled.outside.example == "x holds NaN or Inf in all NaN (late)"
