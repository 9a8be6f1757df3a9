"""Wrong rules of element rounding: ties, double rounding, signs, saturation, subnormals."""

from __future__ import annotations

import numpy as np

import refnum
from refnum.arrays import float32_bits
from refnum.codec import encode_bits
from refnum.swiglu import swiglu

from ..cases.case import Case
from .tools import (
    INF,
    MAGNITUDE,
    Outputs,
    blocks_of,
    changed,
    codes_of,
    edited,
    element_format,
    encode_under,
    on_codes,
    quantised_product,
    requantise,
    row,
    to_bfloat16,
    under,
    with_bits,
    with_codes,
)


def ties(rule):
    """Return the rule of another tie choice."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        if row(case).ragged:
            return mxfp4_column_ties(case, golden, rule)
        return under(case, ties=rule)

    return wrong


def mxfp4_column_ties(case, golden, rule):
    """Re-encode every element of the columns from its decoded value at the golden column scale."""
    values = float32_bits(refnum.dequantize_mxfp4(case.inputs["packed"], case.inputs["scales"]))
    splits = case.params["splits"] or [values.shape[0]]
    part = np.concatenate(
        [
            first + np.arange(m) // 32
            for m, first in zip(splits, np.cumsum([0] + [-(-m // 32) for m in splits[:-1]]), strict=True)
        ]
    ).astype(int)
    byte = golden["scales"][part]
    codes = encode_bits(
        refnum.E2M1, values, byte.astype(np.int32) - 127, refnum.HOPPER.replace(name="wrong", ties=rule)
    )
    codes = np.where(byte == 255, 0, codes).astype(np.uint8)
    return with_codes(golden, np.ascontiguousarray(codes.T))


def truncated(case: Case, golden: Outputs) -> Outputs | None:
    """Elements are truncated."""
    return under(case, rounding="toward_zero")


def sticky_lost(case: Case, golden: Outputs) -> Outputs | None:
    """The low half of every float32 is dropped before rounding, the maximum's lane is exact anyway."""
    return with_bits(case, lambda b: np.where((b & MAGNITUDE) < INF, b & np.uint32(0xFFFF0000), b))


def through_bfloat16(case: Case, golden: Outputs) -> Outputs | None:
    """Inputs are rounded to bfloat16 first."""
    return with_bits(case, to_bfloat16)


def through_float16(case: Case, golden: Outputs) -> Outputs | None:
    """Inputs are rounded to float16 first, where float16 reaches."""

    def edit(bits):
        with np.errstate(over="ignore"):
            half = bits.view(np.float32).astype(np.float16)
        kept = np.abs(bits.view(np.float32)) < 60000
        return np.where(kept & ((bits & MAGNITUDE) < INF), half.astype(np.float32).view(np.uint32), bits)

    return with_bits(case, edit)


def positive_zero(case: Case, golden: Outputs) -> Outputs | None:
    """The sign of every zero is lost."""
    if "values" in golden:
        word = golden["values"].view(f"u{golden['values'].dtype.itemsize}")
        top = word.dtype.type(1 << (word.dtype.itemsize * 8 - 1))
        return {**golden, "values": np.where(word == top, 0, word).astype(word.dtype)}
    return on_codes(positive_zero_codes)(case, golden)


def positive_zero_codes(case: Case, codes: np.ndarray, golden: Outputs) -> np.ndarray | None:
    """Codes of negative zeros come out as those of positive ones."""
    fmt = element_format(case)
    return np.where(codes == fmt.sign_mask, np.uint8(0), codes) if fmt.kind == "float" else None


def top_unreachable(case: Case, golden: Outputs) -> Outputs | None:
    """The largest code is never produced: a carry into it saturates one below."""
    codes, fmt = codes_of(golden), element_format(case)
    if fmt.kind == "integer":
        return with_codes(golden, np.where(codes == fmt.max_code, fmt.max_code - 1, codes))
    top = (codes & ~np.uint8(fmt.sign_mask)) == fmt.max_code
    return with_codes(golden, np.where(top, codes - 1, codes))


