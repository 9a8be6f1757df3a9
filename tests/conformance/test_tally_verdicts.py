"""What a tally concludes: its outcome and words, its findings and kinds of difference, what was left unasked."""

import numpy as np
import pytest

from refnum.conformance.cases.case import Case
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import NO_LEVEL, Outcome
from refnum.conformance.verdicts.kinds import LARGER, SIGN, ZERO, Kind
from refnum.conformance.verdicts.outside import Outside
from refnum.conformance.verdicts.tally import KEEP, DomainCount, Failure, KindCount, Tally


def tally(**more):
    return Tally("kernel", "quantize_mxfp4", "HOPPER", {"input": "float32"}, **more)


def case(rows=1):
    return Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.ones((rows, 32), np.float32)})


SHAPES = [Failure(case(), NO_LEVEL, words, Finding.SHAPE) for words in ("two results", "three results")]
BREACH = Failure(case(), NO_LEVEL, "it wrote to x", Finding.INPUT_MUTATED)
FAULT = (Outcome.FAULT, "ValueError: no", case())


def test_every_case_counts_once_and_a_domain_by_its_points():
    one = tally(corners=1, structural=20, vectors=300, sampled=4000, tensors=50000)
    one.domains += [DomainCount("a", 600000, "a chunk", complete=True), DomainCount("b", 9, "a chunk")]
    assert one.cases == 654321


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({}, False),
        ({"faults": [FAULT]}, True),
        ({"accepted": [("a row that is none", case())]}, True),
        ({"reached": 2, "claimed": 2}, False),
        ({"reached": 3, "claimed": 2}, True),
        ({"failures": [Failure(case(), 1)], "claimed": 1}, False),
        ({"failures": [Failure(case(), 1), BREACH], "claimed": 1}, True),
    ],
)
def test_what_is_enough_to_fail(more, wrong):
    assert tally(**more).wrong is wrong


def test_results_of_another_shape_alone_are_malformed_and_reach_no_level():
    one = tally(compared=1, reached=NO_LEVEL, failures=list(SHAPES), holes=["a hole"])
    assert one.malformed and (one.close(), one.words) == (Outcome.MALFORMED, "two results")
    assert one.serializable()["level"]["reached"] is None and one.serializable()["holes"] == []
    for more in ([], [*SHAPES, BREACH], [Failure(case(), NO_LEVEL)]):
        other = tally(compared=1, reached=NO_LEVEL, failures=more)
        assert not other.malformed and other.close() is Outcome.MISMATCH
        assert other.serializable()["level"]["reached"] == "none"
    assert tally(failures=[BREACH]).serializable()["level"]["reached"] is None  # nothing was compared


def test_calls_that_were_taken_are_named_up_to_four():
    calls = [(word, case()) for word in ("a", "b", "c", "d", "e")]
    for given, named in ((calls[:2], "a; b"), (calls[:4], "a; b; c; d"), (calls, "a; b; c; d")):
        one = tally(compared=1, accepted=given)
        words = f"{len(given)} calls were taken that must be refused: {named}"
        assert (one.close(), one.words) == (Outcome.FAULT, words)


def test_undeclared_refusals_beside_answers_are_not_verified_and_the_most_common_is_the_example():
    one = tally(compared=1)
    one.undeclared.update({"odd": 1, "too wide": 5, "late": 2})
    one.unsupported.update({"odd": 1})
    assert one.close() is Outcome.NOT_VERIFIED
    assert one.words.startswith("8 cases were refused that it does not declare to refuse, for example: too wide; ")
    none = tally()
    none.undeclared.update({"odd": 1})
    none.unsupported.update({"odd": 1})
    assert (none.close(), none.words) == (Outcome.UNSUPPORTED, "1 cases: odd")


def test_where_nothing_was_compared_the_words_say_why():
    beyond = Outside(("finite",), cases=2, held=2)
    words = "2 cases outside of inputs=finite: all hold"
    one = tally(outside=beyond)
    assert (one.close(), one.words) == (Outcome.UNSUPPORTED, words)
    one = tally(outside=beyond)
    one.unsupported.update({"odd": 1})
    assert (one.close(), one.words) == (Outcome.UNSUPPORTED, "1 cases: odd")
    assert (tally().close(), tally(compared=1, outside=beyond).close()) == (Outcome.NOT_VERIFIED, Outcome.PASS)


@pytest.mark.parametrize(
    ("domain", "found"),
    [
        ({}, (0, "incomplete", "did not finish d (of 40 cases)")),
        ({"complete": True}, (40, "proved", "proved d (40 cases)")),
        ({"contract": "inputs=finite"}, (0, "incomplete", "did not finish d (of 40 cases)")),
        (
            {"complete": True, "contract": "inputs=finite"},
            (0, "incomplete", "ran all of d that is inside of inputs=finite"),
        ),
        ({"complete": True, "wrong": 1}, (40, "wrong", "ran all of d (40 cases)")),
    ],
)
def test_a_domain_inside_of_a_contract_is_never_proved(domain, found):
    one = DomainCount("d", 40, "a chunk", **domain)
    assert (one.points, one.verdict, one.text) == found


