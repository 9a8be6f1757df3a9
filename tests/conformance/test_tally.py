"""The count of one subject on one variant: every number of it, its words, and the outcome that follows."""

import numpy as np
import pytest

from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import NO_LEVEL, Outcome
from refnum.conformance.cases.operation import call_golden, run_golden
from refnum.conformance.subjects.calls.call import Called
from refnum.conformance.verdicts.judge import record
from refnum.conformance.verdicts.tally import KEEP, DomainCount, Failure, Tally


def tally(**more):
    return Tally("kernel", "quantize_mxfp4", "HOPPER", {"input": "float32"}, **more)


def case(rows=1):
    return Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.ones((rows, 32), np.float32)})


def test_a_tally_without_anything_counts_nothing():
    assert tally().serializable() == {
        "subject": "kernel",
        "operation": "quantize_mxfp4",
        "clause": "N5",
        "profile": "HOPPER",
        "params": {"input": "float32"},
        "variant": "quantize_mxfp4[HOPPER, input=float32]",
        "outcome": "not-verified",
        "words": "nothing was compared",
        "evidence": "",
        "level": {"claimed": "L0", "reached": None},
        **dict.fromkeys(("cases", "corners", "vectors", "sampled", "tensors", "compared", "failing", "faults"), 0),
        "calls": dict.fromkeys(("compared", "repeated", "flips", "excludes"), 0),
        "not_asked": "",
        "structural": 0,
        "structure": {
            **dict.fromkeys(("cases", "refused", "illegal"), 0),
            **{name: [] for name in ("rows", "columns", "factors")},
            "forms": {},
        },
        "refused": 0,
        "seconds": 0.0,
        "coverpoints": 0,
        "holes": [],
        "refusal": "",
        "probes": {},
        "findings": [],
        "differences": [],
        "domains": [],
        "classes": {},
    }


def test_a_tally_says_what_it_rests_on():
    one = tally(corners=1, vectors=20, sampled=300, tensors=4000, compared=7, seconds=0.0015, smoke=True)
    one.domains.append(DomainCount("all of it", 50000, "a chunk", complete=True))
    one.domains.append(DomainCount("more", 9, "a chunk"))
    one.unsupported.update({"too wide": 2, "odd": 1})
    one.left_out.append("a probe")
    document = one.serializable()
    assert document["outcome"] == "pass" and document["words"] == "L0" and document["cases"] == 54321
    assert document["level"] == {"claimed": "L0", "reached": "L0"} and document["seconds"] == 0.002
    assert document["refused"] == 3 and document["refusal"] == "2 cases: too wide; 1 cases: odd"
    assert document["evidence"] == (
        "1 corner cases; 20 frozen vectors; proved all of it (50000 cases); did not finish more (of 9 cases); "
        "300 sampled cases, not a proof; 4000 tensors from files, not a proof; "
        "refused 2 cases: too wide; 1 cases: odd; left out a probe; smoke only: this is not a verification"
    )
    assert [(d["name"], d["size"], d["points"], d["verdict"]) for d in document["domains"]] == [
        ("all of it", 50000, 50000, "proved"),
        ("more", 9, 0, "incomplete"),
    ]


def test_refusals_name_the_three_most_common_reasons():
    one = tally()
    one.unsupported.update({"a": 4, "b": 3, "c": 2, "d": 1})
    assert (one.close(), one.words) == (Outcome.UNSUPPORTED, "4 cases: a; 3 cases: b; 2 cases: c")
    assert one.evidence() == "" == tally(compared=1).evidence()


@pytest.mark.parametrize(
    ("reached", "claimed", "outcome", "words"),
    [
        (0, 0, Outcome.PASS, "L0"),
        (2, 2, Outcome.PASS, "L2"),
        (2, 3, Outcome.PASS, "L2"),
        (3, 2, Outcome.MISMATCH, "L3, claimed L2"),
        (NO_LEVEL - 2, 0, Outcome.MISMATCH, "L4, claimed L0"),
        (NO_LEVEL, 0, Outcome.MISMATCH, "decoded values differ"),
    ],
)
def test_the_level_that_is_reached_decides(reached, claimed, outcome, words):
    one = tally(compared=1, reached=reached, claimed=claimed)
    assert (one.close(), one.words) == (outcome, words)


