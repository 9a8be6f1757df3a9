"""Refusals: what dtypes, shapes and declarations explain is said, and what only content explains is no pass."""

import contextlib
import functools

import numpy as np
import pytest
from ml_dtypes import bfloat16
from run_tools import only, report_of, right, subject

import refnum
from refnum.conformance.api import verified
from refnum.conformance.cases.case import FORM, Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import call_golden, run_golden
from refnum.conformance.reports.badge import badge
from refnum.conformance.subjects.calls.call import NO_ROOM, Called
from refnum.conformance.subjects.calls.forms import out_in_form
from refnum.conformance.subjects.loading.declare import AnyOf, Limits
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.judge import judge, record
from refnum.conformance.verdicts.refusals import Refusals, on_same_shapes, refused
from refnum.conformance.verdicts.tally import Tally


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


def empty():
    return Tally("k", "quantize_mxfp4", "HOPPER", {"input": "float32"})


def tally_of(*asked):
    """A tally that counted (case, the words with which it was refused or ""); nothing is asked again."""
    tally = empty()
    for one, words in asked:
        refused = Called(outcome=Outcome.UNSUPPORTED, words=words, no_room=words == NO_ROOM, declared=True)
        called = refused if words else None
        record(called or Called(call_golden(one)), one, run_golden(one), tally)
    return tally


def tally_by(kernel, *cases, **more):
    """The tally of a kernel that was judged on some cases."""
    tally = empty()
    for one in cases:
        judge(subject(kernel, **more), one, run_golden(one), tally, 10.0)
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

    def asked(_, *key):
        return [filled(*key, 1.0, columns) for columns in (64, 32)]

    limits = AnyOf({"quantize_mxfp4": Limits(columns=64)})
    row = only(report_of(subject(right, outside=limits), cases=asked))
    assert row["outcome"] == "pass" and row["refused"] == 1
    row = only(report_of(subject(some), cases=asked))
    assert row["outcome"] == "not-verified" and "does not declare" in row["words"]


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        ([(case(), ""), (case(2.0), "no two")], Outcome.NOT_VERIFIED),
        ([(case(2.0), "no two"), (case(), "")], Outcome.NOT_VERIFIED),
        ([(case(), ""), (case(rows=2), "one row")], Outcome.PASS),
        ([(case(), ""), (case(rows=2, domain="all"), "one row")], Outcome.PASS),
        ([(case(), ""), (case(2.0), f"{NO_ROOM}, says the subject")], Outcome.NOT_VERIFIED),
        ([(case(), ""), (case(rows=2), f"{NO_ROOM}, says the subject")], Outcome.PASS),
        ([(case(), ""), (case(rows=2), NO_ROOM)], Outcome.NOT_VERIFIED),
        ([(case(), NO_ROOM)], Outcome.NOT_VERIFIED),
        ([(case(), "no"), (case(2.0), "no")], Outcome.UNSUPPORTED),
    ],
)
def test_what_explains_a_refusal_decides(asked, outcome):
    assert tally_of(*asked).close() is outcome


def only_twos(x, profile):
    if (x != 2).any():
        raise NotImplementedError("twos only")
    return right(x, profile)


def dead_on_zeros(x, profile):
    if x.any():
        raise NotImplementedError("zeros only")
    raise RuntimeError("dead")


def no_finite(x, profile):
    if np.isfinite(x).all():
        raise NotImplementedError("no finite number")
    return right(x, profile)


def one_row(x, profile):
    if len(x) > 1:
        raise NotImplementedError("one row")
    return right(x, profile)


@pytest.mark.parametrize(
    ("kernel", "asked", "outcome"),
    [
        (zeros_only, [case(0.0), case(2.0, rows=2)], Outcome.NOT_VERIFIED),  # each form comes once
        (zeros_only, [case(2.0)], Outcome.NOT_VERIFIED),
        (no_nan, [case(), case(np.nan, rows=2)], Outcome.NOT_VERIFIED),
        (no_nan, [case(), case(np.nan, rows=2, domain="all")], Outcome.NOT_VERIFIED),
        (one_row, [case(), case(rows=2)], Outcome.NOT_VERIFIED),  # nothing declares it
        (one_row, [case(), case(rows=2, domain="all")], Outcome.NOT_VERIFIED),
        (one_row, [case(rows=2)], Outcome.UNSUPPORTED),
        (dead_on_zeros, [case()], Outcome.FAULT),
        (only_twos, [case(2.0), case(rows=2)], Outcome.NOT_VERIFIED),
    ],
)
def test_a_refused_form_is_asked_again_with_other_data(kernel, asked, outcome):
    assert tally_by(kernel, *asked).close() is outcome


