"""float32 arithmetic on bit patterns, in integers: each result is rounded once, to nearest even (clause N0).

A host whose FTZ, DAZ or rounding mode was changed computes the same bits. Subnormals are kept in and out, the
sign of zero follows IEEE 754, overflow gives an infinity, and every NaN that comes out is 0x7FC00000.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arrays import Array, empty, is_host, require_array
from .errors import DtypeError

NAN = np.uint32(0x7FC00000)
INF = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_NEAR_OVERFLOW = np.uint32(0x7F000000)
_NOTHING, _ONE = np.uint32(0), np.uint32(1)
_PLACE = np.uint32(23)
_TOP, _MOST_PLACES = np.uint32(31), np.uint32(31)
_DROP, _BELOW_HALF = np.uint32(7), np.uint32(63)
_WIDE_NOTHING, _WIDE_ONE = np.uint64(0), np.uint64(1)
_WIDE_PLACE, _WIDE_FRACTION = np.uint64(52), np.uint64((1 << 52) - 1)
_GUARD = np.uint32(6)
"""Bits below a larger addend's last place, the last of them sticky: three suffice, for only addends of neighbouring
exponents cancel more than one leading bit, and their sum is exact."""
_FEW = 1 << 10
"""Elements that take less time as they are than broadcast together first."""
_PART = 1 << 16
"""Elements whose temporaries stay in the cache of one processor."""


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


def add_magnitudes(a: Array, b: Array) -> Array:
    """Return the bits of a + b of numbers without a sign. a, b: u32 bits that broadcast together. Raises DtypeError."""
    return _by_chunks(_add_magnitudes, a, b)


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
    if max(x.size for x in operands) <= _FEW:
        return operation(*operands)
    operands = np.broadcast_arrays(*operands)
    a = operands[0]
    if not is_host(a) or a.size <= _PART:
        return operation(*operands)
    out = empty(a.shape, np.uint32, a)
    flat, given = out.ravel(), [x.ravel() for x in operands]
    for start in range(0, a.size, _PART):
        part = slice(start, start + _PART)
        flat[part] = operation(*(x[part] for x in given))
    return out


def _fields(magnitude: Array) -> tuple[Array, Array]:
    """(exponent field less one, not below 0, and significand), u32: magnitude = significand * 2**(field - 149)."""
    field = magnitude >> _PLACE
    field -= field != _NOTHING
    return field, magnitude - (field << _PLACE)


def _split(magnitude: Array) -> tuple[Array, Array]:
    """(significand u64, exponent field i32 not below 1): magnitude = significand * 2**(exponent - 150)."""
    field, significand = _fields(magnitude)
    return significand.astype(np.uint64), (field + _ONE).view(np.int32)


def _bit_length(word: Array) -> Array:
    """Number of bits (i32) of integers (u64) below 2**53; zero counts as -1022, below any float32.

    Their conversion to float64 is exact and normal, whatever the host's rounding or flushing mode.
    """
    return (word.astype(np.float64).view(np.uint64) >> _WIDE_PLACE).astype(np.int32) - np.int32(1022)


def _round(word: Array, exponent: Array, bits: int = 24) -> Array:
    """Magnitude bits (u32) of word * 2**exponent (u64 below 2**53, i32), to nearest even: of float32 or of bfloat16.

    bits: 24 or 8. As a float64, which is exact and normal, the word has its leading one in bit 52.
    """
    significand = word.astype(np.float64).view(np.uint64)
    field = (significand >> _WIDE_PLACE).astype(np.int32)
    field += exponent - np.int32(896)
    significand &= _WIDE_FRACTION
    significand |= _WIDE_FRACTION + _WIDE_ONE
    # keep so many bits, or as many as reach down to the last place of a subnormal; of a zero none
    drop = np.minimum(np.maximum(np.int32(54 - bits) - field, np.int32(53 - bits)), np.int32(59)).astype(np.uint64)
    below_half = _WIDE_ONE << drop - _WIDE_ONE
    below_half -= _WIDE_ONE
    below_half += significand >> drop & _WIDE_ONE
    significand += below_half
    significand >>= drop
    # a carry out of the kept bits moves into the exponent field by itself
    found = (np.maximum(field, np.int32(1)) - np.int32(1)).view(np.uint32) << np.uint32(bits - 1)
    found += significand.astype(np.uint32)
    return np.minimum(found, INF >> np.uint32(24 - bits))


def _multiply(a: Array, b: Array) -> Array:
    x, y = a & _MAGNITUDE, b & _MAGNITUDE
    (e, left), (f, right) = _fields(x), _fields(y)
    product = left.astype(np.uint64) * right
    found = _round(product, (e + f).view(np.int32) - np.int32(298)) | ((a ^ b) & SIGN)
    if not bool((np.maximum(x, y) >= INF).any()):
        return found
    infinite = (x == INF) | (y == INF)
    invalid = (x > INF) | (y > INF) | (infinite & ((x == _NOTHING) | (y == _NOTHING)))
    return np.where(invalid, NAN, np.where(infinite, INF | ((a ^ b) & SIGN), found))


def _aligned(large: Array, small: Array) -> tuple[Array, Array, Array]:
    """(field of the larger as `_fields` gives it, its significand, the smaller one's at the same place), u32, both
    significands with guard bits."""
    (field, left), (other, right) = _fields(large), _fields(small)
    left <<= _GUARD
    right <<= _GUARD
    distance = np.minimum(field - other, _MOST_PLACES)
    aligned = right >> distance
    aligned |= (aligned << distance) != right
    return field, left, aligned


def _round_sum(total: Array, lift: Array, field: Array) -> Array:
    """Magnitude bits of total * 2**(field - 155), to nearest even.

    lift: places that move the leading one to bit 30, or fewer where the result is subnormal; at most two where the last
    bit is sticky, so that it stays below the half.
    """
    word = total << lift
    below_half = word >> _DROP
    below_half &= _ONE
    below_half += _BELOW_HALF
    word += below_half
    word >>= _DROP
    found = field + _ONE
    found -= lift
    found <<= _PLACE
    found += word
    return found


def _add_magnitudes(a: Array, b: Array) -> Array:
    large = np.maximum(a, b)
    field, left, right = _aligned(large, np.minimum(a, b))
    total = left + right
    found = _round_sum(total, (total >> np.uint32(30)) ^ _ONE, field)
    if not bool((large >= _NEAR_OVERFLOW).any()):
        return found
    return np.where(large >= INF, np.where(large > INF, NAN, INF), np.minimum(found, INF))


def _add(a: Array, b: Array) -> Array:
    # the sign behind the magnitude: the larger number has the larger magnitude, or of two alike the minus
    x, y = a << _ONE | a >> _TOP, b << _ONE | b >> _TOP
    large, small = np.maximum(x, y), np.minimum(x, y)
    differ = large ^ small
    sign = (large & (differ != _ONE)) << _TOP  # an exact zero is +0, unless both addends carry a minus
    opposite = differ & _ONE
    large >>= _ONE
    small >>= _ONE
    field, total, right = _aligned(large, small)
    total += right
    right *= opposite << _ONE
    total -= right
    # below 2**31, so that its conversion is exact; zero counts as -1022 bits, and is moved by as many as may be
    length = (total.astype(np.float64).view(np.uint64) >> _WIDE_PLACE).astype(np.uint32)
    found = _round_sum(total, np.minimum(np.uint32(1022 + 31) - length, field + _ONE), field)
    if not bool((large >= _NEAR_OVERFLOW).any()):
        return found | sign
    invalid = (large > INF) | ((small == INF) & (opposite != _NOTHING))
    return np.where(invalid, NAN, np.where(large == INF, INF, np.minimum(found, INF)) | sign)


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    x, y, z = (v & _MAGNITUDE for v in (a, b, c))
    (left, e), (right, f), (addend, g) = (_split(v) for v in (x, y, z))
    minus, other = (a ^ b) & SIGN, c & SIGN
    total, sign, lowest = _sum(left * right, e + f - np.int32(300), minus, addend, g - np.int32(150), other)
    # an exact zero is +0, unless both the product and the addend carry a minus
    found = _round(*_jammed(total, lowest)) | sign * (total != _WIDE_NOTHING) | minus & other
    if not bool((np.maximum(np.maximum(x, y), z) >= INF).any()):
        return found
    infinite, opposite = (x == INF) | (y == INF), minus != other
    zero = (x == _NOTHING) | (y == _NOTHING)
    invalid = (x > INF) | (y > INF) | (z > INF) | (infinite & (zero | ((z == INF) & opposite)))
    return np.where(invalid, NAN, np.where(z == INF, c, np.where(infinite, INF | minus, found)))


def _sum(x: Array, i: Array, minus: Array, y: Array, j: Array, other: Array) -> tuple[Array, Array, Array]:
    """(magnitude u64, sign u32, exponent i32) of x * 2**i + y * 2**j, signs apart; x and y u64 of at most 48 bits.

    The leading ones go to bit 60. What falls out of the smaller addend leaves a sticky bit; that takes a distance of
    more than 12 places, after which a difference still has its leading one in bit 59 or 60.
    """
    (x, i), (y, j) = _leading(x, i), _leading(y, j)
    swap = (i < j) | ((i == j) & (x < y))
    large, small = choose(swap, y, x), choose(swap, x, y)
    exponent = np.maximum(i, j)
    distance = np.minimum(abs(i - j), np.int32(62)).astype(np.uint64)
    aligned = small >> distance
    aligned = aligned | ((aligned << distance) != small)
    opposite = (minus != other).astype(np.uint64) << _WIDE_ONE
    return large + aligned - aligned * opposite, choose(swap, other, minus), exponent


def _leading(word: Array, exponent: Array) -> tuple[Array, Array]:
    """The same number with its leading one in bit 60; zero with an exponent below any other."""
    places = np.int32(61) - np.maximum(_bit_length(word), np.int32(0))
    return word << places.astype(np.uint64), exponent - places - (word == _WIDE_NOTHING) * np.int32(2000)


def choose(condition: Array, a: Array, b: Array) -> Array:
    """np.where of unsigned words, in a quarter of its time on the host, where it branches at each item."""
    if not is_host(condition):
        return np.where(condition, a, b)
    return b ^ ((a ^ b) & -condition.astype(a.dtype))


def _jammed(word: Array, exponent: Array) -> tuple[Array, Array]:
    """The same number as a word of 27 to 52 bits for `_round`; bits that are cut leave a sticky last one."""
    down = np.uint64(10) * (word >= np.uint64(1 << 52))
    up = np.uint64(26) * (word < np.uint64(1 << 26))
    kept = word >> down
    kept = kept | ((kept << down) != word)
    return kept << up, exponent + (down - up).astype(np.int32)
