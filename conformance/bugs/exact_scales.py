"""Wrong rules of block scales and of what is encoded under them, to the last bit, for MX quantisers to nearest.

A rule here takes the magnitude bits of the maximum of each block, and says which byte it gets.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

import refnum
from refnum.arrays import BLOCK, float32_bits
from refnum.codec import encode_bits

from ..cases.case import Case
from .finer import is_nearest
from .tools import (
    INF,
    MAGNITUDE,
    Outputs,
    Rule,
    amax_of,
    blocks_of,
    changed,
    codes_of,
    edited,
    element_format,
    quantiser_block,
    requantise,
    with_codes,
)


def _applies(case: Case, *rules: str) -> bool:
    return (
        quantiser_block(case) == BLOCK
        and is_nearest(case)
        and (not rules or refnum.get_profile(case.profile).scale_rule in rules)
    )


def at_bytes(change: Callable[[np.ndarray, np.ndarray, Case], np.ndarray], *rules: str) -> Rule:
    """Make a wrong rule: finite blocks get the byte change(amax bits, right byte, case), and elements follow it."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        if not _applies(case, *rules):
            return None
        return requantise(case, golden, change(amax_of(case), golden["scales"], case))

    return wrong


def reciprocal(towards: float) -> Rule:
    """Make a wrong rule: the maximum times a reciprocal one float32 step off, rounded up to a power of two."""

    def change(amax: np.ndarray, byte: np.ndarray, case: Case) -> np.ndarray:
        inverse = np.nextafter(np.float32(1) / np.float32(float(element_format(case).max_value)), np.float32(towards))
        mantissa, exponent = np.frexp((amax.view(np.float32) * inverse).astype(np.float64))
        return np.clip(exponent - (mantissa == 0.5) + 127, 0, 254)

    return at_bytes(change, "rceil")


reciprocal_low, reciprocal_high = reciprocal(0), reciprocal(1)


def _emax_added(amax: np.ndarray, byte: np.ndarray, case: Case) -> np.ndarray:
    return np.minimum(byte.astype(np.int32) + element_format(case).emax, 254)


emax_added = at_bytes(_emax_added)
"""The exponent of the element format is not subtracted, and what would be below byte 0 is byte 0 plus it."""


def subnormal_quotient_is_zero(inclusive: bool) -> Rule:
    """Make a wrong rule: a quotient amax / m below 2^-126 (or at it) gets byte 0."""

    def change(amax: np.ndarray, byte: np.ndarray, case: Case) -> np.ndarray:
        edge = np.float32(float(element_format(case).max_value) * 2.0**-126).view(np.uint32)
        return np.where(amax <= edge if inclusive else amax < edge, 0, byte)

    return at_bytes(change, "rceil")


def narrowed(dtype: type) -> Rule:
    """Make a wrong rule: the maximum is rounded to a narrower type, at most to the largest finite float32."""

    def change(amax: np.ndarray, byte: np.ndarray, case: Case) -> np.ndarray:
        with np.errstate(over="ignore"):
            bits = amax.view(np.float32).astype(dtype).astype(np.float32).view(np.uint32)
        bits = np.where(bits >= INF, np.uint32(0x7F7FFFFF), np.maximum(bits, 1)).astype(np.uint32)
        wide = edited(case, x=np.repeat(bits, BLOCK, axis=1).view(np.float32))
        return np.asarray(changed(wide, input="float32")["scales"])

    return at_bytes(change)


narrowed_to_bfloat16, narrowed_to_float16 = narrowed(ml_dtypes.bfloat16), narrowed(np.float16)


def over(magnitudes: Callable[[np.ndarray], np.ndarray]) -> Rule:
    """Make a wrong rule: the maximum is taken over changed bits, and NaN becomes the largest code of its sign."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        if not _applies(case):
            return None
        blocks, fmt = blocks_of(case), element_format(case)
        amax = np.repeat(magnitudes(blocks).max(axis=-1), BLOCK, axis=1).astype(np.uint32)
        byte = changed(edited(case, x=amax.view(np.float32)), input="float32")["scales"]
        exponent = byte.astype(np.int32)[..., None] - 127
        codes = encode_bits(fmt, blocks, exponent, refnum.get_profile(case.profile))
        nan = fmt.max_code if fmt.nan_code is None else fmt.nan_code
        codes = np.where((blocks & MAGNITUDE) > INF, np.where(blocks >> 31, fmt.sign_mask, 0) | nan, codes)
        return with_codes(golden, np.where(exponent == 128, 0, codes).reshape(blocks.shape[0], -1), byte)

    return wrong


without_nan = over(lambda bits: np.where((bits & MAGNITUDE) > INF, 0, bits & MAGNITUDE))
"""NaN is lost in the maximum."""
without_abs = over(lambda bits: np.where(bits >> 31, 0, bits))
"""Negative elements, negative NaN and Inf too, take no part in the maximum."""


def rounded_elements(dropped: int) -> Rule:
    """Make a wrong rule: right scales; elements are rounded to a shorter significand first, whatever their exponent."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        if not _applies(case):
            return None
        bits = blocks_of(case)
        magnitude = bits & MAGNITUDE
        large = magnitude >= np.uint32(64 << 23)  # two exponents lower, so that rounding up never gives Inf
        moved = np.where(large, magnitude - np.uint32(2 << 23), magnitude)
        half = np.uint32((1 << (dropped - 1)) - 1)
        kept = (moved + half + (moved >> np.uint32(dropped) & np.uint32(1))) >> np.uint32(dropped) << np.uint32(dropped)
        exponent = golden["scales"].astype(np.int32)[..., None] - 127 - np.where(large, 2, 0)
        codes = encode_bits(
            element_format(case), kept | (bits & ~MAGNITUDE), exponent, refnum.get_profile(case.profile)
        )
        special = np.repeat(amax_of(case) >= INF, BLOCK, axis=1)
        return with_codes(golden, np.where(special, codes_of(golden), codes.reshape(special.shape)))

    return wrong


def underflow_is_positive(case: Case, codes: np.ndarray, golden: Outputs) -> np.ndarray | None:
    """An element that is not zero and rounds to zero loses its sign; -0 keeps it."""
    fmt = element_format(case)
    if fmt.kind != "float":
        return None
    nonzero = (float32_bits(np.ascontiguousarray(case.inputs["x"])) & MAGNITUDE) != 0
    return np.where(nonzero & (codes == fmt.sign_mask), np.uint8(0), codes)


def zeros_are_negative(case: Case, codes: np.ndarray, golden: Outputs) -> np.ndarray | None:
    """Every zero that goes in comes out negative, but in a NaN block."""
    fmt = element_format(case)
    if fmt.kind != "float" or "scales" not in golden:
        return None
    zero = (float32_bits(np.ascontiguousarray(case.inputs["x"])) & MAGNITUDE) == 0
    block = np.repeat(golden["scales"] == 255, BLOCK, axis=1)
    return np.where(zero & ~block, np.uint8(fmt.sign_mask), codes) if block.shape == zero.shape else None


def byte_zero_is_one(case: Case, golden: Outputs) -> Outputs | None:
    """Elements of a block of byte 0 are divided by 1, not by 2^-127."""
    if not _applies(case):
        return None
    byte = golden["scales"].astype(np.int32)
    return requantise(case, golden, byte, exponent=np.where(byte == 0, 0, byte - 127))


def one_element_late(case: Case, golden: Outputs) -> Outputs | None:
    """The whole array is read one element late, the last one first."""
    if not _applies(case):
        return None
    x = case.inputs["x"]
    return changed(case, x=np.roll(x.reshape(-1), 1).reshape(x.shape))
