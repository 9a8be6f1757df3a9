"""Base-2 logarithms and powers of float32 numbers, correctly rounded to float32 by integers (clause N26.7)."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from .exact_means import nearest_bits

_BITS = 160
"""Bits behind the point of what is worked out first; four times as many decide what these leave open."""


def _rounded(value: Fraction) -> int:
    """float32 bits of a number of either sign, to nearest even."""
    return nearest_bits(abs(value)) | (1 << 31 if value < 0 else 0)


def _value(bits: int) -> Fraction:
    return Fraction(float(np.uint32(bits).view(np.float32)))


@functools.lru_cache(maxsize=65536)
def log2_bits(bits: int) -> int:
    """float32 bits of log2 of a positive finite float32, given as bits."""
    significand, exponent = math.frexp(float(_value(bits)))
    if significand == 0.5:
        return _rounded(Fraction(exponent - 1))
    digits = _BITS
    while True:  # log2 of no other float32 is rational, so that some number of digits decides
        low, high = (exponent - 1 + part for part in _log2_between(Fraction(2 * significand), digits))
        if _rounded(low) == _rounded(high):
            return _rounded(low)
        digits *= 4


def _log2_between(value: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Two numbers around log2 of a number from 1 to 2: the square of a number has twice its logarithm."""
    unit, found = 1 << digits, 0
    low = value.numerator * unit // value.denominator
    high = low + 1
    for place in range(1, digits // 2 + 1):
        low, high, found = low * low >> digits, (high * high >> digits) + 1, 2 * found
        if low >= 2 * unit:
            low, high, found = low // 2, high // 2 + 1, found + 1
        elif high >= 2 * unit:  # on either side of 2: the next digit is open
            return Fraction(found, 1 << place), Fraction(found + 2, 1 << place)
    return Fraction(found, 1 << digits // 2), Fraction(found + 1, 1 << digits // 2)


@functools.lru_cache(maxsize=4096)
def power_bits(bits: int) -> int:
    """float32 bits of 2 to the power of a finite float32, given as bits."""
    value = _value(bits)
    whole = value.numerator // value.denominator
    fraction, digits = value - whole, _BITS
    while True:
        low, high = _power_between(fraction, digits)
        if _rounded(low * Fraction(2) ** whole) == _rounded(high * Fraction(2) ** whole):
            return _rounded(low * Fraction(2) ** whole)
        digits *= 4


def _power_between(fraction: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Two numbers around 2 to the power of a number from 0 to 1: the product of roots of 2, one for each digit."""
    low = high = root = 1 << digits
    root *= 2
    while fraction:
        root = math.isqrt(root << digits)  # too small by less than two: half of what the last one lacks, and the cut
        fraction *= 2
        if fraction >= 1:
            low, high, fraction = low * root >> digits, (high * (root + 2) >> digits) + 1, fraction - 1
    return Fraction(low, 1 << digits), Fraction(high, 1 << digits)
