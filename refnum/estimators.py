"""The gradient estimator DGE and the outlier clamp OCC of FP4 training (clause N25)."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import numpy as np

from .arguments import require_choice, require_integer, require_sequence
from .arrays import (
    BFLOAT16,
    CHUNK,
    OUTPUTS,
    Array,
    contiguous,
    empty,
    float32_bits,
    is_host,
    own_bits,
    require_float_dtype,
    require_matrix,
    table_like,
    widen,
)  # fmt: skip
from .codec import value
from .division import divide
from .errors import ArgumentError, DtypeError, shown
from .exact_means import exact_number, nearest_bits
from .formats import FP32
from .roots import rounded_power
from .softfloat import INF, NAN, SIGN, add, multiply, subtract, to_bfloat16

TARGETS = ("bfloat16", "float32")
COMPATS = ("paper", "ms-amp")
AXES = ("tensor", "token", "channel")
RULES = ("real", "power_of_two")
MOST_K = 16
"""The largest k: up to it, every magnitude below 2**-32 has the derivative of 0 (N25.2)."""
_MAGNITUDE, _SIX, _ONE = np.uint32(0x7FFFFFFF), np.uint32(0x40C00000), np.uint32(0x3F800000)
_BOUNDS = np.array([0x3F000000, 0x3F800000, 0x3FC00000, 0x40000000, 0x40400000, 0x40800000], np.uint32)
"""float32 bits of the bounds between the intervals of a sign: 0.5, 1, 1.5, 2, 3, 4."""
_TWICE, _MIDDLE = np.array([2, 2, 2, 2, 1, 1, 0], np.int32), np.array([1, 3, 5, 7, 5, 7, 5], np.int64)
"""|t| of interval i is | |x| * 2**_TWICE[i] - _MIDDLE[i] |."""
_STARTS = np.array([0, 0xBF000000, 0xBF800000, 0xBFC00000, 0xC0000000, 0xC0400000, 0xC0800000], np.uint32)
_ENDS = np.array([0x3F000000, 0x3F800000, 0x3FC00000, 0x40000000, 0x40400000, 0x40800000, 0x40C00000], np.uint32)
_STRETCH = np.array([0x40000000] * 4 + [0x3F800000] * 2 + [0x3F000000], np.uint32)
"""float32 bits of minus the lower bounds of the positive intervals, of minus those of the negative ones, of 1/delta."""


def dge(x: Array, k: int = 5, cap: float = 3, target: str = "bfloat16", compat: str = "paper") -> Array:
    """Return the derivative of the differentiable gradient estimator of E2M1 (clause N25.1 to N25.3).

    Args:
        x: scaled weights, any shape, float32, bfloat16, float16 or uint16 (bfloat16 bits).
        k: the sharpness, an integer from 1 to 16; 1 gives the straight-through estimator.
        cap: the largest result, a positive number that bfloat16 holds.
        target: `bfloat16` | `float32`, the format that the exact result is rounded to, once.
        compat: `paper`, symmetric and 0 beyond 6, NaN for NaN; or `ms-amp`, the released code's edges.

    Returns:
        min(|t|**(1/k - 1) / k, cap) in the shape of x, with t from -1 to 1 the place in the interval of E2M1.

    Raises:
        DtypeError, ArgumentError.
    """
    require_float_dtype("x", x)
    power, most = require_integer("k", k, 1, MOST_K), _cap(cap)
    require_choice("target", target, TARGETS)
    require_choice("compat", compat, COMPATS)
    if x.dtype != np.float32:
        kind = "float16" if x.dtype == np.float16 else "bfloat16"
        table = table_like(_table, x, kind, power, most, target, compat)
        return np.take(table, x.view(np.uint16).reshape(-1)).view(OUTPUTS[target]).reshape(x.shape)
    flat = contiguous(x).reshape(-1).view(np.uint32)
    out = empty(flat.shape, np.uint32 if target == "float32" else np.uint16, x)
    step = CHUNK if is_host(x) else max(1, flat.size)
    for start in range(0, flat.size, step):
        part = slice(start, start + step)
        out[part] = _derivative(flat[part], power, most, target, compat)
    return out.view(OUTPUTS[target]).reshape(x.shape)


def _cap(cap: Any) -> int:
    """Return the bfloat16 bits of the cap; ArgumentError unless it is a positive number that bfloat16 holds."""
    exact = exact_number(cap)
    if exact is not None and exact > 0:
        bits = nearest_bits(exact)
        if bits & 0xFFFF == 0 and value(FP32, bits) == exact:
            return bits >> 16
    raise ArgumentError(f"cap is {shown(cap)}; allowed is a positive number that bfloat16 holds")


@functools.lru_cache(maxsize=32)
def _table(kind: str, k: int, cap: int, target: str, compat: str) -> np.ndarray:
    """Bits of the derivative at all 65,536 patterns of a 16-bit format."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    bits = float32_bits(patterns.view(np.float16) if kind == "float16" else patterns)
    return _derivative(bits, k, cap, target, compat)