def test_what_a_declaration_refuses_by_content_is_asked_too():
    def outside(one):
        return "no NaN" if np.isnan(one.inputs["x"]).any() else ""

    tally = tally_by(right, case(), case(np.nan, rows=2), outside=outside)
    assert tally.close() is Outcome.NOT_VERIFIED and "no NaN" in tally.words
    limited = AnyOf({"quantize_mxfp4": Limits(columns=64)})
    assert tally_by(right, case(), outside=limited).close() is Outcome.UNSUPPORTED


def test_a_refused_form_is_asked_again_once():
    calls = []

    def never(x, profile):
        calls.append(1)
        raise NotImplementedError("never")

    tally = tally_by(never, case(), case(2.0), case(3.0))
    assert len(calls) == 3 + len(list(on_same_shapes(case()))) and tally.close() is Outcome.UNSUPPORTED
    assert tally.unsupported == {"never": 3}


def test_other_data_of_the_same_form_is_legal_and_keeps_row_maps():
    given = Case(
        "unpermute", "HOPPER", {}, {"x": np.ones((2, 32), np.float32), "row_map": np.arange(2, dtype=np.int32)}
    )
    others = list(on_same_shapes(given))
    assert all(np.array_equal(other.inputs["row_map"], [0, 1]) for other in others)
    assert {float(other.inputs["x"][0, 0]) for other in others} >= {0.0, 1.0}
    assert all(other.inputs["x"].dtype == np.float32 and other.inputs["x"].shape == (2, 32) for other in others)


@pytest.mark.parametrize("operation", ["unpack_payload", "pack_payload", "unpermute", "permute_pad"])
def test_content_is_found_where_no_domain_is_and_most_forms_come_once(operation):
    golden = getattr(refnum, operation)

    def refused(array):
        if array.dtype == np.uint8:
            return (array == 255).any()
        return array.dtype.kind != "i" and np.isnan(array.astype(np.float32)).any()

    @functools.wraps(golden)
    def no_ff(*given, **more):
        if any(refused(v) for v in [*given, *more.values()] if isinstance(v, np.ndarray)):
            raise refnum.errors.UnsupportedError(f"{NO_ROOM}: no 255 and no NaN")
        return golden(*given, **more)

    row = only(report_of(Subject("p", {operation: no_ff}), operation=operation, cases=corner_cases))
    assert row["outcome"] == "not-verified" and "refused by content" in row["words"], row


def test_want_of_memory_is_no_pass_unless_it_answers_once_more():
    asked = []

    def short(x, profile):
        if len(x) > 8192:
            asked.append(1)
            if len(asked) < need:
                raise MemoryError("1 TiB of scratch")
        return right(x, profile)

    large, need = case(rows=8193), 9
    tally = tally_by(short, case(), large)
    assert (
        tally.close() is Outcome.NOT_VERIFIED and tally.words.startswith("1 cases were not judged") and len(asked) == 2
    )
    asked.clear()
    need = 2
    assert tally_by(short, case(), large).close() is Outcome.PASS


def test_words_do_not_excuse_a_second_call_that_is_refused_in_place():
    seen = []

    def by_address(x, profile):
        if any(x is one for one in seen):
            raise NotImplementedError(f"{NO_ROOM}: cached")
        seen.append(x)
        return right(x, profile)

    assert only(report_of(subject(by_address)))["findings"] == ["refused-in-place"]


def wayed(refuses):
    on = []

    @contextlib.contextmanager
    def persistent():
        on.append(1)
        try:
            yield
        finally:
            on.clear()

    def kernel(x, profile):
        if on and refuses(x):
            raise NotImplementedError("not on the persistent way")
        return right(x, profile)

    return subject(kernel, forced_paths={"quantize_mxfp4": {"persistent": persistent}})


