"""Refusals: what dtypes, shapes and declarations explain is said, and what only content explains is no pass."""

import numpy as np
import pytest
from run_tools import only, report_of, right, subject

import refnum
from conformance.api import verified
from conformance.calling.call import NO_ROOM, Called, hold_results
from conformance.case import Case
from conformance.doors.declare import AnyOf, Limits
from conformance.judge import record
from conformance.operation import call_golden, run_golden
from conformance.refusals import Refusals
from conformance.reports.badge import badge
from conformance.tally import Tally
from conformance.verdict import Outcome


def zeros_only(x, profile):
    if x.view(f"u{x.itemsize}").any():
        raise NotImplementedError("zeros only")
    return right(x, profile)


def no_nan(x, profile):
    if np.isnan(x.astype(np.float32)).any():
        raise refnum.errors.UnsupportedError("no NaN")
    return right(x, profile)


def case(fill=1.0, rows=1, **more):
    x = np.full((rows, 32), fill, np.float32)
    return Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": x}, **more)


def tally_of(*asked):
    """A tally that counted (case, the words with which it was refused or "", declared)."""
    tally = Tally("k", "quantize_mxfp4", "HOPPER", {"input": "float32"})
    for one, words, declared in asked:
        called = Called(outcome=Outcome.UNSUPPORTED, words=words, declared=declared) if words else None
        record(called or Called(call_golden(one)), one, run_golden(one), tally)
    return tally


def of_one_shape(_operation, profile, params):
    """Return cases of one shape: zeros, ones and NaN."""
    return [filled(profile, params, fill, 32) for fill in (0.0, 1.0, np.nan)]


def filled(profile, params, fill, columns):
    return Case("quantize_mxfp4", profile, params, {"x": np.full((1, columns), fill, np.dtype(params["input"]))})


@pytest.mark.parametrize("kernel", [zeros_only, no_nan])
def test_a_kernel_that_refuses_by_content_is_not_verified(kernel):
    document = report_of(subject(kernel), cases=of_one_shape)
    row, whole = only(document), document.document()
    assert row["outcome"] == "not-verified" and "refused by content" in row["words"] and "for example" in row["words"]
    assert whole["footer"]["exit"] == 3 and "NOT VERIFIED" in whole["footer"]["verdict"]
    assert f"{sum(r['refused'] for r in whole['results'])} cases refused" in whole["footer"]["verdict"]
    assert not verified(whole) and badge(whole).startswith("![refnum: not verified")


def test_one_that_refuses_a_dtype_or_a_shape_is_what_it_was():
    def some(x, profile):
        if x.shape[1] % 64:
            raise NotImplementedError("columns in multiples of 64")
        return right(x, profile)

    row = only(report_of(subject(some), cases=lambda _, *key: [filled(*key, 1.0, columns) for columns in (64, 32)]))
    assert row["outcome"] == "pass" and row["refused"] == 1


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        ([(case(), "", False), (case(2.0), "no two", False)], Outcome.NOT_VERIFIED),
        ([(case(2.0), "no two", False), (case(), "", False)], Outcome.NOT_VERIFIED),
        ([(case(), "", False), (case(2.0), "no two", True)], Outcome.NOT_VERIFIED),  # no content can be declared
        ([(case(), "", False), (case(rows=2), "one row", False)], Outcome.PASS),
        ([(case(), "", False), (case(2.0), f"{NO_ROOM}: MemoryError", False)], Outcome.PASS),
        ([(case(), "", False), (case(rows=2, domain="all"), "one row", False)], Outcome.NOT_VERIFIED),
        ([(case(), "", False), (case(rows=2, domain="all"), "one row", True)], Outcome.PASS),
        ([(case(), "", False), (case(rows=2, domain="all"), f"{NO_ROOM}: MemoryError", False)], Outcome.NOT_VERIFIED),
        ([(case(), "no", False), (case(2.0), "no", False)], Outcome.UNSUPPORTED),
    ],
)
def test_what_explains_a_refusal_decides(asked, outcome):
    assert tally_of(*asked).close() is outcome


def test_the_words_count_and_show_one():
    tally = tally_of((case(), "", False), *((case(2.0, label="twos"), "no two", False) for _ in range(3)))
    tally.close()
    assert tally.words == (
        "3 cases were refused by content, though others of the same dtypes, shapes and parameters were answered; for "
        "example quantize_mxfp4[HOPPER, input=float32] x float32[1, 32] (twos): no two"
    )
    left = tally_of((case(), "", False), (case(rows=2, domain="every code"), "one row", False))
    assert left.close() is Outcome.NOT_VERIFIED and left.words == "every code was left incomplete: one row"


def test_a_declared_limit_is_known_as_one():
    from conformance.calling.call import call

    limited = subject(right, outside=AnyOf({"quantize_mxfp4": Limits(columns=64)}))
    assert call(limited, case()).declared and call(limited, case()).outcome is Outcome.UNSUPPORTED
    assert not call(subject(zeros_only), case()).declared


def test_one_that_refuses_storage_that_it_has_seen_is_found():
    seen = []

    def by_address(x, profile):
        if any(x is one for one in seen):
            raise NotImplementedError("cached")
        seen.append(x)
        return right(x, profile)

    row = only(report_of(subject(by_address)))
    assert row["outcome"] == "mismatch" and row["findings"] == ["refused-in-place"]
    assert row["failures"][0]["reproduced"] == "3 of 3" and row["words"].endswith("it is answered: cached")


@pytest.mark.parametrize("buffers", [2, 3, 9])
def test_buffers_that_are_handed_out_in_turn_are_found_and_shown_again(buffers):
    ring, calls = {}, []

    def in_turn(x, profile):
        result = right(x, profile)
        calls.append(1)
        own = ring.setdefault((x.shape, len(calls) % buffers), [np.empty_like(part) for part in result])
        for buffer, part in zip(own, result, strict=True):
            buffer[...] = part
        return tuple(own)

    row = only(report_of(subject(in_turn)))
    assert row["outcome"] == "mismatch" and row["findings"] == ["earlier-result-changed"]
    assert row["failures"][0]["reproduced"] == "3 of 3"


def test_results_of_their_own_are_held():
    other, first, last = hold_results(subject(right), case())
    assert first.outcome is last.outcome is Outcome.PASS and not last.finding
    assert np.array_equal(last.results[0], call_golden(other)[0])


@pytest.mark.parametrize(
    ("name", "one", "other", "explained"),
    [
        ("splits", [32, 0], [0, 32], True),
        ("align", 1, 7, True),
        ("philox", [1, 2, 3], [4, 5, 6], False),
    ],
)
def test_parameters_explain_a_refusal_but_the_random_key_does_not(name, one, other, explained):
    refusals = Refusals()
    refusals.answer(case().with_inputs(params={name: one}))
    refusals.refuse(case().with_inputs(params={name: other}), "no", False)
    assert (refusals.unexplained() == "") is explained
