"""float32 arithmetic on bit patterns, in integers: each result is rounded once, to nearest even (clause N0).

A host whose FTZ, DAZ or rounding mode was changed computes the same bits. Subnormals are kept in and out, the
sign of zero follows IEEE 754, overflow gives an infinity, and every NaN that comes out is 0x7FC00000.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arrays import CHUNK, Array, empty, is_host, require_array
from .errors import DtypeError

NAN = np.uint32(0x7FC00000)
INF = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
_MAGNITUDE, _FRACTION, _HIDDEN = np.uint32(0x7FFFFFFF), np.uint32(0x7FFFFF), np.uint32(0x800000)
_GUARD = 27
"""Bits below the larger addend's last place: more than a float32 holds, so that one sticky bit suffices."""


def multiply(a: Array, b: Array) -> Array:
    """Return the bits of a * b. a, b: u32 bit patterns that broadcast together. Raises DtypeError."""
    return _by_chunks(_multiply, a, b)


def add(a: Array, b: Array) -> Array:
    """Return the bits of a + b. a, b: u32 bit patterns that broadcast together. Raises DtypeError."""
    return _by_chunks(_add, a, b)


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return the bits of a * b + c, rounded once. a, b, c: u32 bit patterns that broadcast together. DtypeError."""
    return _by_chunks(_multiply_add, a, b, c)


def subtract(a: Array, b: Array) -> Array:
    """Return the bits of a - b. a, b: u32 bit patterns that broadcast together. Raises DtypeError."""
    _require_bits("b", b)
    return add(a, b ^ SIGN)


def negate(a: Array) -> Array:
    """Return the bits of -a; a NaN becomes 0x7FC00000. a: u32 bit patterns. Raises DtypeError."""
    _require_bits("a", a)
    return np.where((a & _MAGNITUDE) > INF, NAN, a ^ SIGN)


def from_bfloat16(bits: Array) -> Array:
    """Return the float32 bits (u32) of bfloat16 bits (u16): exact; a NaN keeps its sign and payload."""
    require_array("bits", bits)
    if bits.dtype != np.uint16:
        raise DtypeError(f"bits has dtype {bits.dtype}; allowed is uint16, the bits of bfloat16")
    return bits.astype(np.uint32) << np.uint32(16)


def from_float16(bits: Array) -> Array:
    """Return the float32 bits (u32) of float16 bits (u16): exact; NaN becomes 0x7FC00000."""
    require_array("bits", bits)
    if bits.dtype != np.uint16:
        raise DtypeError(f"bits has dtype {bits.dtype}; allowed is uint16, the bits of float16")
    wide = bits.astype(np.uint32)
    magnitude = wide & np.uint32(0x7FFF)
    # the fraction and the exponent field in float32's places: a float32 that is 2**112 times too small
    small = magnitude << np.uint32(13)
    rescaled = _multiply(small, np.full_like(small, np.uint32((112 + 127) << 23)))
    special = np.where(magnitude > np.uint32(0x7C00), NAN, INF)
    out = np.where(magnitude < np.uint32(0x7C00), rescaled, special)
    return np.where(out == NAN, out, out | ((wide & np.uint32(0x8000)) << np.uint32(16)))


def to_bfloat16(bits: Array) -> Array:
    """Return the bfloat16 bits (u16) of float32 bits (u32), to nearest even; NaN becomes 0x7FC0."""
    _require_bits("bits", bits)
    upper = bits >> np.uint32(16)
    odd = upper & np.uint32(1)
    rounded = upper + (((bits & np.uint32(0xFFFF)) + (np.uint32(0x7FFF) + odd)) >> np.uint32(16))
    return np.where((bits & _MAGNITUDE) > INF, np.uint32(0x7FC0), rounded).astype(np.uint16)


def _require_bits(name: str, x: Array) -> None:
    if isinstance(x, np.uint32):
        return
    require_array(name, x)
    if x.dtype != np.uint32:
        raise DtypeError(f"{name} has dtype {x.dtype}; allowed is uint32, the bits of float32: use .view(np.uint32)")


def _by_chunks(operation: Callable[..., Array], *operands: Array) -> Array:
    """Apply an elementwise operation; on the host in pieces whose temporaries stay in the cache."""
    for name, x in zip("abc", operands, strict=False):
        _require_bits(name, x)
    operands = np.broadcast_arrays(*operands)
    a = operands[0]
    if not is_host(a) or a.size <= CHUNK:
        return operation(*operands)
    out = empty(a.shape, np.uint32, a)
    flat, given = out.ravel(), [x.ravel() for x in operands]
    for start in range(0, a.size, CHUNK):
        part = slice(start, start + CHUNK)
        flat[part] = operation(*(x[part] for x in given))
    return out


def _split(bits: Array) -> tuple[Array, Array]:
    """(significand u64, exponent field i32 not below 1): value = significand * 2**(exponent - 150)."""
    field = (bits >> np.uint32(23)) & np.uint32(255)
    hidden = np.where(field != np.uint32(0), _HIDDEN, np.uint32(0))
    exponent = np.maximum(field, np.uint32(1)).astype(np.int32)
    return ((bits & _FRACTION) | hidden).astype(np.uint64), exponent


def _bit_length(word: Array) -> Array:
    """Number of bits (i32) of integers (u64) below 2**53; zero counts as -1022, below any float32.

    Their conversion to float64 is exact and normal, whatever the host's rounding or flushing mode.
    """
    return (word.astype(np.float64).view(np.uint64) >> np.uint64(52)).astype(np.int32) - np.int32(1022)


def _round(word: Array, exponent: Array) -> Array:
    """float32 magnitude bits of word * 2**exponent (u64 below 2**53, i32), to nearest even."""
    length = _bit_length(word)
    # keep 24 bits, or as many as reach down to 2**-149
    shift = np.maximum(length - np.int32(24), np.int32(-149) - exponent)
    place = exponent + shift + np.int32(149)  # 0 for results below the normal range
    # one more bit below the last place, so that a shift by nothing needs no case of its own
    drop = np.clip(shift + np.int32(1), np.int32(1), np.int32(60)).astype(np.uint64)
    doubled = word << np.uint64(1)
    half = np.uint64(1) << (drop - np.uint64(1))
    odd = (doubled >> drop) & np.uint64(1)
    kept = ((doubled + half - np.uint64(1) + odd) >> drop).astype(np.uint32)
    # a carry out of the kept bits moves into the exponent field by itself
    base = np.clip(place, np.int32(0), np.int32(254)).astype(np.uint32) << np.uint32(23)
    return np.minimum(base + kept, INF)


def _multiply(a: Array, b: Array) -> Array:
    x, y = a & _MAGNITUDE, b & _MAGNITUDE
    (left, e), (right, f) = _split(x), _split(y)
    magnitude = _round(left * right, e + f - np.int32(300))
    infinite = (x == INF) | (y == INF)
    invalid = (x > INF) | (y > INF) | (infinite & ((x == np.uint32(0)) | (y == np.uint32(0))))
    signed = np.where(infinite, INF, magnitude) | ((a ^ b) & SIGN)
    return np.where(invalid, NAN, signed)


def _add(a: Array, b: Array) -> Array:
    swap = (a & _MAGNITUDE) < (b & _MAGNITUDE)
    large: Array = np.where(swap, b, a)
    small: Array = np.where(swap, a, b)
    (left, e), (right, f) = _split(large & _MAGNITUDE), _split(small & _MAGNITUDE)
    left, right = left << np.uint64(_GUARD), right << np.uint64(_GUARD)
    distance = np.minimum(e - f, np.int32(60)).astype(np.uint64)
    aligned = right >> distance
    aligned = aligned | ((aligned << distance) != right).astype(np.uint64)
    opposite = ((a ^ b) & SIGN) != np.uint32(0)
    total = np.where(opposite, left - aligned, left + aligned)
    magnitude = _round(total, e - np.int32(150 + _GUARD))
    # an exact zero is +0, unless both addends carry a minus
    sign = np.where(total == np.uint64(0), a & b, large) & SIGN
    x, y = large & _MAGNITUDE, small & _MAGNITUDE
    invalid = (x > INF) | ((x == INF) & (y == INF) & opposite)
    return np.where(invalid, NAN, np.where(x == INF, INF, magnitude) | sign)


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    (left, e), (right, f), (addend, g) = (_split(x & _MAGNITUDE) for x in (a, b, c))
    product, place = left * right, e + f - np.int32(300)
    minus = (a ^ b) & SIGN
    total, sign, lowest = _sum(product, place, minus, addend, g - np.int32(150), c & SIGN)
    magnitude = _round(*_jammed(total, lowest))
    x, y, z = (v & _MAGNITUDE for v in (a, b, c))
    infinite, opposite = (x == INF) | (y == INF), minus != (c & SIGN)
    zero = (x == np.uint32(0)) | (y == np.uint32(0))
    invalid = (x > INF) | (y > INF) | (z > INF) | (infinite & (zero | ((z == INF) & opposite)))
    out = np.where(total == np.uint64(0), minus & c & SIGN, magnitude | sign)
    out = np.where(z == INF, c, np.where(infinite, INF | minus, out))
    return np.where(invalid, NAN, out)


def _sum(x: Array, i: Array, minus: Array, y: Array, j: Array, other: Array) -> tuple[Array, Array, Array]:
    """(magnitude u64, sign u32, exponent i32) of x * 2**i + y * 2**j, signs apart; x and y u64 of at most 48 bits.

    The leading ones go to bit 60. What falls out of the smaller addend leaves a sticky bit; that takes a distance of
    more than 12 places, after which a difference still has its leading one in bit 59 or 60.
    """
    places = [np.int32(61) - np.maximum(_bit_length(v), np.int32(0)) for v in (x, y)]
    (x, i), (y, j) = ((v << n.astype(np.uint64), e - n) for v, e, n in zip((x, y), (i, j), places, strict=True))
    i, j = (np.where(v == np.uint64(0), np.int32(-2000), e) for v, e in ((x, i), (y, j)))
    swap = (i < j) | ((i == j) & (x < y))
    large, small = np.where(swap, y, x), np.where(swap, x, y)
    exponent = np.maximum(i, j)
    distance = np.minimum(abs(i - j), np.int32(62)).astype(np.uint64)
    aligned = small >> distance
    aligned = aligned | ((aligned << distance) != small).astype(np.uint64)
    return np.where(minus != other, large - aligned, large + aligned), np.where(swap, other, minus), exponent


def _jammed(word: Array, exponent: Array) -> tuple[Array, Array]:
    """The same number as a word of 27 to 52 bits for `_round`; bits that are cut leave a sticky last one."""
    large, small = word >> np.uint64(52) != np.uint64(0), word >> np.uint64(26) == np.uint64(0)
    kept = word >> np.uint64(10)
    kept = kept | ((kept << np.uint64(10)) != word).astype(np.uint64)
    moved = np.where(large, np.int32(10), np.where(small, np.int32(-26), np.int32(0)))
    return np.where(large, kept, np.where(small, word << np.uint64(26), word)), exponent + moved
