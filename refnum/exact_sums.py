"""Exact sums of 16 float32 numbers under the signs of a Hadamard matrix, rounded once (clause N22.2).

A number is a significand at a place above the lowest one of its group. Places are cut into limbs of 36 bits, so that 16
significands, shifted by up to 35 places, add up below 2**63; a group whose numbers lie close together has one limb.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .arrays import Array
from .softfloat import _jammed, _round, _split, choose

_LIMB = 36
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_LOW = np.int64((1 << _LIMB) - 1)


class Sums(NamedTuple):
    """Exact numbers: (-1)**negative * word * 2**exponent, a last bit of the word standing for all that lies below.

    word: u64 below 2**63; it has more than 27 bits where it stands for something below. exponent: i32.
    """

    word: Array
    exponent: Array
    negative: Array


def transformed(parts: Array) -> Array:
    """Return sum_i parts[i] * (-1)**popcount(i & j) for each j of the 16 entries of the first axis."""
    shape = parts.shape
    for half in (8, 4, 2, 1):
        pairs = parts.reshape(8 // half, 2, half, -1)
        parts = np.empty_like(pairs)
        np.add(pairs[:, 0], pairs[:, 1], out=parts[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=parts[:, 1])
    return parts.reshape(shape)


def signed_sums(lanes: Array) -> Sums:
    """Sum finite float32 bits u32 [16, n] under each of the 16 sign patterns."""
    significand, exponent = _split(lanes & _MAGNITUDE)
    zero = significand == np.uint64(0)
    base = (exponent | np.int32(255) * zero).min(axis=0)
    place = np.maximum(exponent - base, np.int32(0))
    limbs = place.max(axis=0) // np.int32(_LIMB) + np.int32(1)
    minus = (lanes.view(np.int32) >> np.int32(31)).astype(np.int64)  # 0 or -1
    signed = (significand.view(np.int64) ^ minus) - minus
    wide = limbs > np.int32(1)
    if not bool(wide.any()):
        return _one_limb(signed, place, base)
    found = _one_limb(signed, np.where(wide, np.int32(0), place), base)
    for count in range(2, int(limbs.max()) + 1):  # groups of so many limbs apart from the others, which have fewer
        chosen = np.flatnonzero(limbs == np.int32(count))
        if chosen.size:
            several = _limbs(signed[:, chosen], place[:, chosen], count)
            for whole, part in zip(found, _joined(several, base[chosen] - np.int32(150)), strict=True):
                whole[:, chosen] = part
    return found


def _one_limb(signed: Array, place: Array, base: Array) -> Sums:
    """The sums of groups whose places are below a limb's."""
    total = transformed(signed << place.astype(np.int64))
    return Sums(abs(total).astype(np.uint64), np.full_like(place, base - np.int32(150)), total < np.int64(0))


def _limbs(signed: Array, place: Array, count: int) -> list[Array]:
    """The sums of groups in limbs of 36 places, i64, each below 2**63 in magnitude."""
    limb, inside = place // np.int32(_LIMB), place % np.int32(_LIMB)
    number = signed << inside.astype(np.int64)
    return [transformed(number * (limb == np.int32(n))) for n in range(count)]


def _joined(limbs: list[Array], exponent: Array) -> Sums:
    """The sum of limbs n of weight 2**(36 n + exponent), i64 below 2**63 in magnitude."""
    last = _digits(limbs)[-1]
    minus = last >> np.int64(63)  # 0 or -1
    digits = _digits([(limb ^ minus) - minus for limb in limbs])
    word = digits[-1].astype(np.uint64)
    place = np.full_like(word, _LIMB * (len(digits) - 1), dtype=np.int32)
    for n in range(len(digits) - 2, -1, -1):
        digit = digits[n].astype(np.uint64)
        more = word < np.uint64(1 << 27)
        word = choose(more, word << np.uint64(_LIMB) | digit, word | (digit != np.uint64(0)))
        place = place - np.int32(_LIMB) * more
    return Sums(word, place + exponent, last < np.int64(0))


def _digits(limbs: list[Array]) -> list[Array]:
    """Digits of the same sum in base 2**36, from 0 up but the last, which carries the sign."""
    digits, carry = [], np.zeros_like(limbs[0])
    for limb in limbs:
        total = limb + carry
        digits.append(total & _LOW)
        carry = total >> np.int64(_LIMB)
    return [*digits, carry]


def rounded(sums: Sums, power: int, bits: int) -> Array:
    """Round 2**power * sums to nearest, ties to even, with float32's exponents and so many significant bits.

    bits: 24 for float32, 8 for bfloat16. Returns the bits of that format as u32; a sum of zero is +0, one that rounds
    to zero keeps its sign, overflow gives an infinity.
    """
    magnitude = _round(*_jammed(sums.word, sums.exponent + np.int32(power)), bits)
    return magnitude | sums.negative.astype(np.uint32) << np.uint32(bits + 7)
