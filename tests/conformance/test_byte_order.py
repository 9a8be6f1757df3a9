"""Arrays of the other byte order: a kernel that reads their bytes as the machine's is told, of every operation."""

import numpy as np
import pytest
from structure_tools import engine_of, verdict

import refnum
from refnum.conformance.cases.case import FORM
from refnum.conformance.cases.layouts import IN
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, call_golden, golden_like, run_golden
from refnum.conformance.cases.structure.byte_order import OTHER, readable, swapped
from refnum.conformance.cases.structure.factors import GROUPED, RAGGED, ROUTED
from refnum.conformance.cases.structure.illegal import READABLE, illegal_cases, legal_beside, readable_cases
from refnum.conformance.commands.check.journal import again
from refnum.conformance.subjects.calls.call import call
from refnum.conformance.subjects.loading.declare import Limits
from refnum.conformance.subjects.loading.shapes import case_of
from refnum.conformance.subjects.peers import nvidia_headers
from refnum.conformance.subjects.subject import Subject, takes_out
from refnum.conformance.verdicts.refusals import refusal
from refnum.conformance.verdicts.structural import is_asked
from refnum.errors import DtypeError, RefnumError
from refnum.gpu import host

FLOATING = [name for name, row in OPERATIONS.items() if any(row.kind(one) == "values" for one in row.inputs)]
NUMBERED = [name for name in OPERATIONS if name in RAGGED | ROUTED | GROUPED or name in ("luq", "decode_e4m3")]


def foreign(operation, params=None):
    """Return the illegal calls of a variant whose arrays have the other byte order."""
    params = OPERATIONS[operation].defaults() if params is None else params
    return [case for case in illegal_cases(operation, "HOPPER", params) if swapped(case)]


def native(array):
    return array.view(array.dtype.newbyteorder("=")) if isinstance(array, np.ndarray) else array


def by_value(array):
    return array.astype(array.dtype.newbyteorder("=")) if isinstance(array, np.ndarray) else array


def blind(operation, read):
    """Return a kernel that takes arrays of any byte order and reads them so."""

    def kernel(**keywords):
        return getattr(refnum, operation)(**{name: read(value) for name, value in keywords.items()})

    return kernel


@pytest.mark.parametrize("read", [native, by_value])
@pytest.mark.parametrize("operation", FLOATING)
def test_a_kernel_that_takes_floats_of_the_other_order_is_told(operation, read):
    """Whether it swaps their bytes or reads them as they lie."""
    subject = Subject("k", {operation: blind(operation, read)})
    for params in OPERATIONS[operation].variants():
        cases = [case for case in foreign(operation, params) if "out" not in case.params[FORM]]
        floats = {name for name, array in legal_beside(operation, "HOPPER", params).inputs.items()
                  if array.dtype.kind not in "iu" or name == "zeros"}  # fmt: skip
        assert {f"{name}.dtype" for name in floats} == {factor for case in cases for factor in case.params[FORM]}
        seen = {factor for case in cases if refusal(call(subject, case)) for factor in case.params[FORM]}
        assert seen <= ({"maxval.dtype"} if read is native else set())  # which lies outside of its range then


@pytest.mark.parametrize("read", [native, by_value])
def test_such_a_kernel_is_not_verified(read):
    tally = verdict("quantize_mxfp4", blind("quantize_mxfp4", read))
    assert tally.outcome is Outcome.FAULT and "x in >f4" in tally.words


def test_scales_of_a_layout_are_told():
    def kernel(packed, scales, dtype="float32", layout_in="bytes"):
        return refnum.dequantize_mxfp4(packed, by_value(scales), dtype, layout_in=layout_in)

    cases = [case for case in foreign("dequantize_mxfp4") if IN in case.params]
    assert {(case.params[IN], case.params[FORM]["scales.dtype"]) for case in cases} == {
        ("float32", ">f4"), ("gemm_float32", ">f4"), ("packed_ue8m0", ">i4"),
    }  # fmt: skip
    assert [refusal(call(Subject("k", {"dequantize_mxfp4": kernel}), case)) for case in cases] == [False] * 3
    assert "scales in >f4 of the layout float32" in verdict("dequantize_mxfp4", kernel).words


@pytest.mark.parametrize("read", [native, lambda out: out])
def test_an_out_is_told(read):
    def kernel(codes, dtype="float32", out=None):
        found = refnum.decode_e4m3(codes, dtype)
        if out is None:
            return found
        bits = out.dtype.kind == "u" and found.itemsize == 2
        with np.errstate(invalid="ignore"):
            read(out)[...] = found.view(np.uint16) if bits else found
        return out

    for dtype in ("float32", "bfloat16"):
        (case,) = foreign("decode_e4m3", {"dtype": dtype})
        assert not refusal(call(Subject("k", {"decode_e4m3": kernel}), case))
    assert f"out with {OTHER}" in verdict("decode_e4m3", kernel).words


