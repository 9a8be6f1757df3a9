"""The grid of an element format as exact numbers: values, midpoints and thresholds, derived from its facts only."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from refnum.formats import Format, magnitude_value


@dataclass(frozen=True)
class Point:
    """One magnitude `significand * 2**exponent`, the significand odd (or 0).

    kind: `value` (a code's value), `midpoint` (half way between two neighbouring values) or `overflow` (half
    way between the largest value and the one that the next code would have).
    """

    kind: str
    significand: int
    exponent: int

    @property
    def value(self) -> Fraction:
        """The exact magnitude."""
        return self.significand * Fraction(2) ** self.exponent


def point(kind: str, value: Fraction) -> Point:
    """Return the point of a non-negative dyadic value."""
    if value == 0:
        return Point(kind, 0, 0)
    trailing = (value.numerator & -value.numerator).bit_length() - 1
    return Point(kind, value.numerator >> trailing, trailing - (value.denominator.bit_length() - 1))


@functools.cache
def grid(fmt: Format) -> tuple[Point, ...]:
    """All values, midpoints and the overflow threshold of an element format, in increasing order."""
    values = [magnitude_value(fmt, code) for code in range(fmt.max_code + 1)]
    points = [point("value", values[0])]
    for low, high in itertools.pairwise(values):
        points += [point("midpoint", (low + high) / 2), point("value", high)]
    return (*points, point("overflow", overflow_threshold(fmt)))


def overflow_threshold(fmt: Format) -> Fraction:
    """Largest value plus half its quantum: 7 for E2M1, 464 for E4M3. Beyond it rounding would need a larger code."""
    top, below = magnitude_value(fmt, fmt.max_code), magnitude_value(fmt, fmt.max_code - 1)
    return top + (top - below) / 2


@functools.cache
def scale_thresholds(fmt: Format) -> tuple[Fraction, ...]:
    """Significands in [1, 2) of a block maximum at which some scale rule (N3) steps, for any rule and format.

    1 (floor, ceil), the significand of the largest value (rceil), the carry of `even`, and 1.5, 1.75, 1.9375:
    the steps of E2M1 and E4M3 under every rule, so that one rule taken for another always shows.
    """
    steps = {Fraction(1), Fraction(3, 2), Fraction(7, 4), Fraction(31, 16)}
    steps.add(fmt.max_value / Fraction(2) ** fmt.emax)
    width = fmt.fraction_bits if fmt.kind == "integer" else fmt.mantissa_bits
    steps.add(2 - Fraction(1, 2 << width))
    return tuple(sorted(steps))


def as_arrays(points: tuple[Point, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return (significands u32, exponents i32) of points."""
    return (np.array([p.significand for p in points], np.uint32), np.array([p.exponent for p in points], np.int32))


def walking(bits: int) -> np.ndarray:
    """Significand fractions of `bits` bits that exercise carry chains: 0, all ones, one walking 1, one walking 0,
    runs of ones from either end, and every neighbour of those; sorted, u32."""
    full = (1 << bits) - 1
    seeds = {0, full}
    for k in range(bits):
        one, low = 1 << k, (1 << k) - 1
        seeds |= {one, full ^ one, low, full ^ low, one - 1, min(one + 1, full)}
    return np.array(sorted(seeds), np.uint32)