def _derivative(bits: Array, k: int, cap: int, target: str, compat: str) -> Array:
    """Bits of the derivative (u32 or u16) at float32 bits (u32 [n])."""
    magnitude = bits & _MAGNITUDE
    nan = magnitude > INF
    if compat == "paper":
        outside = magnitude > _SIX
        t, exponent = _place(np.minimum(magnitude, _SIX))
    else:
        outside = ((magnitude > _SIX) & (bits < SIGN)) | nan
        t, exponent = _released_place(np.where(outside, _SIX, bits))
    top = np.int32(cap << 16 if target == "float32" else cap)
    word = np.uint32 if target == "float32" else np.uint16
    found = _capped(t, exponent, k, target, top).astype(word)
    found = np.where(outside, word(0), found)
    return np.where(nan, word(NAN if target == "float32" else 0x7FC0), found) if compat == "paper" else found


def _capped(t: Array, exponent: Array, k: int, target: str, top: np.int32) -> Array:
    """Bits (i32) of the power or the cap. t: u64; 0 is the number 0, and an exponent of 1000 infinity."""
    endless = exponent >= np.int32(1000)
    special = (t == np.uint64(0)) | endless
    usual = rounded_power(np.where(special, np.uint64(1), t), np.where(special, np.int32(0), exponent), k, target)
    if k > 1:
        usual = np.where(endless, np.int32(0), np.where(t == np.uint64(0), top, usual))
    return np.minimum(usual, top)


def _place(magnitude: Array) -> tuple[Array, Array]:
    """(u64, i32) of the exact |t| = u64 * 2**i32 at float32 magnitudes of at most 6.

    Below 2**-32 the place is that of 0 (N25.2); the other magnitudes below 2**-8 have t in 2**-53, the rest in 2**-29.
    """
    field = np.maximum(magnitude >> np.uint32(23), np.uint32(1)).astype(np.int32)
    significand = (magnitude & np.uint32(0x7FFFFF)) | (
        (magnitude >= np.uint32(0x800000)).astype(np.uint32) << np.uint32(23)
    )
    interval = np.searchsorted(np.asarray(_BOUNDS, like=magnitude), magnitude, side="right")
    small = magnitude < np.uint32(0x3B800000)
    unit = np.where(small, np.int32(53), np.int32(29))
    shift = field - np.int32(150) + np.take(np.asarray(_TWICE, like=magnitude), interval) + unit
    scaled = np.where(
        magnitude < np.uint32(0x2F800000),
        np.int64(0),
        significand.astype(np.int64) << np.clip(shift, 0, 31).astype(np.int64),
    )
    middle = np.take(np.asarray(_MIDDLE, like=magnitude), interval) << unit.astype(np.int64)
    return abs(scaled - middle).astype(np.uint64), -unit


