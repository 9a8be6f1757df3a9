"""Scalars of optimisers, correctly rounded to float64 by integers: powers of rates and points of a cosine (N27.1)."""

from __future__ import annotations

import functools
from fractions import Fraction

_BITS = 256
"""Bits behind the point of what is worked out here; far more than a float64 and the errors of its steps take."""
_UNIT = 1 << _BITS


@functools.lru_cache(maxsize=4096)
def rounded_power64(base: float, power: int) -> float:
    """Return base**power rounded once to float64. base: from 0 to below 2; power: from 1.

    Both ends of an interval of 256-bit integers are squared and multiplied; where they round to different numbers, the
    exact power decides.
    """
    low = high = 1 << _BITS
    number = Fraction(base)
    factor = number.numerator * _UNIT // number.denominator  # exact above 2**-203: a float64 has 53 bits
    ceiling = -(-number.numerator * _UNIT // number.denominator)
    for digit in f"{power:b}":
        low, high = low * low >> _BITS, (high * high >> _BITS) + 1
        if digit == "1":
            low, high = low * factor >> _BITS, (high * ceiling >> _BITS) + 1
    first, last = float(Fraction(low, _UNIT)), float(Fraction(high, _UNIT))
    return first if first == last else float(number**power)


@functools.lru_cache(maxsize=4096)
def cosine_factor(place: int, length: int, falling: float | None = None) -> float:
    """Return a point of a half cosine wave, the real number rounded once to float64.

    With c = (1 + cos(pi place / (length + 1))) / 2 it is 1 - 0.99 c, from 0.01 upward, or with `falling` the number
    falling + (1 - falling) c, from 1 downward.
    """
    c = (_UNIT + _cosine(place, length + 1)) // 2
    if falling is None:
        return float(1 - Fraction(99, 100) * Fraction(c, _UNIT))
    low = Fraction(falling)
    return float(low + (1 - low) * Fraction(c, _UNIT))


def _cosine(place: int, length: int) -> int:
    """cos(pi place / length) in units of 2**-256, to some units; exact at its ends and in its middle."""
    place %= 2 * length
    place = min(place, 2 * length - place)
    if 2 * place > length:
        return -_cosine(length - place, length)
    if 2 * place == length:
        return 0
    angle = _pi() * place // length
    square, term, total, number = angle * angle >> _BITS, _UNIT, _UNIT, 0
    while term:
        number += 2
        term = (term * square >> _BITS) // (number * (number - 1))
        total += term if number % 4 == 0 else -term
    return total


@functools.cache
def _pi() -> int:
    """Pi by Machin's formula, in units of 2**-256."""
    return 4 * (4 * _arctangent(5) - _arctangent(239)) >> 32


def _arctangent(whole: int) -> int:
    """arctan(1 / whole) in units of 2**-288."""
    term, number, total = (_UNIT << 32) // whole, 1, 0
    while term:
        total += term // number if number % 4 == 1 else -(term // number)
        term, number = term // (whole * whole), number + 2
    return total
