"""The corners of the direct conversions find the defects of the released kernels and their likely cousins."""

import ml_dtypes
import numpy as np
import pytest

from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import run_golden

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
FP8 = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)


def encode_fp8(value):
    """Exact float64 -> E4M3, saturating; values here have at most four significant bits, so float32 holds them."""
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(value, -448, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def unpack(packed):
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)


def fp4_to_fp8(
    packed,
    scales,
    *,
    empties=False,
    nan_joins=False,
    nan_code=0x7F,
    clamp=True,
    none=127,
    blocks=4,
    element=None,
    offset=6,
):
    """mxfp4_to_fp8, rule `max`, with switches for defects: a plain float64 implementation."""
    codes = unpack(packed)
    rows, columns = scales.shape
    wide = -(-columns // 4)
    empty = ((codes & 7) == 0).reshape(rows, columns, 32).all(axis=2)
    absent = (empty & (not empties)) | ((scales == 255) & (not nan_joins))
    part = np.full((rows, wide * 4), -1)
    part[:, :columns] = np.where(absent, -1, scales.astype(int))
    top = part.reshape(rows, wide, 4)[:, :, :blocks].max(axis=2)
    low = top - offset
    tile = np.where(top < 0, none, np.maximum(low, 0) if clamp else low & 0xFF)
    shift = scales.astype(int) - np.repeat(tile, 4, axis=1)[:, :columns]
    shift = np.repeat(shift, 32, axis=1)
    out = encode_fp8(np.ldexp(E2M1[codes], shift))
    if element:
        out = element(codes, shift, out)
    return np.where(np.repeat(scales == 255, 32, axis=1), nan_code, out).astype(np.uint8), tile.astype(np.uint8)


def released_zero(codes, shift, out):
    """The released kernel subtracts 7 binades or more from the bits of a zero: full scale with the other sign."""
    return np.where(((codes & 7) == 0) & (shift <= -1), 0x7E | (~codes & 8) << 4, out)


FP4_DEFECTS = {
    "zero becomes -+448": {"element": released_zero},
    "empty blocks take part": {"empties": True},
    "NaN blocks take part": {"nan_joins": True},
    "NaN block keeps its codes at 0": {"nan_code": 0},
    "byte wraps below 0": {"clamp": False},
    "empty tile gets byte 0": {"none": 0},
    "empty tile gets byte 121": {"none": 121},
    "last block left out": {"blocks": 3},
    "one binade lower": {"offset": 7},
    "sign masked off": {"element": lambda c, s, out: out & 0x7F},
    "-0 becomes +0": {"element": lambda c, s, out: np.where(out == 0x80, 0, out)},
    "subnormals flushed": {"element": lambda c, s, out: np.where((out & 0x78) == 0, out & 0x80, out)},
    "shift modulo 32": {"element": lambda c, s, out: encode_fp8(np.ldexp(E2M1[c], np.where(s < 0, -((-s) % 32), s)))},
    "underflow truncated": {"element": lambda c, s, out: np.where(
        np.abs(FP8[out]) > np.abs(np.ldexp(E2M1[c], s)), (out & 0x80) | ((out & 0x7F) - 1), out)},
}  # fmt: skip


@pytest.fixture(scope="module")
def fp4_cases():
    cases = [case for case in corner_cases("mxfp4_to_fp8", "HOPPER", {"scale": "max"}) if case.elements]
    return [(case.inputs, run_golden(case)) for case in cases]


def test_the_plain_conversion_agrees(fp4_cases):
    for inputs, golden in fp4_cases:
        codes, scales = fp4_to_fp8(**inputs)
        assert (codes == golden["codes"]).all() and (scales == golden["scales"]).all()


@pytest.mark.parametrize("name", FP4_DEFECTS)
def test_row_corners_find(name, fp4_cases):
    for inputs, golden in fp4_cases:
        codes, scales = fp4_to_fp8(**inputs, **FP4_DEFECTS[name])
        if (codes != golden["codes"]).any() or (scales != golden["scales"]).any():
            return
    pytest.fail(f"{name} survives")


def fp8_columns(
    codes,
    scales,
    splits=None,
    *,
    restart=True,
    zeros_join=False,
    nan_joins=False,
    nan_is_zero=False,
    none=127,
    te=False,
    flush_te=False,
    tail=True,
):
    """fp8_columns on float64, rule `rne` or `te`, with switches for defects."""
    rows, columns = codes.shape
    counts = [rows] if splits is None or not restart else splits
    magnitude = codes & 0x7F
    out, bytes_ = np.empty_like(codes), []
    start = 0
    for count in counts:
        for first in range(start, start + count, 128):
            last = min(first + 128, start + count)
            line = np.empty(columns, np.uint8)
            for tile in range(scales.shape[1]):
                k = slice(tile * 128, min(tile * 128 + 128, columns))
                byte = scales[first:last, tile].astype(int)
                held = (magnitude[first:last, k] != 0) & ~((magnitude[first:last, k] == 0x7F) & nan_is_zero)
                live = (held.any(axis=1) | zeros_join) & ((byte != 255) | nan_joins)
                if not tail and last - first < 128:
                    live[:] = live & (np.arange(last - first) < (last - first) // 32 * 32)
                s = byte[live].max() if live.any() else none
                line[k] = s
                out[first:last, k] = columns_element(codes[first:last, k], (byte - s)[:, None], te, flush_te)
                out[first:last, k][byte == 255] = 0x7F
            bytes_.append(line)
        start += count
    return out.T, np.array(bytes_, np.uint8).reshape(-1, columns)


def columns_element(codes, shift, te, flush):
    if not te:
        value = np.nan_to_num(np.ldexp(FP8[codes], shift))
        return np.where((codes & 0x7F) == 0x7F, 0x7F, encode_fp8(value))
    field = (codes >> 3) & 15
    lowered = np.maximum(field + np.minimum(shift, 0), 0)
    moved = (codes & 0x80) | (lowered << 3) | (codes & 7)
    if flush:
        moved = np.where(lowered == 0, codes & 0x80, moved)
    return np.where(field == 0, 0, moved)


COLUMN_DEFECTS = {
    "blocks do not restart at experts": {"restart": False},
    "zero rows take part": {"zeros_join": True},
    "NaN rows take part": {"nan_joins": True},
    "rows of NaN codes left out": {"nan_is_zero": True},
    "empty tile gets byte 0": {"none": 0},
    "rows past the last full 32 left out": {"tail": False},
}


@pytest.fixture(scope="module")
def column_cases():
    found = {}
    for rule in ("rne", "te"):
        cases = [case for case in corner_cases("fp8_columns", "HOPPER", {"underflow": rule}) if case.elements]
        found[rule] = [({**case.inputs, "splits": case.params.get("splits")}, run_golden(case)) for case in cases]
    return found


def differs(cases, **defect):
    for inputs, golden in cases:
        codes, scales = fp8_columns(**inputs, **defect)
        if scales.shape != golden["scales"].shape or (scales != golden["scales"]).any():
            return True
        if (codes != golden["codes"]).any():
            return True
    return False


def test_the_plain_columns_agree(column_cases):
    assert not differs(column_cases["rne"])
    assert not differs(column_cases["te"], te=True)


@pytest.mark.parametrize("name", COLUMN_DEFECTS)
def test_column_corners_find(name, column_cases):
    assert differs(column_cases["rne"], **COLUMN_DEFECTS[name]), f"{name} survives"


def test_column_corners_tell_the_underflow_rules_apart(column_cases):
    assert differs(column_cases["te"], te=False)
    assert differs(column_cases["te"], te=True, flush_te=True)
    assert differs(column_cases["rne"], te=True)


def half_up(case):
    """fp8_to_mxfp4 with ties away, by the profile that has them: the corners hold ties of FP8 values."""
    golden = run_golden(case)
    other = run_golden(type(case)(case.operation, "TRITON_GEN1", case.params, case.inputs))
    return golden, other


def test_direct_corners_hold_ties_and_every_clamp():
    cases = [case for case in corner_cases("fp8_to_mxfp4", "HOPPER", {}) if case.elements]
    assert any((half_up(case)[0]["packed"] != half_up(case)[1]["packed"]).any() for case in cases)
    seen = np.zeros(256, int)
    for case in cases:
        seen += np.bincount(run_golden(case)["scales"].reshape(-1), minlength=256)
    assert (seen > 0).all()
