"""What TetraJet and TetraJet-v2 do about oscillating weights: averages, distances, periods, predicates (clause N24).

Every step is one float32 operation to nearest even on bit patterns; a sum of squares is exact and rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from .arguments import require_integer
from .arrays import (
    Array,
    contiguous,
    float32_bits,
    require_array,
    require_float,
    require_float_dtype,
    spread,
    unpack_nibbles,
)  # fmt: skip
from .codec import decode_table
from .division import divide, normalised
from .errors import ArgumentError, DtypeError, ShapeError, shown
from .exact_means import exact_number, nearest_bits
from .formats import E2M1
from .softfloat import INF, add, multiply, subtract
from .tetrajet_v2 import BLOCK_V2, _require_scales, scale_products

MOST_STEPS = (1 << 31) - 1
CHANNELS = 128
"""Channels are chosen in runs of so many."""
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_ONE, _EPSILON = np.uint32(0x3F800000), np.uint32(0x322BCC77)
"""1, and float32's nearest to 1e-8."""
_WIDTHS = np.array([0.5, 0.5, 0.5, 0.5, 0.75, 1, 1.5, 2], np.float32).view(np.uint32)
"""Width of the bin of each E2M1 magnitude."""


def ema_update(ema: Array, w: Array, beta: float = 0.998) -> Array:
    """Return the running average after one step: fl(fl(beta * ema) + fl(fl(1 - beta) * w)) (clause N24.8).

    ema: float32 of any shape; w: the weights, in that shape, of any float dtype that widens to float32 exactly; beta: a
    number from 0 to 1, rounded once to float32. Returns float32. Raises DtypeError, ShapeError, ArgumentError.
    """
    old, new = _pair("ema", ema, "w", w)
    decay = np.asarray(_number("beta", beta, 0, 1), like=old)
    left = subtract(np.full_like(decay, _ONE), decay)
    return add(multiply(old, decay), multiply(new, left)).view(np.float32)


def distance_update(distance: Array, before: Array, after: Array) -> Array:
    """Return a weight's distance after one more step: fl(distance + |fl(after - before)|) (clause N24.9).

    distance: float32 of any shape; before, after: in that shape, of any float dtype that widens to float32 exactly.
    Returns float32. Raises DtypeError, ShapeError.
    """
    so_far, first = _pair("distance", distance, "before", before)
    _, last = _pair("distance", distance, "after", after)
    return add(so_far, subtract(last, first) & _MAGNITUDE).view(np.float32)


def q_ramping(dist_w: Array, dist_q: Array, alpha: Any = (16, 1), beta: int = 5, most: int = MOST_STEPS) -> Array:
    """Return after how many steps each weight is updated, Q-Ramping (clause N24.9).

    dist_w, dist_q: float32 of one shape, the distances of the weights and of the quantised weights; alpha: a positive
    number, or its (numerator, denominator), rounded once to float32; beta: an integer of at least 0; most: the largest
    period, the steps of an epoch.
    Returns int32: min(beta * floor(fl(dist_q / alpha) / fl(dist_w + 1e-8)) + 1, most), the quotient exact; 1 where it
    is no number or negative. Raises DtypeError, ShapeError, ArgumentError.
    """
    walked, jumped = _pair("dist_w", dist_w, "dist_q", dist_q, float32=True)
    beta, most = require_integer("beta", beta, 0, MOST_STEPS), require_integer("most", most, 1, MOST_STEPS)
    above = divide(jumped, np.asarray(_number("alpha", alpha), like=jumped))
    below = add(walked, np.full_like(walked, _EPSILON))
    quotient = _floor_quotient(above, below)
    # a quotient that is too large for the product is too large for `most` too
    period = quotient * np.int64(beta) + np.int64(1)
    return np.minimum(period, np.int64(most)).astype(np.int32)


def _floor_quotient(a: Array, b: Array) -> Array:
    """Floor (i64, at most 2**31) of the exact quotient of float32 (u32); 0 where it is negative or no number."""
    (left, e), (right, f) = normalised(a & _MAGNITUDE), normalised(b & _MAGNITUDE)
    distance = e - f
    up = np.clip(distance, np.int32(0), np.int32(33)).astype(np.uint64)
    down = np.clip(-distance, np.int32(0), np.int32(32)).astype(np.uint64)
    found = (left << up) // np.maximum(right << down, np.uint64(1))
    large = (a == INF) | (b == np.uint32(0))
    found = np.where(large, np.uint64(1 << 31), np.minimum(found, np.uint64(1 << 31)))
    none = (a == np.uint32(0)) | (a > INF) | (b >= INF)
    return np.where(none, np.uint64(0), found).astype(np.int64)


