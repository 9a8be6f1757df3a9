"""float32 square roots on bit patterns: each root is rounded once, to nearest even, and integers decide (clause N0)."""

from __future__ import annotations

import numpy as np

from .arrays import Array
from .division import normalised
from .softfloat import INF, NAN, SIGN, _by_chunks, _round

_MAGNITUDE = np.uint32(0x7FFFFFFF)


def square_root(a: Array) -> Array:
    """Return the bits of the root of a, u32 bit patterns: NaN (0x7FC00000) below zero, and -0 of -0. DtypeError."""
    return _by_chunks(_square_root, a)


def _square_root(a: Array) -> Array:
    significand, exponent = normalised(a & _MAGNITUDE)
    odd = exponent & np.int32(1)
    square = significand << (odd + np.int32(28)).astype(np.uint64)  # 52 or 53 bits and an even exponent
    # the whole part of the float64 root is exact for all 2^24 of these squares (a test counts them)
    root = np.sqrt(square.astype(np.float64)).astype(np.uint64)
    word = (root << np.uint64(1)) | (root * root != square).astype(np.uint64)
    found = _round(word, ((exponent - odd) >> np.int32(1)) - np.int32(90))
    found = np.where((a & _MAGNITUDE == np.uint32(0)) | (a == INF), a, found)
    return np.where((a > INF) & (a != SIGN), NAN, found)