def overflow_wraps(case: Case, golden: Outputs) -> Outputs | None:
    """What would be the code above the largest wraps to 0."""
    fmt = element_format(case)
    if fmt.kind == "scale":
        return None
    half = fmt.max_value + (fmt.max_value - refnum.formats.magnitude_value(fmt, fmt.max_code - 1)) / 2
    if row(case).scalar:
        beyond = (float32_bits(case.inputs["x"]) & MAGNITUDE) > np.float32(float(half)).view(np.uint32)
        return with_codes(golden, np.where(beyond, codes_of(golden) & fmt.sign_mask, codes_of(golden)))
    blocks = blocks_of(case)
    with np.errstate(all="ignore"):
        quotient = (
            np.abs(blocks.view(np.float32).astype(np.float64))
            / 2.0 ** (golden["scales"].astype(np.float64) - 127)[..., None]
        )
    beyond = (quotient > float(half)).reshape(blocks.shape[0], -1) & np.repeat(golden["scales"] != 255, 32, axis=1)
    return with_codes(golden, np.where(beyond, codes_of(golden) & fmt.sign_mask, codes_of(golden)))


def carry_lost(case: Case, golden: Outputs) -> Outputs | None:
    """A rounding carry out of the mantissa does not reach the exponent."""
    down = encode_under(case, rounding="toward_zero")["codes"]
    lost = (down >> 3) != (golden["codes"] >> 3)
    return {"codes": np.where(lost & ((golden["codes"] & 0x7F) < 0x7F), down & ~np.uint8(7), golden["codes"])}


def saturates_early(case: Case, golden: Outputs) -> Outputs | None:
    """E4M3 saturates at 256."""
    codes = golden["codes"]
    beyond = ((codes & 0x7F) > 0x78) & ((codes & 0x7F) != 0x7F)
    return with_codes(golden, np.where(beyond, (codes & 0x80) | 0x78, codes))


def nan_with_sign(case: Case, golden: Outputs) -> Outputs | None:
    """A negative NaN keeps its sign: 0xFF."""
    bits = float32_bits(case.inputs["x"])
    return with_codes(golden, np.where(bits > 0xFF800000, golden["codes"] | 0x80, golden["codes"]))


def other_overflow(case: Case, golden: Outputs) -> Outputs | None:
    """The other overflow policy."""
    other = "nan" if case.params["overflow"] == "saturate" else "saturate"
    return changed(case, overflow=other)


def nan_input_is_minus_zero(case: Case, golden: Outputs) -> Outputs | None:
    """ml_dtypes: NaN becomes 0x8 and -NaN 0x0; the CUDA header writes 7 under a NaN scale."""
    bits = float32_bits(case.inputs["x"])
    if row(case).scalar and element_format(case) is refnum.E2M1:
        code = np.where(bits > 0xFF800000, 0, 8)
        return with_codes(golden, np.where((bits & MAGNITUDE) > INF, code, golden["codes"]))
    codes = codes_of(golden)
    return with_codes(golden, np.where((bits & MAGNITUDE) > INF, 7, codes))


def subnormal_quantum(case: Case, golden: Outputs) -> Outputs | None:
    """E4M3 subnormals taken as multiples of 2^-7 instead of 2^-9."""
    if "values" in golden:
        codes = case.inputs["codes"]
        small = ((codes & 0x7F) < 8) & ((codes & 0x7F) != 0)
        kind = golden["values"].dtype
        with np.errstate(all="ignore"):
            return {
                "values": np.where(
                    small, golden["values"].astype(np.float32) * np.float32(4), golden["values"].astype(np.float32)
                ).astype(kind)
            }
    if row(case).scalar:
        x = case.inputs["x"].astype(np.float32)
        small = np.abs(x) < 2.0**-6
        return {
            "codes": np.where(
                small,
                changed(case, x=np.where(small, x / 4, 0).astype(np.float32), input="float32")["codes"],
                golden["codes"],
            )
        }
    values = refnum.dequantize_fp8_tiles(case.inputs["codes"], case.inputs["scales"])
    codes = case.inputs["codes"]
    small = ((codes & 0x7F) < 8) & ((codes & 0x7F) != 0)
    x = np.where(small, values * np.float32(4), values).astype(np.float32)
    packed, scales = refnum.quantize_mxfp4(x, case.profile)
    return {"packed": packed, "scales": scales}