def test_a_breach_is_a_mismatch_at_any_level_and_is_told_by_its_words():
    one = tally(compared=1)
    one.fail(Failure(case(), NO_LEVEL, "it wrote to x", "input-mutated"))
    assert (one.close(), one.words) == (Outcome.MISMATCH, "it wrote to x")
    assert one.serializable()["findings"] == ["input-mutated"] and one.serializable()["failing"] == 1
    worse = tally(compared=1, reached=NO_LEVEL, failures=list(one.failures))
    assert (worse.close(), worse.words) == (Outcome.MISMATCH, "decoded values differ")
    out = tally(compared=1, reached=NO_LEVEL, failures=list(one.failures), out=True)
    assert (out.close(), out.words) == (Outcome.MISMATCH, "it wrote to x")


def test_faults_come_before_a_pass_and_behind_a_mismatch():
    fault = (Outcome.FAULT, "it died", case())
    one = tally(compared=1, faults=[fault, fault])
    assert not one.stopped and (one.close(), one.words) == (Outcome.FAULT, "2 of its calls failed: it died")
    out = tally(compared=1, faults=[fault], out=True)
    assert out.stopped and (out.close(), out.words) == (Outcome.FAULT, "it died")
    assert tally(compared=1, faults=[fault], reached=NO_LEVEL).close() is Outcome.MISMATCH
    assert tally(faults=[fault] * 3).stopped and not tally().stopped


def test_a_refusal_is_the_outcome_and_a_decided_outcome_stays():
    refused = tally(refusal="no such thing here", compared=1)
    assert refused.stopped and (refused.close(), refused.words) == (Outcome.UNSUPPORTED, "no such thing here")
    refused.refusal = ""
    assert refused.close() is Outcome.UNSUPPORTED
    some = tally(compared=1)
    some.unsupported["odd"] += 1
    assert some.close() is Outcome.PASS


