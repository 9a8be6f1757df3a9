"""Coverpoints: counted right on cases made by hand, complete over the corners, empty where nothing is met."""

import ml_dtypes
import numpy as np
import pytest

from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.coverpoints import count, describe, expected, groups, holes, merged
from refnum.conformance.cases.coverpoints.point import read_float, rounding, rule_exponent
from refnum.conformance.cases.draw.bits import as_float
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.formats import BF16, E2M1, E4M3, FP16, FP32
from refnum.profiles import PROFILES


def counted(operation, params, inputs, profile="HOPPER"):
    case = Case(operation, profile, params, inputs)
    return count(case, run_golden(case))


def floats(values, fmt=FP32):
    """One block: the values, then zeros."""
    dtype = {FP32: np.float32, BF16: ml_dtypes.bfloat16, FP16: np.float16}[fmt]
    x = np.zeros((1, 32), np.float32)
    x[0, : len(values)] = values
    return x.astype(dtype)


def test_read_float_is_exact():
    for fmt in (BF16, FP16, E4M3, E2M1):
        bits = np.arange(1 << fmt.bits, dtype=np.uint32)
        value = read_float(bits, fmt)
        got = np.ldexp(value.significand.astype(np.float64), value.exponent - 23)
        if fmt in (BF16, FP16):
            with np.errstate(invalid="ignore"):  # a signalling NaN
                want = np.abs(as_float(bits, fmt).astype(np.float64))
        else:
            name = {"E4M3": ml_dtypes.float8_e4m3fn, "E2M1": ml_dtypes.float4_e2m1fn}[fmt.name]
            want = np.abs(bits.astype(np.uint8).view(name).astype(np.float64))
        assert (value.finite == np.isfinite(want)).all() and (value.nan == np.isnan(want)).all()
        assert (got == want)[value.finite].all()
        assert (value.negative == (bits >> (fmt.bits - 1) == 1)).all()


def test_rounding_classes_by_hand():
    x = np.array([0.25, -0.75, 5.0, 7.0, 7.5, 6.0, 0.125, -0.2, 0.5, 3.1], np.float32)
    found = rounding(read_float(x.view(np.uint32), FP32), E2M1)
    assert found["tie +0.25"] == found["tie -0.75"] == found["tie +5"] == 1
    assert found["tie -0.25"] == found["tie +3.5"] == 0
    assert found["tie between normal values"] == 1 and found["tie between subnormal values"] == 2
    assert found["tie at the overflow threshold"] == 1 and found["beyond the overflow threshold"] == 1
    assert found["exact value"] == 2
    assert found["positive value that rounds to zero"] == 1 and found["negative value that rounds to zero"] == 1


def test_rounding_classes_agree_with_a_count_over_all_bfloat16():
    """Ties of E4M3 counted here and by comparing with the midpoints in float64."""
    bits = np.arange(1 << 15, dtype=np.uint32)
    value = read_float(bits, BF16)
    found = rounding(value, E4M3)
    x = as_float(bits[value.finite], BF16).astype(np.float64)
    table = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    middle = (table[1:] + table[:-1]) / 2
    assert found["tie between normal values"] == np.isin(x, middle[8:]).sum()
    assert found["tie between subnormal values"] == np.isin(x, middle[:8]).sum()
    assert found["exact value"] == np.isin(x, table[1:]).sum()
    assert found["beyond the overflow threshold"] == (x > 464).sum()
    assert found["positive value that rounds to zero"] == ((x > 0) & (x < 2.0**-10)).sum()


def test_rule_exponents_agree_with_the_golden_bytes():
    bits = np.arange(0x0800, 0x7F80, dtype=np.uint32)
    x = np.zeros((bits.size, 32), np.uint16)
    x[:, 0] = bits
    for profile in ("HOPPER", "OCP", "CEIL", "EVEN"):
        case = Case("quantize_mxfp4", profile, {"input": "bfloat16"}, {"x": as_float(x, BF16)})
        byte = run_golden(case)["scales"][:, 0].astype(int)
        k = rule_exponent(PROFILES[profile].scale_rule, E2M1, read_float(bits, BF16))
        assert (np.clip(k + 127, 0, 254) == byte).all()


