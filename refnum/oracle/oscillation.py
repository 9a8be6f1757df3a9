"""Averages, distances, periods and predicates of TetraJet by exact rationals, one number at a time (clause N24)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from .nvfp4 import float32_divide
from .tables import NAN, POS_INF, Exact
from .values import decode, float32_add, float32_multiply, float_bits, float_value, floor_log2, is_finite, number

_WIDTHS = ("1/2", "1/2", "1/2", "1/2", "3/4", "1", "3/2", "2")


def _subtract(a: int, b: int) -> int:
    return float32_add(a, b ^ 2**31)


def ema_update(ema: int, w: int, beta: Fraction) -> int:
    """Return the bits of the average after a step (N24.8)."""
    decay = float_bits(beta)
    left = _subtract(float_bits(Fraction(1)), decay)
    return float32_add(float32_multiply(decay, ema), float32_multiply(left, w))


def distance_update(distance: int, before: int, after: int) -> int:
    """Return the bits of a distance after a step (N24.9)."""
    return float32_add(distance, _subtract(after, before) & 0x7FFFFFFF)


def q_ramping(dist_w: int, dist_q: int, alpha: Fraction, beta: int, most: int) -> int:
    """Return a weight's period (N24.9)."""
    above = float_value(float32_divide(dist_q, float_bits(alpha)))
    below = float_value(float32_add(dist_w, float_bits(Fraction(1, 10**8))))
    if NAN in (above, below) or not is_finite(below) or (above != POS_INF and not is_finite(above)):
        return 1
    if above == POS_INF:
        return min(most, beta * 2**31 + 1) if number(below) >= 0 else 1
    if number(above) <= 0 or number(below) < 0:
        return 1
    if number(below) == 0:
        return min(most, beta * 2**31 + 1)
    return min(most, beta * math.floor(number(above) / number(below)) + 1)


def ramping_step(total: int, count: int, grad: int, period: int, finite: bool) -> tuple[int, int, bool, int]:
    """Return the bits of a sum, its count, whether it is due, and the bits of its mean (N24.10).

    finite: whether all gradients of the tensor are.
    """
    total, count = float32_add(total, grad) if finite else total, count + 1
    if count % period:
        return total, count, False, 0
    return 0, 0, True, float32_divide(total, float_bits(Fraction(count)))


def osci_reset(w: int, factor: int, code: int, threshold: Fraction) -> bool:
    """Return whether a weight is near the edge of its bin; factor: bits of the product of its scales (N24.14)."""
    level = float_bits(decode("E2M1", code, signed_zero=True))
    off = float_value(_subtract(float32_divide(w, factor), level) & 0x7FFFFFFF)
    bound = float_value(float32_multiply(float_bits(threshold), float_bits(Fraction(_WIDTHS[code % 8]))))
    return off != NAN and (off == POS_INF or number(off) > number(bound))


def osci_reset_by_distance(dist_w: int, dist_q: int, threshold: Fraction) -> bool:
    """Return whether a weight oscillates by its distances (N24.14)."""
    ratio = float_value(float32_divide(dist_q, dist_w))
    if dist_w % 2**31 == 0 or ratio == NAN:
        return False
    return ratio == POS_INF or (is_finite(ratio) and number(ratio) >= number(float_value(float_bits(threshold))))


def norm(column: Sequence[Exact]) -> int:
    """Return the bits of a column's norm: the float32 whose neighbourhood holds the root of the sum (N24.15)."""
    if NAN in column:
        return float_bits(NAN)
    if not all(is_finite(value) for value in column):
        return float_bits(POS_INF)
    total = sum((number(value) ** 2 for value in column), Fraction(0))
    if not total:
        return 0
    low, high = 0, 0x7F800000
    while high - low > 1:  # the largest float32 whose square is at most the total
        middle = (low + high) // 2
        low, high = (middle, high) if number(float_value(middle)) ** 2 <= total else (low, middle)
    exponent = floor_log2(number(float_value(low))) if low else -149
    half = number(float_value(low)) + Fraction(2) ** (max(exponent, -126) - 24)
    return low + (half**2 < total or (half**2 == total and low % 2))


def out_control(norms: Sequence[int], share: Fraction) -> list[bool]:
    """Return which channels are kept, by sorting (N24.15)."""
    count = min((math.floor(share * len(norms)) + 127) // 128, len(norms) // 128) * 128

    def size(place: int) -> tuple[int, Fraction | float]:
        value = float_value(norms[place])
        return (1, 0) if value == NAN else (0, number(value) if is_finite(value) else float(value))

    first = sorted(sorted(range(len(norms))), key=size, reverse=True)
    chosen = set(first[:count])
    return [place in chosen for place in range(len(norms))]
