"""`explain` ends in the model's own code and scale for every operation, and says where the maximum is."""

from types import SimpleNamespace

import numpy as np
import pytest

import refnum as R
from refnum.explanation import EXPLAINED
from refnum.logarithmic_explained import LOGARITHMIC
from refnum.product_steps import PRODUCTS
from refnum.stepwise import STEPWISE

X = R.philox.random_words(6 * 160, 4).view(np.float32).reshape(6, 160).copy()
X[~np.isfinite(X)] = 1.25
X[0, 32:64], X[1, 40], X[2, 70] = 0, np.nan, np.inf
PACKED, SCALES = R.quantize_mxfp4(X)
CODES, TILES = R.quantize_fp8_tiles(X)
CASES = {
    "quantize_mxfp4": {"x": X},
    "quantize_mx": {"x": X, "element": "E3M2", "profile": "EVEN"},
    "quantize_fp8_tiles": {"x": X, "tile": (128, 128)},
    "fp8_to_mxfp4": {"codes": CODES, "scales": TILES},
    "mxfp4_to_fp8": {"packed": PACKED, "scales": SCALES, "scale": "amax"},
    "mxfp4_to_fp8_columns": {"packed": PACKED, "scales": SCALES, "splits": [1, 0, 5]},
    "mxfp4_to_fp8_rows_columns": {"packed": PACKED, "scales": SCALES, "splits": [2, 4]},
    "mxfp4_columns": {"packed": PACKED, "scales": SCALES, "splits": [2, 4]},
    "fp8_columns": {"codes": CODES, "scales": TILES, "underflow": "te"},
}


def result(operation):
    arguments = dict(CASES[operation])
    codes, scales, *columns = getattr(R, operation)(**arguments)
    if columns:  # of both layouts, the row's is explained
        return codes, scales
    if operation in ("quantize_mxfp4", "fp8_to_mxfp4", "mxfp4_columns"):
        codes = R.arrays.unpack_nibbles(codes)
    return (codes.T, scales) if operation.endswith("columns") else (codes, scales)


SCALAR_CASES = {
    "encode_e2m1": [{"x": X}, {"x": X, "scale_byte": 130}, {"x": X, "scale_byte": 255}],
    "encode_e4m3": [{"x": X}, {"x": X, "overflow": "nan"}],
    "encode_e8m0": [
        {"x": X, "rounding": rounding, "saturate": saturate}
        for rounding in ("up", "down", "nearest")
        for saturate in (False, True)
    ],
    "decode_e2m1": [{"codes": np.arange(16, dtype=np.uint8)}],
    "decode_e4m3": [{"codes": np.arange(256, dtype=np.uint8), "dtype": "bfloat16"}],
    "decode_e8m0": [{"codes": np.arange(256, dtype=np.uint8).reshape(16, 16)}],
}


@pytest.mark.parametrize("operation", list(SCALAR_CASES))
def test_every_scalar_conversion_ends_in_the_models_bits(operation):
    for case in SCALAR_CASES[operation]:
        result = np.asarray(getattr(R, operation)(**case))
        bits = result.view(f"u{result.dtype.itemsize}")
        for flat in range(0, result.size, 7):
            told = R.explain(operation, case, flat)
            assert told.code == bits.reshape(-1)[flat] and told.scale is None
            assert told.index == np.unravel_index(flat, result.shape) and told.steps[0].name == "element"
            assert str(told) == str(R.explain(operation, case, told.index))


def test_scalar_conversions_say_what_decides():
    x = np.array([2.5, np.nan, np.inf, 3 * 2.0**126, 0, 2.0**-149], np.float32)
    assert "tie at 2.5 -> even" in steps("encode_e2m1", {"x": x}, 0)["rounding"]
    assert "E2M1 lacks" in steps("encode_e2m1", {"x": x}, 1)["special"]
    assert steps("encode_e4m3", {"x": x, "overflow": "nan"}, 2)["rounding"] == "Inf is above the largest value -> nan"
    assert steps("encode_e8m0", {"x": x}, 3)["rounding"] == "up: 2^127 times 1.5: exponent 127 + 1"
    assert "E8M0 lacks" in steps("encode_e8m0", {"x": x}, 4)["special"]
    assert steps("encode_e8m0", {"x": x}, 5)["clamp"] == "-22 becomes 0"
    assert steps("decode_e8m0", {"codes": np.array([0], np.uint8)}, 0)["value"] == (
        "exactly 1.0 x 2^-127, bits 0x00400000 of float32"
    )
    for index in (6, (1, 0), -1, (-1,), "a"):
        with pytest.raises(R.errors.ArgumentError, match="outside the array of shape"):
            R.explain("encode_e2m1", {"x": x}, index)