def test_block_points_by_hand():
    params = {"input": "float32"}
    one = counted("quantize_mxfp4", params, {"x": floats([1.0, 6.0, -0.0])})
    assert one["maximum in lane 1"] == 1 and one["maximum in lane 0"] == 0
    assert one["maximum at the scale rule's step"] == 1 and one["negative zero"] == 1
    nothing = counted("quantize_mxfp4", params, {"x": floats([])})
    assert nothing["zero block"] == 1 and nothing["block of negative zeros"] == 0
    assert nothing["maximum at the scale rule's step"] == 0 and nothing["scale byte 0 written"] == 1
    nan = counted("quantize_mxfp4", params, {"x": floats([1, np.inf, 2, np.nan])})
    assert nan["NaN in lane 3"] == nan["Inf in lane 1"] == nan["NaN and Inf in one block"] == 1
    assert nan["scale byte 255 written"] == 1 and nan["maximum in lane 1"] == 0 and nan["exact value"] == 0
    above = counted("quantize_mxfp4", params, {"x": floats([np.nextafter(np.float32(6), np.float32(7))])})
    assert above["maximum one ulp above the step"] == 1 and above["maximum one ulp below the step"] == 0
    floor = counted("quantize_mxfp4", params, {"x": floats([7.5])}, "OCP")
    assert floor["beyond the overflow threshold"] == 1 and floor["maximum at the scale rule's step"] == 0
    tiny = counted("quantize_mxfp4", params, {"x": floats([2.0**-140])})
    assert tiny["scale clamped at byte 0"] == 1 and tiny["block with a subnormal maximum"] == 1


def test_distance_points_by_hand():
    packed = np.zeros((1, 64), np.uint8)
    packed[0, 0] = 0x07
    packed[0, 16] = 0x87
    scales = np.array([[120, 111, 130, 255]], np.uint8)
    found = counted("mxfp4_to_fp8", {"scale": "max"}, {"packed": packed, "scales": scales})
    assert (
        found["distance 0"] == 1
        and found["distance 9"] == 1
        and sum(value for name, value in found.items() if name.startswith("distance")) == 2
    )
    assert found["empty block beside others"] == found["empty block under a larger byte"] == 1
    assert found["NaN block beside others"] == 1 and found["tile without a participant"] == 0
    assert found["zero element at distance 7 or more"] == 1
    short = counted("mxfp4_to_fp8", {"scale": "max"}, {"packed": packed[:, :32], "scales": scales[:, :2]})
    assert short["short tile"] == 1


def test_column_points_by_hand():
    codes = np.full((3, 32), 0x38, np.uint8)
    codes[1] = 0x80
    codes[2, 1:] = 0x7F
    scales = np.array([[127], [200], [125]], np.uint8)
    params = {"underflow": "rne", "splits": [2, 0, 1]}
    found = counted("fp8_columns", params, {"codes": codes, "scales": scales})
    assert found["empty row under a larger byte"] == 1 and found["distance 0"] == 2
    assert found["expert without rows"] == 1 and found["several experts"] == 1 and found["odd row count"] == 1
    assert found["NaN code"] == 31 and found["row of NaN codes only"] == 0 and found["one expert"] == 0


def test_a_lonely_case_leaves_holes_and_the_corners_leave_none():
    params = {"input": "bfloat16"}
    lonely = counted("quantize_mxfp4", params, {"x": floats([1.0], BF16)})
    assert "tie +0.25" in holes("quantize_mxfp4", "HOPPER", params, lonely)
    assert set(lonely) == set(expected("quantize_mxfp4", "HOPPER", params))
    assert holes("pack_payload", "HOPPER", {}, {}) == []


PROFILED = {"quantize_mxfp4": ("HOPPER", "OCP", "CEIL", "EVEN", "RECIPE", "TE", "STOCHASTIC")}
FAST = [(name, profile, params) for name, operation in OPERATIONS.items()
        for profile in PROFILED.get(name, ("HOPPER",))
        for number, params in enumerate(operation.variants())
        if name not in ("quantize_mx", "quantize_fp8_tiles", "unpermute", "dequantize_mx", "encode_e8m0")
        or number % 5 == 1]  # fmt: skip


def met(name, profile, params):
    """Return the coverpoints that the corner set meets, of small cases first: the rest of a full set adds none."""
    total = {}
    for case in sorted(corner_cases(name, profile, params), key=lambda case: case.elements):
        total = merged(total, count(case, run_golden(case)))
        if not holes(name, profile, params, total):
            break
    return total


@pytest.mark.parametrize(("name", "profile", "params"), FAST, ids=str)
def test_the_corner_set_leaves_no_hole(name, profile, params):
    total = met(name, profile, params)
    assert holes(name, profile, params, total) == []
    assert set(total) == set(expected(name, profile, params))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_corner_set_leaves_no_hole_in_any_variant(name):
    for params in OPERATIONS[name].variants():
        assert holes(name, "HOPPER", params, met(name, "HOPPER", params)) == [], params


def test_names_are_unique_and_every_operation_with_numbers_has_points():
    for name, operation in OPERATIONS.items():
        params, whose = operation.defaults(), operation.joins or name
        points = [point for group in groups(name) for point in group.names(whose, "HOPPER", params)]
        assert len(points) == len(set(points)) == len(describe(name, "HOPPER", params))
        assert bool(points) == (name not in ("pack_payload", "unpack_payload"))
