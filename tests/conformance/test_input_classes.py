"""Input classes (N17): of blocks and of tiles at their borders, against exact rationals, and how they are counted."""

from fractions import Fraction

import numpy as np
import pytest
from compare_tools import case_of, sample

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import CLASSES, NO_LEVEL, input_classes
from refnum.conformance.cases.operation import call_golden, run_golden
from refnum.conformance.verdicts.compare import compare


def exact_class(values):
    """N17 by exact rationals."""
    if any(np.isnan(v) for v in values):
        return "N"
    if any(np.isinf(v) for v in values):
        return "I"
    amax = max(abs(Fraction(float(v))) for v in values)
    if amax == 0:
        return "Z"
    return "T" if amax < Fraction(2) ** -124 else "H" if amax >= Fraction(2) ** 126 else "F"


def test_classes_of_float_blocks_at_their_borders():
    bits = [
        0x00000000,
        0x80000000,
        0x00000001,
        0x017FFFFF,
        0x01800000,
        0x01800001,
        0x7E7FFFFF,
        0x7E800000,
        0x7F7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7F800001,
        0xFFC00000,
        0x3F800000,
    ]
    x = np.zeros((len(bits), 32), np.uint32)
    x[:, 17] = bits
    x = x.view(np.float32)
    index = input_classes(case_of(x))
    assert [CLASSES[i] for i in index[:, 0]] == [exact_class(row) for row in x]
    assert set("FTHZIN") == {CLASSES[i] for i in index[:, 0]}


def test_classes_of_fp8_blocks_at_their_borders():
    codes = np.zeros((7, 128), np.uint8)
    codes[:, 40] = [0x38, 0x38, 0x37, 0x7E, 0x75, 0x00, 0x7F]
    scales = np.array([[2], [3], [4], [245], [240], [200], [127]], np.uint8)
    case = Case("fp8_to_mxfp4", "HOPPER", {}, {"codes": codes, "scales": scales})
    got = [CLASSES[i] for i in input_classes(case)[:, 1]]
    table = refnum.decode("E4M3", codes).astype(np.float64) * np.ldexp(1.0, scales.astype(int) - 127)
    want = [exact_class(row[32:64]) if not np.isnan(row[32:64]).any() else "N" for row in table]
    assert got == want and set(got) >= {"T", "F", "H", "Z", "N"}
    nan_scale = case.with_inputs({"scales": np.full((7, 1), 255, np.uint8)})
    assert {CLASSES[i] for i in input_classes(nan_scale).reshape(-1)} == {"N"}


def test_classes_of_every_fp8_maximum_under_every_scale():
    codes, scales = np.zeros((128 * 256, 128), np.uint8), np.arange(128 * 256) % 256
    codes[:, 5] = np.arange(128 * 256) // 256
    case = Case("fp8_to_mxfp4", "HOPPER", {}, {"codes": codes, "scales": scales.astype(np.uint8)[:, None]})
    got = [CLASSES[i] for i in input_classes(case)[:, 0]]
    for code in range(128):
        exact = refnum.value("E4M3", code)
        for byte in range(256):
            if exact == "nan" or byte == 255:
                want = "N"
            elif exact == 0:
                want = "Z"
            else:
                amax = exact * Fraction(2) ** (byte - 127)
                want = "T" if amax < Fraction(2) ** -124 else "H" if amax >= Fraction(2) ** 126 else "F"
            assert got[256 * code + byte] == want


@pytest.mark.parametrize("tile", [[1, 128], [128, 128]])
def test_classes_of_tiles_are_those_of_their_elements_at_every_border(tile):
    x = np.full((260, 288), 2.0**-140, np.float32)
    spots = {(0, 0): 1.0, (127, 127): np.inf, (128, 128): 2.0**126, (259, 287): np.nan, (5, 256): -1.0, (200, 0): 0.5}
    for place, number in spots.items():
        x[place] = number
    index = input_classes(case_of(x, "quantize_fp8_tiles", tile=tile))
    tall = tile[0]
    assert index.shape == (-(-260 // tall), 3)
    for row in range(index.shape[0]):
        for column in range(3):
            inside = x[row * tall : (row + 1) * tall, column * 128 : (column + 1) * 128]
            assert CLASSES[index[row, column]] == exact_class(np.unique(inside).tolist())


def test_classes_of_blocks_take_the_scale_of_their_tile():
    codes = np.full((2, 288), 0x38, np.uint8)
    scales = np.array([[127, 0, 254], [255, 127, 2]], np.uint8)
    index = input_classes(Case("fp8_to_mxfp4", "HOPPER", {}, {"codes": codes, "scales": scales}))
    assert ["".join(CLASSES[i] for i in row) for row in index] == ["FFFFTTTTH", "NNNNFFFFT"]


def test_results_are_counted_by_class():
    x = sample()
    x[2, 32:] = 0.0
    case = case_of(x)
    packed, scales = (array.copy() for array in call_golden(case))
    packed[1, 20] ^= 1  # the NaN block: forgiven from level 1 on
    packed[0, 3] ^= 1
    verdict = compare(case, run_golden(case), (packed, scales))
    assert verdict.classes == {"F": [4, 1, NO_LEVEL], "Z": [1, 0, 0], "N": [1, 1, 1]}


def test_an_operation_that_is_no_quantiser_has_no_classes():
    case = Case("decode_e2m1", "HOPPER", {"dtype": "float32"}, {"codes": np.zeros((1, 4), np.uint8)})
    assert compare(case, run_golden(case), call_golden(case)).classes == {}
