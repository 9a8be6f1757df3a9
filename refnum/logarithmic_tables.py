"""The levels of radix-4 FP4 and where they begin, as float32 bits (clause N23.8)."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np

PHASES = ("even", "odd")
THRESHOLDS = {"midpoint": Fraction(5, 8), "0.4": Fraction(2, 5), "log": Fraction(1, 2)}
"""Where a level begins, as a part of it; the arithmetic middle of it and the level below is 5/8."""
LEAST_N0, MOST_N0 = -63, 57
"""The exponents of four for which all levels of both phases are normal float32 numbers."""


def _exponents(n0: int, phase: str) -> list[int]:
    """The exponents of two of the seven levels."""
    return [2 * (n0 + place) + (phase == "odd") for place in range(7)]


@functools.cache
def level_bits(n0: int, phase: str) -> np.ndarray:
    """float32 bits u32 [16] of the numbers of all codes; code 8 is -0."""
    positive = [0, *((exponent + 127) << 23 for exponent in _exponents(n0, phase))]
    return np.array(positive + [bits | 1 << 31 for bits in positive], np.uint32)


@functools.cache
def threshold_bits(n0: int, phase: str, part: Fraction) -> np.ndarray:
    """float32 bits u32 [7]: the largest number that is not above `part` of each level."""
    return np.array([_floor_bits(part * Fraction(2) ** exponent) for exponent in _exponents(n0, phase)], np.uint32)


def _floor_bits(value: Fraction) -> int:
    """Bits of the largest float32 that is not above a number of 2**-128 to 2**127."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > value
    field = max(exponent, -126)
    units = value / Fraction(2) ** (field - 23)
    return ((field + 126) << 23) + units.numerator // units.denominator
