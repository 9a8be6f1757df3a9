"""`explain` ends in the model's own code and scale for every operation, and says where the maximum is."""

import numpy as np
import pytest

import refnum as R
from refnum.explain import EXPLAINED

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


@pytest.mark.parametrize("operation", list(EXPLAINED))
def test_every_element_ends_in_the_models_code(operation):
    codes, scales = result(operation)
    for row in range(6):
        for column in range(0, 160, 7):
            told = R.explain(operation, CASES[operation], (row, column))
            assert told.code == codes[row, column] and told.scale in scales
            assert told.steps[0].name == "element" and told.steps[-1].name == "code"
    assert set(CASES) == set(EXPLAINED)


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
