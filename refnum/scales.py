"""Block scales: the E8M0 byte that follows from a block's largest magnitude (clauses N3 and N4)."""

from __future__ import annotations

import numpy as np

from .arguments import require_choice
from .arrays import Array
from .formats import Format
from .profiles import Profile
from .rounding import split_float32

INF32 = np.uint32(0x7F800000)
NAN_BYTE, MAX_BYTE, ONE_BYTE = np.uint8(255), np.uint8(254), np.uint8(127)


def scale_exponent(rule: str, fmt: Format, exponent: Array, fraction: Array) -> Array:
    """Exponent k of the block scale 2**k (clause N3), before any clamp.

    The block's largest magnitude is (1 + fraction * 2**-23) * 2**exponent, not zero; `fmt` is the element
    format. exponent i32, fraction u32. Returns i32. Raises ArgumentError for an unknown rule.
    """
    require_choice("scale_rule", rule, ("rceil", "floor", "ceil", "even"))
    k = exponent - np.int32(fmt.emax)
    if rule == "floor":
        return k
    if rule == "ceil":
        up = fraction != np.uint32(0)
    elif rule == "rceil":
        up = fraction > np.uint32(fmt.max_fraction23)
    else:  # "even": half up to the mantissa width; only a carry out of the fraction moves the exponent
        width = fmt.fraction_bits if fmt.kind == "integer" else fmt.mantissa_bits
        up = fraction >= np.uint32((1 << 23) - (1 << (22 - width)))
    return k + up.astype(np.int32)


def exponent_byte(k: Array) -> Array:
    """E8M0 byte of 2**k with the clamp of clause N3: clamp(k + 127, 0, 254). i32 -> u8."""
    return np.clip(k + np.int32(127), np.int32(0), np.int32(254)).astype(np.uint8)


def finite_scale(amax: Array, fmt: Format, profile: Profile) -> Array:
    """E8M0 byte for finite, non-zero float32 magnitude bits `amax` (u32) under the profile's rule (N3)."""
    if profile.amax_floor is not None:
        amax = np.maximum(amax, np.uint32(profile.amax_floor))
    exponent, significand = split_float32(amax)
    return exponent_byte(scale_exponent(profile.scale_rule, fmt, exponent, significand & np.uint32(0x7FFFFF)))


def block_scale(amax: Array, fmt: Format, profile: Profile) -> Array:
    """E8M0 byte of an MX block from its amax as float32 magnitude bits (u32), zero, NaN and Inf included (N4)."""
    byte = np.where(amax == np.uint32(0), np.uint8(profile.zero_scale), finite_scale(amax, fmt, profile))
    infinite = MAX_BYTE if profile.nonfinite == "satfinite" else NAN_BYTE
    byte = np.where(amax == INF32, infinite, byte)
    return np.where(amax > INF32, NAN_BYTE, byte)


def tile_scale(amax: Array, fmt: Format, profile: Profile) -> Array:
    """E8M0 byte of an FP8 tile from its amax bits (u32): 127 for a zero, NaN or Inf tile (N4, N6)."""
    ordinary = (amax != np.uint32(0)) & (amax < INF32)
    return np.where(ordinary, finite_scale(amax, fmt, profile), ONE_BYTE)