@pytest.mark.parametrize("operation", NUMBERED)
def test_whole_numbers_are_read_by_value_or_refused(operation):
    """By the model they are read."""

    def refuses(**keywords):
        if not all(array.dtype.isnative for array in keywords.values() if isinstance(array, np.ndarray)):
            raise DtypeError("another byte order")
        return getattr(refnum, operation)(**keywords)

    legal = legal_beside(operation, "HOPPER", OPERATIONS[operation].defaults(), operation in GROUPED)
    cases, right = list(readable(legal)), run_golden(legal)
    assert cases and all(
        np.array_equal(array, right[name]) for case in cases for name, array in run_golden(case).items()
    )
    for kernel in (refuses, getattr(refnum, operation)):
        engine = engine_of(Subject("k", {operation: kernel}), operation, quick=False)
        engine.refusals({"k"})
        tally = engine.tallies["k"]
        assert not tally.wrong and not tally.unsupported and not tally.undeclared, tally.words
        assert not engine.report.harness


def wrong_row_map(payload, row_map, splits, align):
    return refnum.permute_pad(payload, native(row_map) % len(payload), splits, align)


def wrong_splits(codes, scales, splits=None, underflow="rne"):
    counts = list(native(splits)) if isinstance(splits, np.ndarray) else splits
    if counts is not None and sum(counts) != len(codes):
        counts = [len(codes)]
    return refnum.fp8_columns(codes, scales, counts, underflow)


def wrong_random_words(x, r_under, r_log, **more):
    return refnum.luq(
        x, native(r_under) >> np.uint32(8) if not r_under.dtype.isnative else r_under, by_value(r_log), **more
    )


@pytest.mark.parametrize(("operation", "kernel"), [("permute_pad", wrong_row_map), ("fp8_columns", wrong_splits),
                                                   ("luq", wrong_random_words)])  # fmt: skip
def test_whole_numbers_read_as_they_lie_are_told(operation, kernel):
    engine = engine_of(Subject("k", {operation: kernel}), operation, quick=False)
    engine.refusals({"k"})
    tally = engine.tallies["k"]
    assert tally.close() in (Outcome.MISMATCH, Outcome.MALFORMED)
    case = tally.failures[0].case
    assert any(str(level).startswith(">") for level in case.params[FORM].values())
    params = OPERATIONS[operation].defaults()
    number = [one.digest() for one in readable_cases(operation, "HOPPER", params)].index(case.digest())
    note = {"operation": operation, "profile": "HOPPER", "params": params, "stream": READABLE, "number": number}
    assert again(note).digest() == case.digest()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_model_and_the_host_build_refuse_them_with_a_named_error(operation):
    for params in OPERATIONS[operation].variants():
        like = golden_like(legal_beside(operation, "HOPPER", params))
        cases = foreign(operation, params)
        wide = "out" not in OPERATIONS[operation].params and any(array.itemsize > 1 for array in like)
        assert any(case.params[FORM] == {"out": OTHER} for case in cases) == wide
        for case in cases:
            if "out" not in case.params[FORM]:
                with pytest.raises(RefnumError, match=r"dtype >|is >f4"):
                    call_golden(case)
            twin = getattr(host, operation, None)
            if twin is not None and (takes_out(twin, operation) or "out" not in case.params[FORM]):
                called = call(Subject("host", {operation: twin}), case)
                if "use the golden model" in called.words:  # which has further tiles
                    continue
                assert called.words.partition(":")[0] in ("DtypeError", "ScaleError"), (case.label, called.words)


def test_only_subjects_on_numpy_are_asked():
    """No other library has such arrays; a door that tells no byte order refuses them, and so does a contract."""
    (case,) = (case for case in foreign("encode_e4m3") if "out" not in case.params[FORM])
    for arrays in ("cupy", "torch", "torch-cuda", "jax"):
        assert not is_asked(Subject("k", {"encode_e4m3": refnum.encode_e4m3}, arrays=arrays), case)
    assert is_asked(Subject("k", {"encode_e4m3": refnum.encode_e4m3}), case)
    assert "byte order" in Limits(dtypes=("float32",)).refuses(case)
    with pytest.raises(DtypeError, match="x has dtype >f4"):
        case_of(OPERATIONS["encode_e4m3"], {"x": np.ones((1, 2), ">f4")})


@pytest.mark.skipif(not nvidia_headers.available()[0], reason=nvidia_headers.available()[1])
def test_the_peer_in_cpp_refuses_them():
    for convert in (nvidia_headers.encode_e4m3, lambda x: nvidia_headers.quantize_mxfp4(x, "HOPPER")):
        with pytest.raises(DtypeError, match="x has dtype >f4"):
            convert(np.ones((1, 32), ">f4"))
