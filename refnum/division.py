"""float32 division on bit patterns, in integers: each quotient is rounded once, to nearest even (clause N0)."""

from __future__ import annotations

import numpy as np

from .arrays import Array
from .softfloat import INF, NAN, SIGN, _bit_length, _by_chunks, _round, _split

_MAGNITUDE = np.uint32(0x7FFFFFFF)


def divide(a: Array, b: Array) -> Array:
    """Return the bits of a / b. a, b: u32 bit patterns that broadcast together; NaN is 0x7FC00000. DtypeError."""
    return _by_chunks(_divide, a, b)


def normalised(magnitude: Array) -> tuple[Array, Array]:
    """Split float32 magnitude bits (u32) into (significand u64 with its leading one at bit 23, exponent i32).

    value = significand * 2**(exponent - 150), subnormals included; zero has significand 0.
    """
    significand, exponent = _split(magnitude)
    lift = np.clip(np.int32(24) - _bit_length(significand), np.int32(0), np.int32(24))
    return significand << lift.astype(np.uint64), exponent - lift


def _divide(a: Array, b: Array) -> Array:
    x, y = a & _MAGNITUDE, b & _MAGNITUDE
    (left, e), (right, f) = normalised(x), normalised(y)
    right = np.maximum(right, np.uint64(1))
    wide = left << np.uint64(28)
    quotient = wide // right  # 28 or 29 bits, and one more for all that is left over
    word = (quotient << np.uint64(1)) | (quotient * right != wide).astype(np.uint64)
    magnitude = _round(word, e - f - np.int32(29))
    magnitude = np.where((x == INF) | (y == np.uint32(0)), INF, np.where(y == INF, np.uint32(0), magnitude))
    both = ((x == INF) & (y == INF)) | ((x == np.uint32(0)) & (y == np.uint32(0)))
    invalid = (x > INF) | (y > INF) | both
    return np.where(invalid, NAN, magnitude | ((a ^ b) & SIGN))
