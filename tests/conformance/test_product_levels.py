"""Products at level P1 (N16): of another order than asked for, and wrong in every order."""

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.levels import NO_LEVEL, P1, failed_name
from refnum.conformance.cases.operation import run_golden, select
from refnum.conformance.commands.check.run import Plan, run
from refnum.conformance.mismatches import replay
from refnum.conformance.reports.badge import badge
from refnum.conformance.reports.report import Report, header
from refnum.conformance.subjects.choose import as_subject
from refnum.conformance.verdicts.compare import compare, differences

PARAMS = {"order": "promote128", "out": "float32", "a_format": "E4M3", "b_format": "E4M3"}


def other_order(a, b, a_scales=None, b_scales=None):
    return refnum.matmul_fp8(a, b, a_scales, b_scales, "promote32")


def ten_bits(a, b, a_scales=None, b_scales=None):
    return (refnum.matmul_fp8(a, b, a_scales, b_scales).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def drawn(rng, shape):
    return np.minimum(rng.integers(0, 127, shape), 0x7E).astype(np.uint8) | (rng.integers(0, 2, shape) << 7).astype(
        np.uint8
    )


@pytest.fixture(params=["float32", "bfloat16"])
def case(request):
    rng = np.random.default_rng(3)
    a, b = drawn(rng, (6, 300)), drawn(rng, (5, 300))
    a[0, 0] = 0x7F
    inputs = {"a": a, "b": b, "a_scales": np.array([[100]], np.uint8)}
    return Case("matmul_fp8", "HOPPER", {**PARAMS, "out": request.param}, inputs)


def level(case, changed):
    golden = run_golden(case)
    dtype = np.float32 if case.params["out"] == "float32" else ml_dtypes.bfloat16
    return compare(case, golden, (changed(golden["values"].copy()).view(dtype),)).level


def test_the_level_of_another_order(case):
    for order in ("promote32", "chain", "split2"):
        found = refnum.matmul_fp8(**case.inputs, order=order, out=case.params["out"])
        bits = found.view(np.uint32 if found.itemsize == 4 else np.uint16)
        assert level(case, lambda golden, bits=bits: bits) in (0, P1)
    assert level(case, lambda golden: golden) == 0


def test_one_result_outside_is_wrong(case):
    def one_bit(golden):
        golden[2, 3] ^= golden.dtype.type(1 << (golden.itemsize * 8 - 3))
        return golden

    def no_nan(golden):
        golden[0, 1] = 0
        return golden

    def payload(golden):
        golden[0, 1] = 0x7FC00000 if golden.itemsize == 4 else 0x7FC0
        return golden

    assert [level(case, change) for change in (one_bit, no_nan, payload)] == [NO_LEVEL, NO_LEVEL, 3]


def test_the_items_that_differ_at_p1_are_those_outside(case):
    golden = run_golden(case)
    observed = {"values": golden["values"].copy()}
    observed["values"][1, 1] ^= 1 << (20 if golden["values"].itemsize == 4 else 6)
    observed["values"][2, 2] ^= golden["values"].dtype.type(1)
    found = [np.argwhere(differences(case, golden, observed, level)["values"]).tolist() for level in range(NO_LEVEL)]
    assert found == [[[1, 1], [2, 2]]] * P1 + [[[1, 1]]]


def test_one_result_outside_is_wrong_behind_a_hundred_inside():
    rng = np.random.default_rng(3)
    inputs = {"a": drawn(rng, (12, 300)), "b": drawn(rng, (12, 300)), "a_scales": np.array([[100]], np.uint8)}
    case = Case("matmul_fp8", "HOPPER", PARAMS, inputs)

    def last_bits(golden):
        return golden ^ np.uint32(1)

    def and_the_last_result(golden):
        golden[-1, -1] ^= np.uint32(1 << 29)
        return last_bits(golden)

    assert [level(case, change) for change in (last_bits, and_the_last_result)] == [P1, NO_LEVEL]


def test_overflow_excludes_nothing():
    a = np.full((1, 64), 0x7E, np.uint8)
    case = Case("matmul_fp8", "HOPPER", PARAMS, {"a": a, "b": a, "a_scales": np.array([[254]], np.uint8)})
    assert compare(case, run_golden(case), (np.array([[np.nan]], np.float32),)).level == P1


def few(operation, profile, params):
    """Every eighth corner case: a level of agreement is found on each alone."""
    yield from itertools.islice(corner_cases(operation, profile, params), 0, None, 8)


def report(kernel, agreement=None, operation="matmul_fp8"):
    """Return the report of a kernel at level smoke, judged on few corner cases."""
    plan = Plan([as_subject(kernel, operation, agreement)], select([operation]), None, "smoke", cases=few)
    return run(plan, Report(header("smoke", 0, [], [], []))).document()


def test_a_claim_of_p1_is_verified_to_p1_only():
    found = report(other_order, "P1")
    assert {result["outcome"] for result in found["results"]} <= {"pass", "unsupported"}
    passed = [result for result in found["results"] if result["outcome"] == "pass"]
    assert passed[0]["level"] == {"claimed": "P1", "reached": "P1"}
    found["header"]["level"] = "standard"
    assert "verified to P1 only" in badge(found)


def test_another_order_does_not_reach_l0():
    result = next(one for one in report(other_order)["results"] if one["outcome"] != "unsupported")
    assert result["outcome"] == "mismatch" and result["words"] == "P1, claimed L0"
    assert {failure["fails"] for failure in result["failures"]} == {"L4"}


def test_what_no_order_gives_is_wrong_and_shown_where_it_lies_outside():
    result = next(one for one in report(ten_bits, "P1")["results"] if one["outcome"] != "unsupported")
    assert result["outcome"] == "mismatch" and result["words"] == "results that no order gives"
    worst = result["failures"][0]
    assert worst["fails"] == "P1" and worst["page"]["expected"] != worst["page"]["observed"]


BF16 = {"order": "chain", "out": "float32"}


@pytest.fixture(params=["float32", "bfloat16"])
def bf16_case(request):
    rng = np.random.default_rng(4)
    a, b = (rng.integers(0x3C00, 0x4300, (r, 300)).astype(np.uint16) for r in (6, 5))
    a[::2] |= np.uint16(0x8000)
    a[0, 0] = 0x7FC0
    inputs = {"a": a.view(ml_dtypes.bfloat16), "b": b.view(ml_dtypes.bfloat16)}
    return Case("matmul_bf16", "HOPPER", {**BF16, "out": request.param}, inputs)


@pytest.mark.parametrize("sign", [0, 0x8000])
def test_where_an_infinity_decides_nothing_else_lies_within(sign):
    ones = np.full((2, 32), 0x3F80, np.uint16)
    a = ones.copy()
    a[0, 5] = 0x7F80 | sign
    inputs = {"a": a.view(ml_dtypes.bfloat16), "b": ones.view(ml_dtypes.bfloat16)}
    case = Case("matmul_bf16", "HOPPER", BF16, inputs)
    infinite = run_golden(case)["values"][0, 0]
    assert infinite == 0x7F800000 | sign << 16

    def instead(bits):
        return lambda golden: np.where(golden == infinite, np.uint32(bits), golden)

    others = (0x42000000, 0, 0x7FC00000, infinite ^ 0x80000000)
    assert [level(case, instead(bits)) for bits in others] == [NO_LEVEL] * 4


def test_the_levels_of_bfloat16_products(bf16_case):
    out = bf16_case.params["out"]
    for order in ("promote16", "promote128", "split2"):
        found = refnum.matmul_bf16(**bf16_case.inputs, order=order, out=out)
        bits = found.view(np.uint32 if found.itemsize == 4 else np.uint16)
        assert level(bf16_case, lambda golden, bits=bits: bits) == (0 if out == "bfloat16" else P1)

    def a_wrong_bit(golden):
        golden[2, 3] ^= golden.dtype.type(1 << (golden.itemsize * 8 - 14))
        return golden

    assert level(bf16_case, a_wrong_bit) == NO_LEVEL


def bf16_cut(a, b, order="chain", out="float32"):
    """Sums whose accumulator keeps 13 fraction bits, as that of FP8 products."""
    return (refnum.matmul_bf16(a, b).view(np.uint32) & np.uint32(0xFFFFFC00)).view(np.float32)


def overflows(a, b, order="chain", out="float32"):
    """Sums in float32, which overflow where a step does not."""
    with np.errstate(all="ignore"):
        return a.astype(np.float32) @ b.astype(np.float32).T


def test_a_page_names_the_level_that_its_small_case_fails():
    """Where a sum may overflow no result is excluded: such a page does not say that P1 fails."""
    found = report(overflows, operation="matmul_bf16")
    (result,) = [one for one in found["results"] if one["outcome"] != "unsupported"]
    for failure in result["failures"]:
        case = replay.load(Path(failure["replay"])).case
        observed = overflows(case.inputs["a"], case.inputs["b"])
        assert failure["fails"] == failed_name(compare(case, run_golden(case), (observed,)).level, "matmul_bf16")


def test_kernels_of_bfloat16_at_p1():
    def split(a, b):
        return refnum.matmul_bf16(a, b, "promote32")

    def judged(kernel, agreement):
        found = report(kernel, agreement, "matmul_bf16")
        return next(one for one in found["results"] if one["outcome"] != "unsupported")

    assert judged(split, "P1")["level"] == {"claimed": "P1", "reached": "P1"}
    assert judged(split, None)["words"] == "P1, claimed L0"
    assert judged(bf16_cut, "P1")["words"] == "results that no order gives"
