"""Encoding one finite value: every rounding choice of clause N2, on integers.

A magnitude is `significand * 2**(exponent - point)`, its leading one at bit `point`, or zero. Four visible
stages: find the place of the last kept bit, split off the discarded bits, decide, overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Array
from .errors import ArgumentError, ProfileError
from .formats import Format
from .profiles import Profile


def split_float32(magnitude: Array) -> tuple[Array, Array]:
    """Split finite float32 magnitude bits (u32, sign cleared) into (exponent i32, significand u32).

    value = significand * 2**(exponent - 23) with bit 23 of a non-zero significand set: subnormals are
    normalised. Zero gives significand 0.
    """
    field = magnitude >> np.uint32(23)
    fraction = magnitude & np.uint32(0x7FFFFF)
    exponent = field.astype(np.int32) - np.int32(127)
    significand = fraction | np.uint32(0x800000)
    small = field == 0
    if bool(small.any()):
        # int -> float32 of an integer below 2**24 is exact and normal: no rounding, nothing to flush
        lead = (fraction.astype(np.float32).view(np.uint32) >> np.uint32(23)).astype(np.int32) - np.int32(127)
        exponent = np.where(small, lead - np.int32(149), exponent)
        normalised = fraction << (np.int32(23) - lead).astype(np.uint32)
        significand = np.where(small, normalised, significand)
    return exponent, significand


def round_magnitude(
    fmt: Format,
    exponent: Array,
    significand: Array,
    profile: Profile,
    *,
    negative: Array | None = None,
    rbits: Array | None = None,
    point: int = 23,
) -> Array:
    """Round magnitudes to magnitude codes of `fmt` (clause N2).

    exponent i32, significand u32 or u64 with its leading one at bit `point`, or 0 with an
    exponent below the format's range; `negative`, a boolean
    array, is needed by the ties `up` and `down`; `rbits`, integers below 2**profile.random_bits, by
    stochastic rounding. Returns codes in the dtype of `significand`.

    Raises ProfileError for a format that is no signed binary one, and as `require_rounding`.
    """
    require_rounding(fmt, profile, None if rbits is None else "rbits")
    if fmt.kind == "scale" or fmt.radix != 2:
        raise ProfileError(f"format {fmt.name} is no signed binary format; this rounding takes one")
    word = significand.dtype.type
    # 1. the place of the last kept bit
    base, places = _last_place(fmt, exponent, word, point)
    dropped = np.minimum(places, np.int32(point + 2)).astype(significand.dtype)  # that many leave less than a half
    # 2. kept bits
    code = significand >> dropped
    if base is not None:
        code += base
    # 3. the decision
    if profile.rounding == "nearest":
        code += _round_nearest(profile, code, significand, dropped, negative, word)
    elif profile.rounding == "stochastic":
        code += _round_stochastic(profile, significand, places, rbits, word)
    # 4. overflow
    return _overflow(fmt, code, profile, negative, word)


def _last_place(fmt: Format, exponent: Array, word: Any, point: int) -> tuple[Array | None, Array]:
    """Return (code of the binade's start or None, number of discarded bits i32, at least 1)."""
    if point <= fmt.mantissa_bits:
        raise ProfileError(
            f"format {fmt.name} keeps {fmt.mantissa_bits} fraction bits; allowed are at most {point - 1}"
        )
    if fmt.kind == "integer":  # one quantum for all values; four binades above one are enough to overflow
        return None, np.int32(point - fmt.fraction_bits) - np.minimum(exponent, np.int32(4))
    lift = exponent - np.int32(1 - fmt.bias)
    binade = np.maximum(lift, np.int32(0))  # below the normal range the last place stops sinking
    places = binade - lift
    places += np.int32(point - fmt.mantissa_bits)
    return binade.astype(word) << word(fmt.mantissa_bits), places


def require_rounding(fmt: Format, profile: Profile, random: str | None = None) -> None:
    """Raise unless elements of `fmt` can be rounded as the profile says (clause N2).

    random: the name of the argument that brings random bits, or None for none. Raises ArgumentError when they are
    missing or given in vain, ProfileError for a choice that the format does not have.
    """
    if fmt.radix != 2 and (profile.rounding != "nearest" or profile.ties != "even"):
        raise ProfileError(f"{fmt.name} is rounded to nearest, ties to even; profile {profile.name} asks otherwise")
    if (random is not None) != (profile.rounding == "stochastic"):
        given = "rbits is missing" if random is None else f"{random} was given"
        raise ArgumentError(
            f"{given} but profile {profile.name} rounds {profile.rounding}: "
            "random bits go with stochastic rounding and only with it"
        )
    if profile.overflow == "nan" and fmt.inf_code is None and fmt.nan_code is None:
        raise ProfileError(f"overflow='nan' with {fmt.name}, which has neither Inf nor NaN; use 'saturate'")


def _round_nearest(
    profile: Profile, code: Array, significand: Array, dropped: Array, negative: Array | None, word: Any
) -> Array:
    half = word(1) << (dropped - word(1))
    rest = significand & ((half << word(1)) - word(1))
    if profile.ties == "even":  # more than half, or half and odd: rest + odd > half
        return (rest + (code & word(1)) > half).astype(word)
    if profile.ties == "away":
        return (rest >= half).astype(word)
    if profile.ties == "zero":
        return (rest > half).astype(word)
    if negative is None:
        raise ArgumentError(f"ties={profile.ties!r} needs the sign of each element: give `negative`")
    away = negative if profile.ties == "down" else ~negative
    return ((rest > half) | ((rest == half) & away)).astype(word)


def _round_stochastic(profile: Profile, significand: Array, places: Array, rbits: Array | None, word: Any) -> Array:
    """Add K random bits to the top K discarded bits; a carry rounds away from zero."""
    assert rbits is not None
    k = profile.random_bits
    wide = significand.astype(np.uint64)
    shift = np.minimum(places, np.int32(63))
    rest = wide & ((np.uint64(1) << shift.astype(np.uint64)) - np.uint64(1))
    shift = shift - np.int32(k)
    right = np.maximum(shift, np.int32(0)).astype(np.uint64)
    left = np.maximum(-shift, np.int32(0)).astype(np.uint64)
    top = (rest >> right) << left
    return ((top + rbits.astype(np.uint64)) >> np.uint64(k)).astype(word)


def _overflow(fmt: Format, code: Array, profile: Profile, negative: Array | None, word: Any) -> Array:
    if fmt.min_code is not None:
        if negative is None:
            return np.minimum(code, word(fmt.max_code))
        return np.minimum(code, np.where(negative, word(-fmt.min_code), word(fmt.max_code)))
    if profile.overflow == "saturate":
        return np.minimum(code, word(fmt.max_code))
    beyond = fmt.inf_code if fmt.inf_code is not None else fmt.nan_code
    return np.where(code > word(fmt.max_code), word(beyond), code)
