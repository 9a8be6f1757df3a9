"""|t|**(1/k - 1) / k, rounded once to float32 or bfloat16: integers decide (clause N25.2).

A float64 estimate names a candidate. Between it and its neighbours lie odd numbers h * 2**s, and such a number is below
the power exactly where (k * h)**k * t**(k - 1) is below a power of two, which is the length of an integer. The leading
32 bits of the product give that length, or it is worked out in full where they might carry. The answer does not depend
on the host's `power`, and there is no tie: h is odd and greater than 1.
"""

from __future__ import annotations

import numpy as np

from .arrays import Array
from .softfloat import _bit_length

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
FRACTION = {"float32": 23, "bfloat16": 7}
"""Target -> bits of its fraction."""


def rounded_power(t: Array, exponent: Array, k: int, target: str) -> Array:
    """Return the bits (i32) of |t|**(1/k - 1) / k in the target format, to nearest.

    t: u64 [n] from 1 to 2**53, the number being t * 2**exponent (i32), between 2**-60 and 2**129; k: 1 to 16.
    """
    fraction = FRACTION[target]
    guess = np.ldexp(t.astype(np.float64), exponent) ** (1 / k - 1) / k
    shift = np.uint64(52 - fraction)
    word = guess.view(np.uint64) + (np.uint64(1) << (shift - np.uint64(1)))
    bits = ((word >> shift).astype(np.int64) - (896 << fraction)).astype(np.int32)
    while True:
        up = _above(bits, t, exponent, k, fraction)
        down = ~_above(bits - np.int32(1), t, exponent, k, fraction)
        if not (up | down).any():
            return bits
        bits = bits + up.astype(np.int32) - down.astype(np.int32)


def _above(bits: Array, t: Array, exponent: Array, k: int, fraction: int) -> Array:
    """Whether the power is above the middle between the target's number of these bits (i32) and the next."""
    significand = (bits & np.int32((1 << fraction) - 1)) | np.int32(1 << fraction)
    factor = (np.int32(2) * significand + np.int32(1)).astype(np.uint64) * np.uint64(k)
    place = (bits >> np.int32(fraction)) - np.int32(128 + fraction)
    # (k h 2**place)**k * (t 2**exponent)**(k - 1) < 1
    return product_length(factor, t, k) <= -(place * np.int32(k) + exponent * np.int32(k - 1))


def product_length(factor: Array, t: Array, k: int) -> Array:
    """Return the number of bits (i32) of factor**k * t**(k - 1). factor: u64 [n] below 2**29; t: as above; k: <= 16.

    A product of leading words is cut at each step. Its error stays below 3k - 3 units of 2**-31, so that the length is
    that of the cut product unless a carry of 8k units would make it longer.
    """
    first, size = _lead(factor)
    other, other_size = _lead(t)
    word, length = first, size
    for each, bits in [(first, size)] * (k - 1) + [(other, other_size)] * (k - 1):
        wide = word * each
        top = wide >> np.uint64(63)
        word = wide >> (np.uint64(31) + top)
        length = length + bits - np.int32(1) + top.astype(np.int32)
    doubtful = np.flatnonzero(word >= np.uint64((1 << 32) - 8 * k))
    if doubtful.size:
        length[doubtful] = whole_length(factor[doubtful], t[doubtful], k)
    return length


def _lead(x: Array) -> tuple[Array, Array]:
    """(the leading 32 bits of integers as u64, the first of them set; number of their bits, i32)."""
    length = _bit_length(x)
    left = np.clip(np.int32(32) - length, 0, 32).astype(np.uint64)
    right = np.clip(length - np.int32(32), 0, 32).astype(np.uint64)
    return (x << left) >> right, length


def whole_length(factor: Array, t: Array, k: int) -> Array:
    """Return what `product_length` does, by the whole product in limbs of 32 bits from the lowest."""
    limbs = [factor]
    for _ in range(k - 1):
        limbs = _times(limbs, factor)
    for _ in range(k - 1):
        nothing = np.zeros_like(t)
        limbs = _plus([*_times(limbs, t & _LOW), nothing], [nothing, *_times(limbs, t >> _HALF)])
    found = np.zeros(t.shape, dtype=np.int32, like=t)
    for place, limb in enumerate(limbs):
        found = np.where(limb != np.uint64(0), _bit_length(limb) + np.int32(32 * place), found)
    return found


def _times(limbs: list[Array], factor: Array) -> list[Array]:
    """Multiply integers in limbs by integers below 2**32."""
    out, carry = [], np.zeros_like(factor)
    for limb in limbs:
        part = limb * factor + carry
        out.append(part & _LOW)
        carry = part >> _HALF
    return [*out, carry]


def _plus(a: list[Array], b: list[Array]) -> list[Array]:
    """Add integers of as many limbs; the sum must need no more."""
    out, carry = [], np.zeros_like(a[0])
    for left, right in zip(a, b, strict=True):
        part = left + right + carry
        out.append(part & _LOW)
        carry = part >> _HALF
    return out