def test_the_six_smallest_failures_of_a_kind_are_kept_and_beyond_twelve_the_first_of_a_kind():
    one = tally()
    for rows in (9, 8, 7, 6, 5, 4, 3, 3, 10, 2):
        one.fail(Failure(case(rows), 1))
    assert [f.case.elements // 32 for f in one.failures] == [6, 5, 4, 3, 3, 2] and one.failing == 10
    first = list(one.failures)
    one.fail(Failure(case(6), 1))  # no smaller than the largest that is kept
    assert all(kept is before for kept, before in zip(one.failures, first, strict=True))
    for finding in "abcdefgh":
        one.fail(Failure(case(), 1, "", finding))
    one.fail(Failure(case(), 2))
    one.fail(Failure(case(), 2))
    assert one.failing == 21
    assert [(f.level, f.finding) for f in one.failures[6:]] == [*((1, finding) for finding in "abcdefgh"), (2, "")]


def test_failures_of_another_level_or_breach_do_not_push_each_other_out():
    one = tally()
    for level in (1, 2):
        for _ in range(6):
            one.fail(Failure(case(4), level))
    one.fail(Failure(case(1), 2))
    one.fail(Failure(case(1), 1))
    assert sorted((f.level, f.case.elements // 32) for f in one.failures) == sorted(
        [(level, rows) for level in (1, 2) for rows in (1, 4, 4, 4, 4, 4)]
    )


def test_of_twelve_failures_that_are_kept_no_other_of_a_kind_is_added():
    one = tally()
    for level in (1,) * KEEP + (2,) * (KEEP - 1) + (3,):
        one.fail(Failure(case(4), level))
    kept = list(one.failures)
    for level in (2, 3):
        one.fail(Failure(case(1), level))
    assert len(kept) == 2 * KEEP and all(now is before for now, before in zip(one.failures, kept, strict=True))
    one.fail(Failure(case(9), 4))  # the first of its kind always is
    assert [f.level for f in one.failures[2 * KEEP :]] == [4] and one.failing == 2 * KEEP + 3


def test_classes_add_up_and_keep_the_worst_level():
    one = tally(compared=1, reached=2, claimed=2)
    one.add_classes({"F": [10, 1, 2], "Z": [1, 0, 0]})
    one.add_classes({"F": [200, 30, 1], "N": [4, 4, NO_LEVEL]})
    assert one.serializable()["classes"] == {
        "F": {"blocks": 210, "wrong": 31, "level": "L2"},
        "N": {"blocks": 4, "wrong": 4, "level": "none"},
        "Z": {"blocks": 1, "wrong": 0, "level": "L0"},
    }


def test_a_domain_is_proved_only_when_all_of_it_was_compared_and_right():
    domain = DomainCount("d", 40, "how")
    assert (domain.points, domain.verdict, domain.text) == (0, "incomplete", "did not finish d (of 40 cases)")
    for held in (True, None, None, True, True):
        domain.add(held)
    assert (domain.calls, domain.missed, domain.wrong) == (5, 2, 0)
    domain.complete = True
    assert (domain.points, domain.verdict, domain.text) == (40, "proved", "proved d (40 cases)")
    domain.add(False)
    domain.add(False)
    assert (domain.calls, domain.missed, domain.wrong) == (7, 2, 2)
    assert (domain.points, domain.verdict, domain.text) == (40, "wrong", "ran all of d (40 cases)")


# --- one call -------------------------------------------------------------------------------------------------


def test_a_call_is_counted():
    one, asked = tally(), case(2)
    golden, results = run_golden(asked), call_golden(asked)
    for _ in range(2):
        assert record(Called((*results,)), asked, golden, one) is True
    assert (one.compared, one.reached, one.failing, one.classes) == (2 * (2 * 16 + 2), 0, 0, {"F": [4, 0, 0]})
    wrong = results[0].copy()
    wrong[0, 0] ^= 1
    assert record(Called((wrong, results[1])), asked, golden, one) is False
    assert (one.compared, one.reached, one.failing) == (3 * 34, NO_LEVEL, 1)
    assert record(Called((*results,)), asked, golden, one) is True and one.reached == NO_LEVEL


def test_a_call_that_holds_at_its_claim_holds_and_is_kept_as_a_failure_of_level_0():
    asked = case().with_inputs({"x": np.full((1, 32), -0.0, np.float32)})
    golden, (packed, scales) = run_golden(asked), call_golden(asked)
    assert packed[0, 0] == 0x88
    for claimed, held in ((1, False), (2, True), (3, True)):
        one = tally(claimed=claimed)
        assert record(Called((packed * 0, scales)), asked, golden, one) is held
        assert [(f.level, f.finding) for f in one.failures] == [(2, "")]


def test_a_call_that_gave_nothing_to_compare_is_no_failure():
    one, asked = tally(), case()
    golden = run_golden(asked)
    for _ in range(2):
        assert record(Called(outcome=Outcome.UNSUPPORTED, words="too small"), asked, golden, one) is None
    assert record(Called(outcome=Outcome.TIMEOUT, words="late"), asked, golden, one) is None
    assert one.unsupported == {"too small": 2} and one.faults == [(Outcome.TIMEOUT, "late", asked)]
    assert one.compared == one.failing == 0


def test_a_breach_is_counted_though_every_byte_is_right():
    one, asked = tally(), case()
    called = Called(call_golden(asked), words="it wrote to x", finding="input-mutated")
    assert record(called, asked, run_golden(asked), one) is False
    assert [(f.level, f.words, f.finding) for f in one.failures] == [(NO_LEVEL, "it wrote to x", "input-mutated")]
    assert one.reached == 0 and one.compared == 17 and set(one.failures[0].observed) == {"packed", "scales"}


def test_a_breach_is_kept_however_many_other_failures_there_are():
    judged = tally()
    for level in range(NO_LEVEL):
        for _ in range(20):
            judged.fail(Failure(case(), level + 1, "other bytes"))
    judged.fail(Failure(case(8), NO_LEVEL, "another result at each call", "not-deterministic"))
    assert judged.serializable()["findings"] == ["not-deterministic"]
    assert judged.failing == 20 * NO_LEVEL + 1
    assert judged.wrong
