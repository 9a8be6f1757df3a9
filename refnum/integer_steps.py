"""Steps that integer quantisers share, on float32 bits: extremes of groups, whole numbers, the way back (N26)."""

from __future__ import annotations

import numpy as np

from .arrays import Array, contiguous, require_array, require_below, require_codes
from .errors import DtypeError, ShapeError
from .softfloat import INF, SIGN, _by_chunks, multiply, subtract

_MAGNITUDE, _WHOLE = np.uint32(0x7FFFFFFF), np.uint32(0x4B000000)
"""2**23, from which on all float32 numbers are whole."""


def rounded(bits: Array) -> Array:
    """The whole float32 number nearest to each, ties to even, with its sign."""
    return _by_chunks(_rounded, bits)


def _rounded(bits: Array) -> Array:
    magnitude = bits & _MAGNITUDE
    down = np.clip(np.int32(150) - (magnitude >> np.uint32(23)).astype(np.int32), np.int32(1), np.int32(25))
    down = down.astype(np.uint32)
    significand = (magnitude & np.uint32(0x7FFFFF)) | np.uint32(0x800000)  # 25 places drop it, with a false lead too
    odd = (significand >> down) & np.uint32(1)
    whole = (significand + (np.uint32(1) << (down - np.uint32(1))) - np.uint32(1) + odd) >> down
    exact = whole.astype(np.float32).view(np.uint32)  # at most 2**23
    return np.where(magnitude < _WHOLE, exact, magnitude) | (bits & SIGN)


def _ordered(bits: Array) -> Array:
    """Numbers as u32 in their order, -0 as +0."""
    plain = np.where(bits == SIGN, np.uint32(0), bits)
    return np.where(plain >= SIGN, ~plain, plain | SIGN)


def _back(ordered: Array) -> Array:
    return np.where(ordered >= SIGN, ordered ^ SIGN, ~ordered)


def largest(bits: Array) -> Array:
    """The largest element along the last axis; NaN does not count, and where nothing counts it is 0."""
    counts = (bits & _MAGNITUDE) <= INF
    found = np.where(counts, _ordered(bits), np.uint32(0)).max(axis=-1)
    return np.where(found == np.uint32(0), np.uint32(0), _back(found))


def smallest(bits: Array) -> Array:
    """The smallest element along the last axis, as `largest`."""
    found = largest(bits ^ SIGN)
    return np.where(found == np.uint32(0), found, found ^ SIGN)


def larger(bits: Array, least: np.uint32) -> Array:
    """Numbers that are not negative, but at least `least`; NaN becomes `least`."""
    return np.where(bits > INF, least, np.maximum(bits, least))


def restored(codes: Array, scales: Array, zeros: Array | None) -> Array:
    """See `refnum.integer.dequantize_int4`."""
    require_codes("codes", codes)
    require_below("codes", codes, 4, "codes of INT4")
    m, k = codes.shape
    require_array("scales", scales)
    if scales.dtype != np.float32:
        raise DtypeError(f"scales has dtype {scales.dtype}; allowed is float32")
    one = tuple(scales.shape) == (1,)
    if not one and (scales.ndim != 2 or scales.shape[0] != m or not scales.shape[1] or k % scales.shape[1]):
        raise ShapeError(f"scales has shape {tuple(scales.shape)}; allowed are (1,) and [{m}, G], G a divisor of {k}")
    groups = 1 if one else scales.shape[1]
    wide = contiguous(scales).view(np.uint32).reshape(1 if one else m, groups, 1)
    number = _numbers(codes, signed=zeros is None).reshape(m, groups, k // groups)
    if zeros is not None:
        require_array("zeros", zeros)
        if tuple(zeros.shape) != tuple(scales.shape) or zeros.dtype not in (np.uint8, np.float32):
            raise ShapeError(
                f"zeros is {zeros.dtype} {tuple(zeros.shape)}; allowed are uint8 and float32 of the scales' shape"
            )
        place = contiguous(zeros.astype(np.float32)).view(np.uint32).reshape(wide.shape)
        number = subtract(number, place)
    return multiply(number, wide).reshape(m, k).view(np.float32)


def _numbers(codes: Array, signed: bool) -> Array:
    """float32 bits of codes of four bits (u8): two's complement, or 0..15."""
    table = np.arange(16, dtype=np.int64) - (16 * (np.arange(16) >= 8) if signed else 0)
    bits = table.astype(np.float32).view(np.uint32)
    return np.take(np.asarray(bits, like=codes), codes)