@pytest.mark.parametrize("operation", list(CASES))
def test_every_element_ends_in_the_models_code(operation):
    codes, scales = result(operation)
    for row in range(6):
        for column in range(0, 160, 7):
            told = R.explain(operation, CASES[operation], (row, column))
            assert told.code == codes[row, column] and told.scale in scales
            assert told.steps[0].name == "element" and told.steps[-1].name == "code"
    nvfp4 = {"quantize_nvfp4", "dequantize_nvfp4"}  # test_nvfp4.py
    tetrajet = {"quantize_tetrajet", "q_ema"}  # test_tetrajet.py
    logarithmic = set(LOGARITHMIC)  # test_logarithmic.py
    further = {"hadamard16", "hadamard_quantize_nvfp4", "dge", "occ"}  # test_explain_further.py
    others = {*STEPWISE, "swiglu_quantize", "quantize_payload", "fp8_to_payload"}
    assert {*CASES, *SCALAR_CASES, *PRODUCTS} | nvfp4 | tetrajet | logarithmic | further | others == set(EXPLAINED)


def test_the_maximum_is_shown_with_its_own_lane():
    x = np.zeros((1, 64), np.float32)
    x[0, 33], x[0, 40] = 1.25, -6
    text = str(R.explain("quantize_mxfp4", {"x": x}, (0, 33)))
    assert "6 at [0, 40] in block 1, lane 8" in text
    assert "between 1 and 1.5: tie at 1.25 -> even" in text
    assert text == str(R.explain("quantize_mxfp4", {"x": x}, 33))
    assert text == str(R.explain("quantize_mxfp4", {"x": x}, np.array([0, 33])))


def test_a_finite_element_beside_an_infinity_shows_how_it_is_rounded():
    x = np.zeros((1, 128), np.float32)
    x[0, :2] = np.inf, 2.0**-10
    steps = {step.name: step.text for step in R.explain("quantize_fp8_tiles", {"x": x}, (0, 1)).steps}
    assert steps["special"] == "an Inf tile: byte 127" and "tie at 0.0009765625 -> even" in steps["rounding"]
    steps = {step.name: step.text for step in R.explain("quantize_mxfp4", {"x": x}, (0, 1)).steps}
    assert steps["special"] == "an Inf block: byte 255 (nonfinite nosat)" and "rounding" not in steps


def steps(operation, case, index):
    return {step.name: step.text for step in R.explain(operation, case, index).steps}


def test_te_is_explained_by_what_it_does_to_the_fields():
    codes = np.full((4, 128), 0x38, np.uint8)
    codes[1], codes[2], codes[3] = 0xFF, 0x87, 0xC5
    case = {"codes": codes, "scales": np.array([[130], [127], [127], [120]], np.uint8), "underflow": "te"}
    told = steps("fp8_columns", case, (1, 0))  # N10.5: a NaN code has no special place in the rule
    assert told["rounding"] == "exponent field 15 - 3 = 12, sign and fraction bits kept" and "special" not in told
    assert told["code"].startswith("0xE7") and "quotient" not in told
    assert steps("fp8_columns", case, (2, 5))["rounding"] == "exponent field 0: code 0x00, sign and fraction dropped"
    told = steps("fp8_columns", case, (3, 9))
    assert told["rounding"] == "exponent field 8 - 10 = -2, below 1: 0, sign and fraction bits kept"
    assert told["code"].startswith("0x85")
    case["scales"][1] = 255
    assert "NaN" in steps("fp8_columns", case, (1, 0))["special"]


def test_random_bits_by_key_are_explained():
    key = {"x": X, "profile": "STOCHASTIC", "philox": (1, 2, 3)}
    packed, _ = R.quantize_mxfp4(**key)
    codes = R.arrays.unpack_nibbles(packed)
    for column in range(64, 160, 5):
        assert R.explain("quantize_mxfp4", key, (4, column)).code == codes[4, column]
        assert R.explain("quantize_mx", key, (4, column)).code == codes[4, column]


@pytest.mark.parametrize("layout", R.layouts.LAYOUTS)
def test_scales_in_any_layout_are_explained(layout):
    for operation in ("fp8_to_mxfp4", "mxfp4_to_fp8"):
        case = CASES[operation]
        laid = {**case, "scales": R.layouts.scales_to_layout(case["scales"], layout), "layout_in": layout}
        for index in ((0, 3), (1, 40), (5, 159)):
            assert str(R.explain(operation, laid, index)) == str(R.explain(operation, case, index))


def test_what_the_model_refuses_is_not_explained():
    for operation, name in (("quantize_mxfp4", "x"), ("quantize_fp8_tiles", "x"), ("mxfp4_to_fp8", "packed")):
        masked = np.ma.masked_array(CASES[operation][name], mask=True)
        with pytest.raises(R.errors.DtypeError, match="MaskedArray"):
            R.explain(operation, {**CASES[operation], name: masked}, (0, 0))


def test_a_case_of_the_harness_is_explained_by_its_parts():
    case = SimpleNamespace(params={"element": "E3M2"}, inputs={"x": X}, profile="OCP")
    mapping = {"x": X, "element": "E3M2", "profile": "OCP"}
    assert str(R.explain("quantize_mx", case, 3)) == str(R.explain("quantize_mx", mapping, 3))
    with pytest.raises(R.errors.ArgumentError, match="a mapping of arguments"):
        R.explain("quantize_mx", SimpleNamespace(params={}, inputs=X, profile="OCP"), 3)
