"""The wrong rules that need more than a changed profile or parameter, each one found in a real kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import refnum
from refnum.arrays import float32_bits

from ..case import Case
from ..compare import unpack
from ..geometry import spread
from ..operation import run_golden
from .make import Bits, coded, on_codes, pack


def through(dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return float32 bits rounded to a narrower float and widened again (double rounding)."""
    def change(bits: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return bits.view(np.float32).astype(dtype).astype(np.float32).view(np.uint32)
    return change


def flush(bits: np.ndarray) -> np.ndarray:
    """Return float32 bits with subnormals as zeros of their sign."""
    return np.where(bits & 0x7F800000, bits, bits & 0x80000000)


def no_nan(bits: np.ndarray) -> np.ndarray | None:
    """Return float32 bits with NaN as zero; None without a NaN."""
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, bits & 0x80000000, bits) if nan.any() else None


def sticky(bits: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """Cut the bits below half a unit in the last place of E2M1, so that just above a tie looks like a tie."""
    place = ((bits >> 23) & 0xFF).astype(np.int64) - wide.astype(np.int64)
    kept = np.clip(2 + np.minimum(place, 0), 0, 23)
    return bits & ~((np.int64(1) << (23 - kept)) - 1)


def zero_to_full(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """Zeros of blocks seven or more binades below the tile's scale turn into full scale of the other sign."""
    nibbles, rows = unpack(case.inputs["packed"]), np.repeat(case.inputs["scales"], 32, axis=1)
    if case.operation.endswith("columns"):
        nibbles, rows = nibbles.T, rows.T
    shared = spread(coded(case).block, case, golden["scales"], codes.shape).astype(np.int64) + 6
    zero = ((nibbles & 7) == 0) & (shared - rows >= 7) & (rows != 255)
    return np.where(zero, np.where(nibbles & 8, 0x7E, 0xFE), codes).astype(np.uint8) if zero.any() else None


def empty_counts(case: Case, golden: Bits) -> Bits | None:
    """A block of zeros takes part in the maximum of the scale bytes."""
    nibbles = unpack(case.inputs["packed"])
    empty = ~(nibbles.reshape(*case.inputs["scales"].shape, 32) & 7).any(axis=2) & (case.inputs["scales"] != 255)
    if not empty.any():
        return None
    lead = np.zeros(nibbles.shape, bool)
    lead[:, ::32] = empty
    filled = np.where(lead, nibbles | 2, nibbles)
    wrong = dict(run_golden(case.with_inputs({"packed": pack(filled)})))
    lead = lead.T if case.operation.endswith("columns") else lead
    signs = (nibbles.T if case.operation.endswith("columns") else nibbles) & 8
    wrong["codes"] = np.where(lead, signs << 4, wrong["codes"]).astype(np.uint8)
    return wrong


def floor_log2(amax: np.ndarray) -> np.ndarray:
    """Return floor(log2(amax)) - 2 in float32: one too many just below a power of two."""
    return np.floor(np.log2(amax)) - 2


def ceil_log2(amax: np.ndarray) -> np.ndarray:
    """Return ceil(log2(amax / 6)) in float32: one too few just above 1.5 times a power of two."""
    return np.ceil(np.log2(amax / np.float32(6)))


def float_quotient(amax: np.ndarray) -> np.ndarray:
    """Return the exponent of the float32 quotient amax/6, rounded up on its fraction field; wrong where subnormal."""
    bits = (amax / np.float32(6)).view(np.uint32)
    return (bits >> 23).astype(np.int64) - 127 + ((bits & 0x7FFFFF) != 0)


def float_quotient_down(amax: np.ndarray) -> np.ndarray:
    """Return the exponent of amax/6 rounded up in the normal range only; a subnormal quotient stays at byte 0 or 1."""
    bits = (amax / np.float32(6)).view(np.uint32)
    field, fraction = bits >> 23, bits & 0x7FFFFF
    up = (fraction != 0) & ((field != 0) | (fraction > 0x400000))
    return field.astype(np.int64) - 127 + up


def zero_is_nan(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray:
    """Zero, which E8M0 lacks, becomes NaN."""
    zero = (float32_bits(np.ascontiguousarray(case.inputs["x"])) & 0x7FFFFFFF) == 0
    return np.where(zero, np.uint8(255), codes)


def byte_zero_is_zero(case: Case, bits: np.ndarray) -> np.ndarray | None:
    """Elements under scale byte 0 decode to zero."""
    if case.operation == "decode_e8m0":
        return np.where(case.inputs["codes"] == 0, 0, bits)
    tall, last = (1, 32) if case.operation != "dequantize_fp8_tiles" else tuple(case.params["tile"])
    wide = np.repeat(np.repeat(case.inputs["scales"], tall, axis=0), last, axis=1)[: bits.shape[0], : bits.shape[1]]
    sign = bits & (1 << (bits.itemsize * 8 - 1))
    return np.where(wide == 0, sign, bits)


def flush_values(case: Case, bits: np.ndarray) -> np.ndarray:
    """Subnormal results are zeros."""
    field, sign = (0x7F800000, 0x80000000) if bits.itemsize == 4 else (0x7F80, 0x8000)
    return np.where(bits & field, bits, bits & sign)


def ff_is_number(case: Case, bits: np.ndarray) -> np.ndarray:
    """What is NaN comes out as infinity."""
    infinity, quiet = (0x7F800000, 0x7FC00000) if bits.itemsize == 4 else (0x7F80, 0x7FC0)
    return np.where(bits == quiet, infinity, bits)


def swap(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """The two codes of a byte change places."""
    if coded(case).kind != "packed":
        return None
    return np.ascontiguousarray(codes.reshape(*codes.shape[:-1], -1, 2)[..., ::-1]).reshape(codes.shape)


def split_half(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """Codes j and j+16 of a block share a byte."""
    if coded(case).kind != "packed" or codes.shape[-1] % 32:
        return None
    halves = codes.reshape(*codes.shape[:-1], -1, 2, 16)
    return np.ascontiguousarray(np.swapaxes(halves, -1, -2)).reshape(codes.shape)


def swap_input(case: Case, golden: Bits) -> Bits | None:
    """The two input codes of a byte change places."""
    if "packed" not in case.inputs:
        return None
    packed = case.inputs["packed"]
    return run_golden(case.with_inputs({"packed": (packed << 4 | packed >> 4).astype(np.uint8)}))


def signless(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """The sign bit is masked off."""
    fmt = refnum.get_format(coded(case).format(case.params))
    return codes & np.uint8(fmt.sign_mask - 1) if fmt.kind == "float" else None


def positive_zero(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """Negative zeros come out positive."""
    fmt = refnum.get_format(coded(case).format(case.params))
    return np.where(codes == fmt.sign_mask, np.uint8(0), codes) if fmt.kind == "float" else None


def wraps(case: Case, golden: Bits) -> Bits | None:
    """Values beyond the largest one wrap into the lowest codes with their sign, instead of saturating."""
    def change(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
        output = coded(case)
        fmt = refnum.get_format(output.format(case.params))
        if "x" not in case.inputs or fmt.name != "E2M1":
            return None
        bits = float32_bits(np.ascontiguousarray(case.inputs["x"]))
        wide = spread(output.block, case, golden["scales"], bits.shape) if output.block else np.full(bits.shape, 127)
        own = refnum.encode("E2M3", bits.view(np.float32), wide.astype(np.int32) - 127 + 1)  # 8 is in range there
        beyond = ((own & 31) > 27) & (wide != 255)
        return np.where(beyond, codes & 8, codes).astype(np.uint8) if beyond.any() else None
    return on_codes(change)(case, golden)


def zeros(case: Case, golden: Bits) -> Bits:
    """Nothing is written but zeros."""
    return {name: np.zeros_like(array) for name, array in golden.items()}


def first_only(case: Case, golden: Bits) -> Bits | None:
    """Only the first row, or of a single row the first tile, is written; the rest is zero."""
    if any(array.ndim != 2 for array in golden.values()):
        return None
    result = {}
    for name, array in golden.items():
        kept = np.zeros_like(array)
        if array.shape[0] > 1:
            kept[:1] = array[:1]
        else:
            kept[:, : -(-array.shape[1] // 2)] = array[:, : -(-array.shape[1] // 2)]
        result[name] = kept
    return result


def nan_with_sign(case: Case, codes: np.ndarray, golden: Bits) -> np.ndarray | None:
    """NaN keeps the sign of the input."""
    x = case.inputs.get("x")
    if x is None or refnum.get_format(coded(case).format(case.params)).name != "E4M3":
        return None
    negative = (float32_bits(np.ascontiguousarray(x)) >> 31).astype(np.uint8)
    return np.where(codes == 0x7F, codes | negative << 7, codes).astype(np.uint8)