def test_repeated_calls_add_up_and_a_flip_is_told_with_all_calls_on_its_inputs():
    one = tally(compared=1, calls=1)
    one.repeat(case(), 4, 0)
    assert (one.calls, one.repeated, one.flips, one.failing) == (5, 4, 0, 0)
    for calls, flips in ((2, 1), (3, 2)):
        one.repeat(case(), calls, flips)
    assert (one.calls, one.repeated, one.flips) == (10, 9, 3)
    assert [failure.words.partition(" calls")[0] for failure in one.failures] == ["1 of 3", "2 of 4"]
    assert one.close() is Outcome.FLAKY
    assert one.words == (
        "not deterministic: 3 of 10 calls gave other bytes than most calls on the same inputs (9 calls repeated an "
        "earlier one)"
    )
    assert one.serializable()["calls"] == {"compared": 10, "repeated": 9, "flips": 3, "excludes": 0}


def test_only_a_pass_excludes_flips():
    told = "9 calls without a flip, which excludes (95 %) that more than 1 in 3 flips"
    one = tally(compared=1, calls=9)
    assert one.serializable()["calls"]["excludes"] == 3 and one.evidence() == told
    wrong = tally(compared=1, calls=9, reached=NO_LEVEL)
    assert wrong.serializable()["calls"]["excludes"] == 0 and wrong.evidence() == ""
    assert tally(compared=1, calls=2).evidence() == ""


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"out": True, "faults": [FAULT] * 3}, "its adapter does not fit"),
        ({"faults": [FAULT] * 3}, "after 3 faults"),
        ({"refusal": "no"}, "after 0 faults"),
        ({"faults": [FAULT] * 2}, "its device stopped answering"),
    ],
)
def test_what_was_not_asked_is_told_with_the_reason(more, why):
    assert tally(**more).left_alone() == ""
    one = tally(not_asked=["vectors", "corners"], **more)
    words = f"not asked, {why}: vectors, corners"
    assert one.left_alone() == one.serializable()["not_asked"] == words and words in one.evidence()


def test_findings_are_those_of_failures_of_endings_and_of_calls_that_were_taken():
    one = tally(failures=[BREACH, Failure(case(), 1)])
    assert one.serializable()["findings"] == ["input-mutated"]
    one.faults += [FAULT, (Outcome.TIMEOUT, "late", case()), (Outcome.FAULT, "its process died", case())]
    assert one.serializable()["findings"] == ["input-mutated", "kernel-hung", "process-died", "raised"]
    one.accepted.append(("a row that is none", case()))
    assert one.serializable()["findings"] == [
        "illegal-accepted", "input-mutated", "kernel-hung", "process-died", "raised"
    ]  # fmt: skip
    assert tally(accepted=one.accepted).serializable()["findings"] == ["illegal-accepted"]


# --- kinds of difference ----------------------------------------------------------------------------------------


def test_kinds_are_sorted_by_the_level_that_ignores_them_then_by_their_count():
    one, kinds = tally(reached=NO_LEVEL), [Kind("F", "packed", way) for way in (ZERO, SIGN, LARGER)]
    one.add_kinds(Failure(case(), NO_LEVEL), dict(zip(kinds, (50, 3, 2), strict=True)))
    one.add_kinds(Failure(case(), NO_LEVEL), {kinds[2]: 2})
    assert one.worst() == [kinds[2], kinds[1], kinds[0]]
    told = [(row["way"], row["count"], row["fails"]) for row in one.serializable()["differences"]]
    assert told == [(LARGER, 4, "L4"), (SIGN, 3, "L4"), (ZERO, 50, "L1")]


def test_a_kind_keeps_the_cases_of_fewest_other_kinds_then_of_fewest_elements():
    one = KindCount()
    assert one.count == 0
    for kinds, rows in ((2, 1), (1, 9), (1, 8), (3, 1), (2, 2), (1, 7), (2, 3)):
        one.add(10, kinds, Failure(case(rows), NO_LEVEL))
    kept = [(kinds, failure.case.elements // 32) for kinds, failure in one.examples]
    assert kept == [(1, 7), (1, 8), (1, 9), (2, 1), (2, 2), (2, 3)] and (one.count, len(kept)) == (70, KEEP)
    kind = Kind("F", "packed", ZERO)
    failures = one.failures(kind, NO_LEVEL)
    assert {(failure.level, failure.kind) for failure in failures} == {(2, kind)}
    assert {failure.level for failure in one.failures(kind, 1)} == {1}
    assert one.plain(failures) == failures[:3]
    one.add(1, 0, Failure(case(9), NO_LEVEL))
    assert one.plain(one.failures(kind, NO_LEVEL))[0].case.elements == 9 * 32
    assert len(one.plain(one.failures(kind, NO_LEVEL))) == 1
