"""Wrong rules that need more than a changed profile or parameter; those of the notes are in `vectors.wrong`."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import refnum
from refnum.arrays import float32_bits

from ...case import Case
from ...compare import unpack
from ...operation import run_golden
from .make import Bits, coded, pack, scaled_by


def through_bfloat16(bits: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """Return float32 bits rounded to bfloat16 and widened again (double rounding)."""
    with np.errstate(all="ignore"):
        return bits.view(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32)


def at_most_254(scales: np.ndarray) -> np.ndarray:
    """Return scale bytes with 255 as 254."""
    return np.minimum(scales, np.uint8(254))


def _floor_log2(amax: np.ndarray) -> np.ndarray:
    return np.floor(np.log2(amax)) - 2


def _subnormal_quotient(amax: np.ndarray) -> np.ndarray:
    """Exponent of amax/6 rounded up in the normal range only; a subnormal quotient stays at byte 0 or 1."""
    bits = (amax / np.float32(6)).view(np.uint32)
    field, fraction = bits >> 23, bits & 0x7FFFFF
    return field.astype(np.int64) - 127 + ((fraction != 0) & ((field != 0) | (fraction > 0x400000)))


floor_log2 = scaled_by("floor", _floor_log2)
"""floor(log2(amax)) - 2 in float32: one too many just below a power of two."""

subnormal_quotient = scaled_by("rceil", _subnormal_quotient)
"""The scale from the bits of the float32 quotient amax/6, with the subnormal quotients rounded wrongly."""


def flush_values(case: Case, golden: Bits) -> Bits:
    """Subnormal results are zeros."""
    bits = golden["values"]
    field, sign = (0x7F800000, 0x80000000) if bits.itemsize == 4 else (0x7F80, 0x8000)
    return {"values": np.where(bits & field, bits, bits & sign).astype(bits.dtype)}


def byte_zero_is_zero(case: Case, golden: Bits) -> Bits:
    """Elements under scale byte 0 decode to zeros of their sign."""
    bits, scales = golden["values"], case.inputs["scales"]
    rows, wide = (1, 32) if case.operation != "dequantize_fp8_tiles" else tuple(case.params["tile"])
    covered = np.repeat(np.repeat(scales == 0, rows, axis=0), wide, axis=1)[: bits.shape[0], : bits.shape[1]]
    return {"values": np.where(covered, bits & bits.dtype.type(1 << (bits.itemsize * 8 - 1)), bits)}


def ff_is_infinity(case: Case, golden: Bits) -> Bits:
    """What is NaN comes out as infinity."""
    bits = golden["values"]
    quiet, infinity = (0x7FC00000, 0x7F800000) if bits.itemsize == 4 else (0x7FC0, 0x7F80)
    return {"values": np.where(bits == quiet, bits.dtype.type(infinity), bits)}


def empty_counts(case: Case, golden: Bits) -> Bits | None:
    """A block of zeros takes part in the maximum of the scale bytes, or of the magnitudes, as if it held a 1."""
    nibbles, scales = unpack(case.inputs["packed"]), case.inputs["scales"]
    empty = ~(nibbles.reshape(*scales.shape, 32) & 7).any(axis=2) & (scales != 255)
    if not empty.any():
        return None
    lead = np.zeros(nibbles.shape, bool)
    lead[:, ::32] = empty
    wrong = dict(run_golden(case.with_inputs({"packed": pack(np.where(lead, nibbles | 2, nibbles))})))
    if case.operation.endswith("columns"):
        lead, nibbles = lead.T, nibbles.T
    wrong["codes"] = np.where(lead, (nibbles & 8) << 4, wrong["codes"]).astype(np.uint8)
    return wrong


def zero_is_nan(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray:
    """Zero, which E8M0 lacks, becomes NaN."""
    zero = (float32_bits(np.ascontiguousarray(case.inputs["x"])) & 0x7FFFFFFF) == 0
    return np.where(zero, np.uint8(255), codes)


def negative_zero(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """Zeros come out negative."""
    fmt = refnum.get_format(coded(case).format(case.params))
    return np.where(codes == 0, np.uint8(fmt.sign_mask), codes) if fmt.kind == "float" else None


def byte_under_mask(case: Case, golden: Bits) -> Bits | None:
    """A normal number's byte is rounded by those bits of its mantissa that 0x4FFFFF leaves."""
    if case.params["rounding"] != "up":
        return None
    x = np.ascontiguousarray(case.inputs["x"])
    bits = float32_bits(x)
    normal = (bits & 0x7FFFFFFF) >= 0x800000
    cut = np.where(normal & ((bits & 0x7FFFFFFF) < 0x7F800000), bits & ~np.uint32(0x300000), bits)
    return run_golden(case.with_inputs({"x": cut.view(np.float32)}, params={"input": "float32"}))


def signless(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """The sign bit is masked off."""
    fmt = refnum.get_format(coded(case).format(case.params))
    return codes & np.uint8(fmt.sign_mask - 1) if fmt.kind == "float" else None


def positive_zero(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """Negative zeros come out positive."""
    fmt = refnum.get_format(coded(case).format(case.params))
    return np.where(codes == fmt.sign_mask, np.uint8(0), codes) if fmt.kind == "float" else None


def zeros(case: Case, golden: Bits) -> Bits:
    """Nothing is written but zeros."""
    return {name: np.zeros_like(array) for name, array in golden.items()}
