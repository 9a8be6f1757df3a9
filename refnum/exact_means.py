"""Exact numbers, rounded once to float32: those of arguments, and the means of SAWB's clip (clauses N24, N26.1)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from .arrays import Array
from .softfloat import INF, multiply, subtract

_MAGNITUDE = np.uint32(0x7FFFFFFF)
FIRST, SECOND = np.uint32(0x4141999A), np.uint32(0x41433333)
"""fl(12.1) and fl(12.2)."""


def exact_number(value: object) -> Fraction | None:
    """Return the exact value of a finite number of Python's or NumPy's; None for anything else, a bool too."""
    try:
        if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
            return Fraction(int(value))
        if isinstance(value, (float, np.floating)):
            return Fraction(*value.as_integer_ratio())
    except (OverflowError, ValueError):  # an Inf, a NaN
        return None
    return value if isinstance(value, Fraction) else None


def nearest_bits(value: Fraction) -> int:
    """float32 bits of a number that is not negative, to nearest even; beyond the largest Inf."""
    if value == 0:
        return 0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > value
    field = max(exponent, -126)
    units = value / Fraction(2) ** (field - 23)
    whole, rest = divmod(units.numerator, units.denominator)
    whole += 2 * rest > units.denominator or (2 * rest == units.denominator and whole & 1)
    return min(((field + 126) << 23) + whole, int(INF))


def root_bits(bits: int) -> int:
    """float32 bits of the square root of a float32 that is not negative, to nearest even; Inf stays."""
    if bits in (0, int(INF)):
        return bits
    field = max(bits >> 23, 1)
    significand, exponent = (bits & 0x7FFFFF) | (0x800000 if bits >> 23 else 0), field - 150
    shift = 60 + (exponent & 1)
    word = significand << shift
    root = math.isqrt(word)  # of 42 bits at least
    exact = Fraction(2 * root + (root * root != word), 2)  # a half unit for all that is left over
    return nearest_bits(exact * Fraction(2) ** ((exponent - shift) // 2))


def _sums(bits: Array) -> tuple[Fraction, Fraction, int]:
    """The exact sum of squares and of magnitudes of the finite elements, and their number."""
    magnitude = bits.reshape(-1) & _MAGNITUDE
    magnitude = magnitude[magnitude < INF]
    fields = np.maximum(magnitude >> np.uint32(23), np.uint32(1))
    significand = (magnitude & np.uint32(0x7FFFFF)) | ((magnitude > np.uint32(0x7FFFFF)) << np.uint32(23))
    squares = plain = Fraction(0)
    fields = fields.astype(np.int32)
    for field in range(int(fields.min()), int(fields.max()) + 1) if magnitude.size else ():
        part = significand[fields == np.int32(field)].astype(np.uint64)
        high, low = part >> np.uint64(12), part & np.uint64(0xFFF)
        square = (int((high * high).sum()) << 24) + (int((high * low).sum()) << 13) + int((low * low).sum())
        squares += square * Fraction(2) ** (2 * field - 300)
        plain += int(part.sum()) * Fraction(2) ** (field - 150)
    return squares, plain, int(magnitude.size)


def clip_bits(bits: Array) -> int:
    """float32 bits of the clip: fl(fl(12.1 r) - fl(12.2 a)), or the largest magnitude where that is not positive."""
    squares, plain, count = _sums(bits)
    if not count:
        return 0
    root, mean = root_bits(nearest_bits(squares / count)), nearest_bits(plain / count)
    parts = [multiply(np.array([number], np.uint32), np.array([part], np.uint32))
             for number, part in ((root, FIRST), (mean, SECOND))]  # fmt: skip
    found = int(subtract(*parts)[0])
    if 0 < found < int(INF):
        return found
    magnitude = bits & _MAGNITUDE
    return int(np.where(magnitude < INF, magnitude, np.uint32(0)).max())
