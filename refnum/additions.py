"""float32 addition in 32-bit words: the bits of `softfloat.add` in less time, for chains of sums (clause N0)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arrays import Array
from .softfloat import INF, NAN, SIGN, _by_chunks, _require_bits

_ONE = np.uint32(1)
_PLACE = np.uint32(23)
_FEW = 1 << 10
_GUARD = np.uint32(6)
"""Bits below the larger addend's last place, the last of them sticky: three suffice, for only addends of neighbouring
exponents cancel more than one leading bit, and their sum is exact."""
_LEADING = np.uint32(31)
"""Bits of a sum that carries, up to its leading one."""
_NEAR_OVERFLOW = np.uint32(0x7F000000)


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


def _split(magnitude: Array) -> tuple[Array, Array]:
    """(exponent field less one, not below 0, and significand), u32: magnitude = significand * 2**(field - 149)."""
    field = magnitude >> _PLACE
    field = field - (field != np.uint32(0))
    return field, magnitude - (field << _PLACE)


def _aligned(large: Array, small: Array) -> tuple[Array, Array, Array]:
    """(field of the larger as `_split` gives it, its significand, the smaller one's at the same place), u32, both
    significands with guard bits."""
    (field, left), (other, right) = _split(large), _split(small)
    right = right << _GUARD
    distance = np.clip(field - other, np.uint32(0), np.uint32(31))
    aligned = right >> distance
    return field, left << _GUARD, aligned | ((aligned << distance) != right)


def _rounded(total: Array, lift: Array, field: Array) -> Array:
    """Magnitude bits of total * 2**(field - 155), to nearest even.

    lift: places that move the leading one to bit 30, or fewer where the result is subnormal; at most two where the last
    bit is sticky, so that it stays below the half.
    """
    word = total << lift
    odd = (word >> np.uint32(7)) & _ONE
    return ((field + _ONE - lift) << _PLACE) + ((word + (np.uint32(63) + odd)) >> np.uint32(7))


def _add_magnitudes(a: Array, b: Array) -> Array:
    large = np.maximum(a, b)
    field, left, right = _aligned(large, np.minimum(a, b))
    total = left + right
    found = _rounded(total, (total >> np.uint32(30)) ^ _ONE, field)
    if not bool((large >= _NEAR_OVERFLOW).any()):
        return found
    return np.where(large >= INF, np.where(large > INF, NAN, INF), np.minimum(found, INF))


def _add(a: Array, b: Array) -> Array:
    # the sign behind the magnitude: the larger number has the larger magnitude, or of two alike the minus
    x, y = a << _ONE | a >> np.uint32(31), b << _ONE | b >> np.uint32(31)
    large, small = np.maximum(x, y), np.minimum(x, y)
    differ = large ^ small
    sign = (large & (differ != _ONE)) << np.uint32(31)  # an exact zero is +0, unless both addends carry a minus
    opposite = differ & _ONE
    large, small = large >> _ONE, small >> _ONE
    field, left, right = _aligned(large, small)
    total = left + right - right * (opposite << _ONE)
    # below 2**31, so that its conversion is exact; zero counts as -1022 bits, and is moved by as many as may be
    length = (total.astype(np.float64).view(np.uint64) >> np.uint64(52)).astype(np.uint32)
    found = _rounded(total, np.minimum(np.uint32(1022) + _LEADING - length, field + _ONE), field)
    if not bool((large >= _NEAR_OVERFLOW).any()):
        return found | sign
    invalid = (large > INF) | ((small == INF) & (opposite != np.uint32(0)))
    return np.where(invalid, NAN, np.where(large == INF, INF, np.minimum(found, INF)) | sign)