def _released_place(bits: Array) -> tuple[Array, Array]:
    """(u64, i32) of |fl(fl(2 * fl(x - lo)) / delta - 1)| at float32 bits without NaN, as the released code has it."""
    magnitude, negative = bits & _MAGNITUDE, bits >= SIGN
    side = np.asarray(_BOUNDS, like=bits)
    # an interval holds its lower end: on the negative side the one nearer to 6
    upper = np.searchsorted(side, magnitude, side="right")
    lower = np.searchsorted(side, magnitude, side="left")
    zero = magnitude == np.uint32(0)
    interval = np.where(negative & ~zero, lower, upper)
    start = np.where(
        negative & ~zero,
        np.take(np.asarray(_ENDS, like=bits), interval),
        np.take(np.asarray(_STARTS, like=bits), interval),
    )
    doubled = multiply(add(bits, start), np.full_like(bits, np.uint32(0x40000000)))
    stretched = multiply(doubled, np.take(np.asarray(_STRETCH, like=bits), interval))
    t = subtract(stretched, np.full_like(bits, _ONE)) & _MAGNITUDE
    field = (t >> np.uint32(23)).astype(np.int32)
    significand = (t & np.uint32(0x7FFFFF)) | ((field > np.int32(0)).astype(np.uint32) << np.uint32(23))
    exponent = np.where(t == INF, np.int32(1000), np.maximum(field, np.int32(1)) - np.int32(150))
    return significand.astype(np.uint64), exponent