def ramping_step(total: Array, count: Array, grad: Array, period: Array) -> tuple[Array, Array, Array, Array]:
    """Accumulate a gradient and say where a weight is updated, Q-Ramping (clause N24.10).

    total: float32, the sum of gradients so far; count: integers, the steps since it was empty; grad: the gradient, of
    any float dtype that widens to float32 exactly; period: integers of at least 1, as `q_ramping` gives them; all of
    one shape.
    Returns (total float32, count int32, due bool, mean float32): where due, count is a multiple of period, mean is
    fl(total / fl(count)), and total and count begin anew at 0; elsewhere mean is 0. A gradient with a NaN or an Inf
    adds nothing to any total. Raises DtypeError, ShapeError, ArgumentError.
    """
    so_far, more = _pair("total", total, "grad", grad)
    count = _counts("count", count, so_far.shape, 0, MOST_STEPS - 1)
    period = _counts("period", period, so_far.shape, 1, MOST_STEPS)
    finite = not bool(((more & _MAGNITUDE) >= INF).any())
    summed = add(so_far, more) if finite else so_far
    steps = count + np.int32(1)
    due = steps % period == np.int32(0)
    whole = steps.astype(np.float64).astype(np.float32).view(np.uint32)
    mean = np.where(due, divide(summed, whole), np.uint32(0))
    rest = np.where(due, np.uint32(0), summed)
    return rest.view(np.float32), np.where(due, np.int32(0), steps), due, mean.view(np.float32)


def osci_reset(w: Array, packed: Array, scales: Array, outer: Array, threshold: Any = (495, 1000)) -> Array:
    """Say which weights lie near the edge of the bin that they were rounded into, OsciReset (clause N24.14).

    w: [M, K] of any float dtype that widens to float32 exactly; packed, scales, outer: as `quantize_tetrajet_v2` gives
    them for w. threshold: a number, or its (numerator, denominator), rounded once to float32. A weight is near an edge
    where |fl(fl(w / s) - q)| is more than fl(threshold * width), s the product of its scales, q the number of its code
    and width that of q's bin.
    Returns bool [M, K]: the weights that are set to their dequantised numbers.
    Raises DtypeError, ShapeError, ArgumentError.
    """
    require_float("w", w)
    product = spread(scale_products(*_require_scales(packed, scales, outer)), BLOCK_V2, axis=1)
    codes = unpack_nibbles(packed)
    if tuple(w.shape) != tuple(codes.shape):
        raise ShapeError(f"w has shape {tuple(w.shape)}; packed holds {tuple(codes.shape)}")
    level = np.take(np.asarray(decode_table(E2M1), like=packed), codes)
    off = subtract(divide(float32_bits(contiguous(w)), product), level) & _MAGNITUDE
    widths = multiply(np.asarray(_WIDTHS, like=packed), np.asarray(_number("threshold", threshold), like=packed))
    return (off > np.take(widths, codes & np.uint8(7))) & (off <= INF)


def osci_reset_by_distance(dist_w: Array, dist_q: Array, threshold: Any = (16, 1)) -> Array:
    """Say which weights oscillate by their distances, OsciReset (clause N24.14).

    dist_w, dist_q: float32 of one shape, as `distance_update` gives them for weights and for quantised weights;
    threshold: a number, or its (numerator, denominator), rounded once to float32. Returns bool: fl(dist_q / dist_w) is
    at least the threshold, and dist_w is not 0. Raises DtypeError, ShapeError, ArgumentError.
    """
    walked, jumped = _pair("dist_w", dist_w, "dist_q", dist_q, float32=True)
    least = _number("threshold", threshold)[0]
    ratio = divide(jumped, walked)
    return ((walked & _MAGNITUDE) != np.uint32(0)) & (ratio >= least) & (ratio <= INF)


def channel_norms(x: Array) -> Array:
    """Return the Euclidean norm of each column, the sum of squares exact and its root rounded once (clause N24.15).

    x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits). Returns float32 [K]; a column with a NaN gives NaN,
    one with an Inf and no NaN gives Inf. Raises DtypeError, ShapeError.
    """
    require_float("x", x)
    magnitude = float32_bits(contiguous(x)) & _MAGNITUDE
    significand, exponent = normalised(np.where(magnitude >= INF, np.uint32(0), magnitude))
    sums = [0] * x.shape[1]
    for unit in np.unique(exponent).tolist():
        square = np.where(exponent == np.int32(unit), significand, np.uint64(0)) ** np.uint64(2)
        low, high = ((square >> np.uint64(s) & np.uint64(0xFFFFFF)).sum(axis=0).tolist() for s in (0, 24))
        for column, (less, more) in enumerate(zip(low, high, strict=True)):
            sums[column] += (less + (more << 24)) << 2 * (unit + 150)
    roots = np.array([_root_bits(total) for total in sums], np.uint32)
    top = np.asarray(magnitude.max(axis=0) if x.shape[0] else np.zeros(x.shape[1], np.uint32))
    found = np.where(top > INF, np.uint32(0x7FC00000), np.where(top == INF, INF, roots))
    return np.asarray(found, like=x).view(np.float32)