def flush_inputs(case: Case, golden: Outputs) -> Outputs | None:
    """Subnormal float32, in or out, are flushed to zero."""

    def flush(a):
        bits = float32_bits(a)
        flushed = np.where((bits & MAGNITUDE) < 0x800000, bits & np.uint32(0x80000000), bits).astype(np.uint32)
        return flushed.view(np.float32) if a.dtype == np.float32 else (flushed >> 16).astype(np.uint16).view(a.dtype)

    if row(case).routed:
        return changed(case, rows=flush(case.inputs["rows"]))
    if "gate" in case.inputs:
        return quantised_product(case, golden, flush(swiglu(**case.inputs)))
    if "values" in golden:
        bits = float32_bits(golden["values"])
        gone = (bits & MAGNITUDE) < 0x800000
        word = golden["values"].view(f"u{golden['values'].dtype.itemsize}")
        return {
            "values": np.where(gone, word & word.dtype.type(1 << (8 * word.dtype.itemsize - 1)), word).astype(
                word.dtype
            )
        }
    if case.inputs["x"].dtype == np.float16:
        return None
    return with_bits(case, lambda b: np.where((b & MAGNITUDE) < 0x800000, b & np.uint32(0x80000000), b))


def flush_half(case: Case, golden: Outputs) -> Outputs | None:
    """Subnormal float16 inputs are flushed to zero."""
    bits = case.inputs["x"].view(np.uint16)
    return changed(case, x=np.where((bits & 0x7FFF) < 0x400, bits & 0x8000, bits).astype(np.uint16).view(np.float16))


def inexact_power(case: Case, golden: Outputs) -> Outputs | None:
    """The factor of the scale is one float32 step low: products land below the tie or below the value."""
    if "values" in golden:
        word = golden["values"].view(f"u{golden['values'].dtype.itemsize}")
        top = word.dtype.type((1 << (8 * word.dtype.itemsize - 1)) - 1)
        moved = ((word & top) != 0) & np.isfinite(golden["values"].astype(np.float32))
        return {"values": np.where(moved, word - 1, word).astype(word.dtype)}
    blocks = blocks_of(case)
    moved = np.where((blocks & MAGNITUDE) > 1, blocks - 1, blocks).astype(np.uint32)
    return requantise(edited(case, x=moved.reshape(blocks.shape[0], -1).view(np.float32)), golden, golden["scales"])


def no_random(case: Case, golden: Outputs) -> Outputs | None:
    """The random bits are ignored: round to nearest even."""
    if row(case).scalar:
        return encode_under(case, rounding="nearest")
    profile = refnum.get_profile(case.profile).replace(name="wrong", rounding="nearest")
    packed, scales = refnum.quantize_mxfp4(case.inputs["x"], profile)
    return {"packed": packed, "scales": scales}


def eight_random_bits(case: Case, golden: Outputs) -> Outputs | None:
    """No more than eight random bits are added: the others, and the discarded bits that they would meet, are cut."""
    params = case.params
    draws = (case.inputs["rbits"] >> (params["random_bits"] - 8)).astype(np.uint8)
    profile = refnum.HOPPER.replace(name="wrong", rounding="stochastic", overflow=params["overflow"])
    return {"codes": refnum.encode(params["element"], case.inputs["x"], profile=profile, rbits=draws)}


def saturates(case: Case, golden: Outputs) -> Outputs | None:
    """An overflow saturates although the profile asks for the format's Inf or NaN."""
    return under(case, overflow="saturate")


def always_up(case: Case, golden: Outputs) -> Outputs | None:
    """The carry is tested with >= 255 after adding to a mantissa that keeps its lowest kept bit: exact values move."""
    codes = codes_of(golden)
    draws = case.inputs["rbits"]
    return with_codes(golden, np.where((draws == 255) & ((codes & 7) < 7) & ((codes & 7) > 0), codes + 1, codes))


def default_ties(case: Case, golden: Outputs) -> Outputs | None:
    """Ties go to even, whatever the parameter says."""
    return encode_under(case, ties="even", rounding="nearest")


def keeps_negative_zero(case: Case, golden: Outputs) -> Outputs | None:
    """Negative zero is kept, whatever the parameter says."""
    return encode_under(case, negative_zero="keep")