def test_a_way_that_refuses_a_shape_is_a_refused_probe_and_one_that_refuses_content_is_no_pass():
    row = only(report_of(wayed(lambda x: x.shape[1] % 4096)))
    assert row["outcome"] == "pass" and row["probes"]["ways by size"] == "not on the persistent way"
    row = only(report_of(wayed(lambda x: x.any())))
    assert row["outcome"] == "not-verified" and "refused by content" in row["words"] and "persistent" in row["words"]


def test_the_words_count_and_show_one():
    tally = tally_of((case(), ""), *((case(2.0, label="twos"), "no two") for _ in range(3)))
    tally.close()
    assert tally.words == (
        "3 cases were refused by content, though others of the same dtypes, shapes and parameters were answered; for "
        "example quantize_mxfp4[HOPPER, input=float32] x float32[1, 32] (twos): no two"
    )
    short = tally_of((case(), ""), (case(rows=2, label="big"), NO_ROOM))
    short.close()
    assert short.words == (
        f"1 cases were not judged: {NO_ROOM}; for example quantize_mxfp4[HOPPER, input=float32] x float32[2, 32] (big)"
    )


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
    refusals.refuse(case().with_inputs(params={name: other}), "no")
    assert (refusals.unexplained() == "") is explained


def test_the_first_case_short_of_memory_is_the_example():
    refusals = Refusals()
    for size in (4, 8, 12):
        refusals.no_room(Case("decode_e8m0", "HOPPER", {}, {"codes": np.zeros(size, np.uint8)}, label=f"of {size}"))
    count, example = refusals.short
    assert count == 3 and "of 4" in example


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "float32", bfloat16])
def test_an_out_that_must_be_refused_has_another_dtype(dtype):
    like = np.zeros((2, 32), dtype)
    for level in ("another dtype", "a wider dtype"):
        wrong = case(**{"label": level}).with_inputs({}, {FORM: {"out": level}})
        (place,) = out_in_form(wrong, (like,), "numpy", 0xA5)
        assert place.array.dtype != like.dtype, level


@pytest.mark.parametrize(
    ("outcome", "words", "is_one"),
    [
        (Outcome.UNSUPPORTED, "rows must be dense", True),
        (Outcome.FAULT, "ValueError: make it contiguous", True),
        (Outcome.FAULT, "its process ended with SIGSEGV", False),
        (Outcome.FAULT, "it raised SystemExit(1)", False),
        (Outcome.FAULT, "CUDARuntimeError: cudaErrorMisalignedAddress: misaligned address", False),
        (Outcome.FAULT, "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered", False),
        (Outcome.FAULT, "RuntimeError: CUDA error: misaligned address", False),
        (Outcome.FAULT, "DriverError: launch failed", False),
        (Outcome.FAULT, "KernelFailed: it returned 3", False),
        (Outcome.TIMEOUT, "no answer within 1 s", False),
        (Outcome.PASS, "", False),
    ],
)
def test_only_an_error_of_the_subject_s_own_is_a_refusal(outcome, words, is_one):
    tally = Tally("s", "quantize_mxfp4", "HOPPER", {}, claimed=0)
    assert refused(Called(outcome=outcome, words=words), tally.probes, "padded rows") is is_one
    assert tally.probes == ({"padded rows": words} if is_one else {})


def test_results_that_break_the_contract_or_are_no_arrays_are_no_refusal():
    words = "ValueError: make it contiguous"
    for more in ({"finding": "wrote its input"}, {"returned": True}):
        assert not refused(Called(outcome=Outcome.FAULT, words=words, **more), {}, "padded rows"), more


def test_what_cannot_be_captured_may_say_so_by_an_error_of_the_device_but_not_by_a_crash():
    tally = Tally("s", "quantize_mxfp4", "HOPPER", {}, claimed=0)
    error = Called(outcome=Outcome.FAULT, words="CUDARuntimeError: cudaErrorStreamCaptureUnsupported: not permitted")
    assert refused(error, tally.probes, "graph capture", capturing=True)
    assert not refused(Called(outcome=Outcome.FAULT, words="its process ended with SIGSEGV"), tally.probes, "g", True)