def _root_bits(total: int) -> int:
    """Float32 bits of the root of total * 2**-600, to nearest even."""
    if not total:
        return 0
    shift = max(0, 64 - total.bit_length()) + 2
    shift += shift % 2
    root = math.isqrt(total << shift)  # of at least 32 bits
    word = root << 1 | (root * root != total << shift)
    return nearest_bits(word * Fraction(2) ** (-300 - shift // 2 - 1))


def out_control(norms: Array, share: Any = (1, 10)) -> Array:
    """Say which channels keep eight bits, OutControl (clause N24.15).

    norms: float32 [..., K], the sums of a channel's norms over the recorded steps, each row by itself; share: a number
    from 0 to 1, or its (numerator, denominator), taken exactly. Of a row the floor(share * K) channels, their number
    raised to a multiple of 128 and lowered to one that is at most K, with the largest norms, of equal ones those with
    the lower index; the zeros are equal, and NaN of either sign is above every number.
    Returns bool [..., K]. Raises DtypeError, ShapeError, ArgumentError.
    """
    require_array("norms", norms)
    if norms.dtype != np.float32:
        raise DtypeError(f"norms has dtype {norms.dtype}; allowed is float32")
    if not norms.ndim:
        raise ShapeError("norms has shape (); allowed is [..., K]")
    part = _fraction("share", share)
    if not 0 <= part <= 1:
        raise ArgumentError(f"share={shown(share)}; allowed is a number from 0 to 1")
    k = norms.shape[-1]
    count = min(-(-math.floor(part * k) // CHANNELS), k // CHANNELS) * CHANNELS
    if not count:
        return np.zeros(norms.shape, dtype=bool, like=norms)
    bits = contiguous(norms).view(np.uint32).astype(np.int64)
    order = np.where(bits >= np.int64(1 << 31), np.int64(1 << 31) - bits, bits)  # as the numbers are ordered
    order = np.where((bits & np.int64(0x7FFFFFFF)) > np.int64(0x7F800000), np.int64(1 << 32), order)
    least = np.sort(order)[..., k - count : k - count + 1]  # of those that are chosen
    above, equal = order > least, order == least
    room = np.int64(count) - above.sum(axis=-1, keepdims=True)
    return above | (equal & (np.cumsum(equal, axis=-1) <= room))


def _fraction(name: str, value: Any) -> Fraction:
    """The exact value of a number, or of a (numerator, denominator)."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ArgumentError(f"{name}={shown(value)}; allowed are a number, or its numerator and denominator")
        above, below = (require_integer(f"a part of {name}", part, least) for least, part in enumerate(value))
        return Fraction(above, below)
    exact = exact_number(value)
    if exact is None:
        raise ArgumentError(f"{name}={shown(value)}; allowed is a finite number")
    return exact


def _number(name: str, value: Any, least: int | None = None, most: int | None = None) -> Array:
    """Bits u32 [1] of a positive number, or one from `least` to `most`, rounded once to float32."""
    exact = _fraction(name, value)
    if (exact <= 0 if least is None else exact < least) or (most is not None and exact > most):
        allowed = "positive numbers" if least is None else f"numbers from {least} to {most}"
        raise ArgumentError(f"{name}={shown(value)}; allowed are {allowed}")
    bits = nearest_bits(exact)
    if not exact == 0 and not 0 < bits < int(INF):
        raise ArgumentError(f"{name}={shown(value)}; allowed are numbers that float32 does not round to 0 or Inf")
    return np.array([bits], np.uint32)


def _pair(first: str, a: Array, second: str, b: Array, float32: bool = False) -> tuple[Array, Array]:
    """Float32 bits u32 of two arrays of one shape, the first of them float32, or both."""
    for name, part, strict in ((first, a, True), (second, b, float32)):
        require_array(name, part)
        if strict and part.dtype != np.float32:
            raise DtypeError(f"{name} has dtype {part.dtype}; allowed is float32")
    require_float_dtype(second, b)
    if tuple(a.shape) != tuple(b.shape):
        raise ShapeError(f"{second} has shape {tuple(b.shape)}; allowed is that of {first}, {tuple(a.shape)}")
    return contiguous(a).view(np.uint32).reshape(a.shape), float32_bits(contiguous(b)).reshape(b.shape)


def _counts(name: str, part: Array, shape: tuple[int, ...], least: int, most: int) -> Array:
    """Integers of a shape, from `least` to `most`, as int32."""
    require_array(name, part)
    if part.dtype.kind not in "iu":
        raise DtypeError(f"{name} has dtype {part.dtype}; allowed are integers")
    if tuple(part.shape) != tuple(shape):
        raise ShapeError(f"{name} has shape {tuple(part.shape)}; allowed is that of total, {tuple(shape)}")
    if part.size and not least <= int(part.min()) <= int(part.max()) <= most:
        raise ArgumentError(f"{name} holds {int(part.min())} to {int(part.max())}; allowed are {least} to {most}")
    return part.astype(np.int32)