def occ(x: Array, alpha: Any = (99, 100), axis: str = "tensor") -> tuple[Array, Array, Array]:
    """Clamp outliers between two order statistics and return what was cut off (clause N25.4).

    Args:
        x: [M, K] float32, bfloat16 or uint16 (bfloat16 bits).
        alpha: the upper quantile from 1/2 to 1, a Fraction or its (numerator, denominator).
        axis: what is sorted together: the whole `tensor`, each `token` (row) or each `channel` (column).

    Returns:
        (clamped [M, K]; residual [M, K], fl(x - clamped); thresholds [2, 1], [2, M] or [2, K]) in the dtype of x.

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    require_matrix("x", x)
    if x.dtype not in (np.float32, np.uint16, BFLOAT16):
        raise DtypeError(f"x has dtype {x.dtype}; allowed are float32, bfloat16 (ml_dtypes or its uint16 bits)")
    require_choice("axis", axis, AXES)
    bits, part = own_bits(contiguous(x)), _alpha(alpha)
    keys = _keys(bits)
    limits = _thresholds(keys, part, axis)
    clamped = _clamped(keys, limits.T if axis == "token" else limits, axis)
    wide = subtract(widen(bits), widen(clamped))
    residual = wide if bits.dtype == np.uint32 else to_bfloat16(wide)
    out = OUTPUTS["float32" if bits.dtype == np.uint32 else "bfloat16"]
    return clamped.view(out), residual.view(out), _from_keys(limits).view(out)


def _alpha(alpha: Any) -> Fraction:
    """Return alpha as a rational from 1/2 to 1; ArgumentError for anything else, a float too."""
    if not isinstance(alpha, Fraction):
        parts = require_sequence("alpha", alpha, "two integers, numerator and denominator")
        if len(parts) != 2:
            raise ArgumentError(f"alpha is {shown(alpha)}; allowed are two integers, numerator and denominator")
        above, below = (require_integer("a part of alpha", part, 1) for part in parts)
        alpha = Fraction(above, below)
    if not Fraction(1, 2) <= alpha <= 1:
        raise ArgumentError(f"alpha is {shown(alpha)}; allowed are rationals from 1/2 to 1")
    return alpha


def _sign_of(bits: Array) -> Any:
    return bits.dtype.type(1 << (8 * bits.dtype.itemsize - 1))


def _keys(bits: Array) -> Array:
    """Unsigned integers in the order of the numbers: -0 below +0, and every NaN as the largest of all."""
    sign = _sign_of(bits)
    infinity = bits.dtype.type(0x7F800000 if bits.dtype.itemsize == 4 else 0x7F80)
    ordered = np.where(bits & sign != 0, ~bits, bits | sign)
    return np.where(bits & ~sign > infinity, ~bits.dtype.type(0), ordered)


def _from_keys(keys: Array) -> Array:
    """Bits of keys; that of a NaN gives the canonical one."""
    sign, most = _sign_of(keys), ~keys.dtype.type(0)
    nan = keys.dtype.type(0x7FC00000 if keys.dtype.itemsize == 4 else 0x7FC0)
    return np.where(keys == most, nan, np.where(keys & sign != 0, keys ^ sign, ~keys))


def _thresholds(keys: Array, alpha: Fraction, axis: str) -> Array:
    """Keys [2, vectors] of the order statistics; of no elements, those of -Inf and Inf."""
    vectors = keys.reshape(1, -1) if axis == "tensor" else keys if axis == "token" else keys.T
    count = vectors.shape[1]
    if not count:
        infinity = keys.dtype.type(0x7F800000 if keys.dtype.itemsize == 4 else 0x7F80)
        ends = _keys(np.array([[infinity | _sign_of(keys)], [infinity]], dtype=keys.dtype, like=keys))
        return contiguous(np.broadcast_to(ends, (2, vectors.shape[0])))
    sort = np.sort(vectors, axis=1)
    upper = min(alpha.numerator * count // alpha.denominator, count - 1)
    lower = (alpha.denominator - alpha.numerator) * count // alpha.denominator
    return np.stack([sort[:, lower], sort[:, upper]])


def _clamped(keys: Array, limits: Array, axis: str) -> Array:
    """Bits of the keys between their thresholds, [2, ...] or, by token, [..., 2]; NaN where any of the three is."""
    low, high = (limits[:, :1], limits[:, 1:]) if axis == "token" else (limits[:1], limits[1:])
    most = ~keys.dtype.type(0)
    inside = np.minimum(np.maximum(keys, low), high)
    return _from_keys(np.where((keys == most) | (low == most) | (high == most), most, inside))


def vector_scales(x: Array, axis: str = "token", rule: str = "real") -> Array:
    """Return the scale 6 / amax of each vector, with which DGE's weights and OCC's activations meet E2M1 (N25.5).

    Args:
        x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits).
        axis: `token` (rows), `channel` (columns) or `tensor`.
        rule: `real`, fl(6 / amax), or `power_of_two`, the largest power of two that is not above 6 / amax.

    Returns:
        float32 [M], [K] or [1]; 1 where amax is 0, Inf or NaN, or where the scale is beyond float32.

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    require_matrix("x", x)
    require_float_dtype("x", x)
    require_choice("axis", axis, AXES)
    require_choice("rule", rule, RULES)
    magnitude = float32_bits(contiguous(x)) & _MAGNITUDE
    vectors = {"token": magnitude, "channel": magnitude.T, "tensor": magnitude.reshape(1, -1)}[axis]
    amax = vectors.max(axis=1) if x.size else np.zeros(vectors.shape[0], dtype=np.uint32, like=magnitude)
    if rule == "real":
        found = divide(np.full_like(amax, _SIX), amax)
    else:
        exponent = np.int64(256) - (amax >> np.uint32(23)).astype(np.int64)
        exponent = exponent - (amax & np.uint32(0x7FFFFF) > np.uint32(0x400000)).astype(np.int64)
        found = (np.clip(exponent, 0, 255) << np.int64(23)).astype(np.uint32)
    usual = (amax > np.uint32(0)) & (amax < INF) & (found < INF)
    return np.where(usual, found, _ONE).astype(np.uint32).view(np.float32)
