"""float32 addition in 32-bit words: the bits of `softfloat.add` in less time, for chains of sums (clause N0)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arrays import Array
from .softfloat import INF, NAN, SIGN, _by_chunks, _require_bits

_MAGNITUDE, _FRACTION, _HIDDEN = np.uint32(0x7FFFFFFF), np.uint32(0x7FFFFF), np.uint32(0x800000)
_PLACE = np.uint32(23)
_FEW = 1 << 10
_GUARD = 6
"""Bits below the larger addend's last place, the last of them sticky: three suffice, for only addends of neighbouring
exponents cancel more than one leading bit, and their sum is exact."""


def add(a: Array, b: Array) -> Array:
    """Return the bits of a + b, as `softfloat.add` does. a, b: u32 bits that broadcast together. Raises DtypeError."""
    return _applied(_add, a, b)


def subtract(a: Array, b: Array) -> Array:
    """Return the bits of a - b. a, b: u32 bits that broadcast together. Raises DtypeError."""
    _require_bits("b", b)
    return add(a, b ^ SIGN)


def add_magnitudes(a: Array, b: Array) -> Array:
    """Return the bits of a + b of numbers without a sign. a, b: u32 bits that broadcast together. Raises DtypeError."""
    return _applied(_add_magnitudes, a, b)


def _applied(operation: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """Apply an elementwise operation; to few elements as they are, for to broadcast them first would take longer."""
    _require_bits("a", a)
    _require_bits("b", b)
    return operation(a, b) if max(a.size, b.size) <= _FEW else _by_chunks(operation, a, b)


def _round(word: Array, exponent: Array) -> Array:
    """float32 magnitude bits of word * 2**exponent (u32 below 2**31, i32 from -155), to nearest even."""
    # below 2**31, so that its conversion is exact; zero counts as -1022 bits
    length = (word.astype(np.float64).view(np.uint64) >> np.uint64(52)).astype(np.int32) - np.int32(1022)
    shift = np.maximum(length - np.int32(24), np.int32(-149) - exponent)  # to the right; to the left it is exact
    right = np.maximum(shift, np.int32(1)).astype(np.uint32)
    odd = (word >> right) & np.uint32(1)
    kept = (word + ((np.uint32(1) << (right - np.uint32(1))) - np.uint32(1)) + odd) >> right
    left = np.maximum(-shift, np.int32(0)).astype(np.uint32)
    kept = np.where(shift > np.int32(0), kept, word << left)
    return np.minimum(((exponent + shift + np.int32(149)).astype(np.uint32) << _PLACE) + kept, INF)


def _aligned(large: Array, small: Array) -> tuple[Array, Array, Array]:
    """(exponent field of the larger u32, its significand u32, the smaller one's at the same place), with guard bits."""
    e, f = large >> _PLACE, small >> _PLACE
    left = (large & _FRACTION) | np.where(e > np.uint32(0), _HIDDEN, np.uint32(0))
    right = ((small & _FRACTION) | np.where(f > np.uint32(0), _HIDDEN, np.uint32(0))) << np.uint32(_GUARD)
    e = np.maximum(e, np.uint32(1))
    distance = np.minimum(e - np.maximum(f, np.uint32(1)), np.uint32(31))
    aligned = right >> distance
    return e, left << np.uint32(_GUARD), aligned | ((aligned << distance) != right)


def _add_magnitudes(a: Array, b: Array) -> Array:
    large = np.maximum(a, b)
    e, left, right = _aligned(large, np.minimum(a, b))
    total = left + right
    carry = total >> np.uint32(24 + _GUARD)
    shift = carry + np.uint32(_GUARD)
    odd = (total >> shift) & np.uint32(1)
    half = np.uint32(1 << (_GUARD - 1)) << carry
    kept = (total + (half - np.uint32(1)) + odd) >> shift
    found = np.minimum(((e - np.uint32(1) + carry) << _PLACE) + kept, INF)
    return np.where(large >= INF, np.where(large > INF, NAN, INF), found)


def _add(a: Array, b: Array) -> Array:
    x, y = a & _MAGNITUDE, b & _MAGNITUDE
    large = np.maximum(x, y)
    e, left, right = _aligned(large, np.minimum(x, y))
    opposite = (a ^ b) >= SIGN
    total = np.where(opposite, left - right, left + right)
    found = _round(total, e.astype(np.int32) - np.int32(150 + _GUARD))
    # an exact zero is +0, unless both addends carry a minus
    sign = np.where(total == np.uint32(0), a & b, np.where(x >= y, a, b)) & SIGN
    if not bool((large >= INF).any()):
        return found | sign
    invalid = (large > INF) | ((x == INF) & (y == INF) & opposite)
    return np.where(invalid, NAN, np.where(large == INF, INF, found) | sign)
