"""DGE, OCC and the scales of vectors by exact rationals, one element at a time (clause N25)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from .matrices import Codes, Matrix
from .tables import NAN, NEG_INF, NEG_ZERO, POS_INF, TABLES, Exact
from .values import float32_add, float_bits, float_value, floor_log2, is_finite, is_negative, number

_GRID = sorted({number(v) for v in TABLES["E2M1"].values if is_finite(v)})
_INFINITY = {"bfloat16": 0x7F80, "float32": 0x7F800000}


@cache
def _middle(pattern: int, target: str) -> Fraction:
    """The middle between a positive number of the format and the next."""
    return (number(float_value(pattern, target)) + number(float_value(pattern + 1, target))) / 2


@cache
def _power(t: Fraction, k: int, target: str) -> int:
    """The bits of t**(1/k - 1) / k rounded to nearest: by halving the patterns of the format."""
    above, below = t.numerator ** (k - 1), t.denominator ** (k - 1)
    least, most = 1, _INFINITY[target] - 1
    while least < most:
        pattern = (least + most) // 2
        middle = _middle(pattern, target)
        if (k * middle.numerator) ** k * above >= middle.denominator**k * below:  # (k * middle)**k * t**(k - 1) >= 1
            most = pattern
        else:
            least = pattern + 1
    return least


def _capped(t: Exact, k: int, cap: Fraction, target: str) -> int:
    top = float_bits(cap, target)
    if k == 1:
        return min(float_bits(Fraction(1), target), top)
    if not is_finite(t):
        return 0
    return top if number(t) == 0 else min(_power(number(t), k, target), top)


def _fl(x: Fraction) -> Exact:
    """The float32 nearest to a rational, or an infinity."""
    if x.numerator.bit_length() <= 24 and x.denominator <= 2**149:
        return x
    return float_value(float_bits(x))


def _released_place(x: Exact) -> Exact:
    """|fl(fl(2 * fl(x - lo)) / delta - 1)|, lo the largest value of the grid not above x, or -6."""
    if not is_finite(x):
        return POS_INF
    low = max((v for v in _GRID[:-1] if v <= number(x)), default=_GRID[0])
    delta = min(v for v in _GRID if v > low) - low
    doubled = _fl(2 * number(_fl(number(x) - low)))
    if not is_finite(doubled):
        return POS_INF
    return abs(number(_fl(number(doubled) / delta - 1)))


def derivative(
    x: Exact, k: int = 5, cap: Fraction = Fraction(3), target: str = "bfloat16", compat: str = "paper"
) -> int:
    """Return the bits of the derivative at an exact value (N25.1 to N25.3)."""
    if x == NAN:
        return float_bits(NAN, target) if compat == "paper" else 0
    if x == POS_INF or (is_finite(x) and number(x) > 6):
        return 0
    if compat == "ms-amp":
        return _capped(_released_place(x), k, cap, target)
    if x == NEG_INF or number(x) < -6:
        return 0
    low = max(v for v in _GRID[:-1] if v <= number(x))
    high = min(v for v in _GRID if v > low)
    return _capped(abs((2 * number(x) - low - high) / (high - low)), k, cap, target)


def _order(bits: int, dtype: str) -> int:
    """A number that grows with the value of a pattern: -0 below +0, and NaN above all."""
    value, half = float_value(bits, dtype), 2 ** (31 if dtype == "float32" else 15)
    if value == NAN:
        return half
    return -1 - bits % half if is_negative(value) else bits


def _thresholds(words: Sequence[int], alpha: Fraction, dtype: str) -> tuple[int, int]:
    if not words:
        return float_bits(NEG_INF, dtype), float_bits(POS_INF, dtype)
    sort = sorted(words, key=lambda bits: _order(bits, dtype))
    high = int(alpha * len(sort))
    found = sort[int((1 - alpha) * len(sort))], sort[min(high, len(sort) - 1)]
    low, top = (float_bits(float_value(bits, dtype), dtype) for bits in found)
    return low, top


def _clamped(bits: int, low: int, high: int, dtype: str) -> int:
    if NAN in {float_value(b, dtype) for b in (bits, low, high)}:
        return float_bits(NAN, dtype)
    return min(max(bits, low, key=lambda b: _order(b, dtype)), high, key=lambda b: _order(b, dtype))


def _difference(a: int, b: int, dtype: str) -> int:
    """The bits of a - b rounded once. Equal numbers differ by +0, or by -0 where -0 is taken from +0's place."""
    x, y = float_value(a, dtype), float_value(b, dtype)
    if is_finite(x) and is_finite(y):
        zeros = x == NEG_ZERO and y == 0 and y != NEG_ZERO
        return float_bits(NEG_ZERO if zeros else number(x) - number(y), dtype)
    opposite = float_bits(y, dtype) ^ (0x80000000 if dtype == "float32" else 0x8000)
    return float_bits(float_value(float32_add(float_bits(x), float_bits(float_value(opposite, dtype)))), dtype)


def occ(rows: Matrix, alpha: Fraction, axis: str, dtype: str) -> tuple[Codes, Codes, Codes]:
    """Clamp patterns [M, K] between order statistics: bits of (clamped, residual, thresholds [2, vectors]) (N25.4)."""
    columns = len(rows[0]) if rows else 0
    vectors = {
        "tensor": lambda: [[bits for row in rows for bits in row]],
        "token": lambda: rows,
        "channel": lambda: [[row[j] for row in rows] for j in range(columns)],
    }[axis]()
    limits = [_thresholds(vector, alpha, dtype) for vector in vectors]
    clamped = []
    for i, row in enumerate(rows):
        places = {"tensor": [0] * columns, "token": [i] * columns, "channel": range(columns)}[axis]
        clamped.append([_clamped(bits, *limits[place], dtype) for bits, place in zip(row, places, strict=True)])
    residual = [
        [_difference(a, b, dtype) for a, b in zip(x, y, strict=True)] for x, y in zip(rows, clamped, strict=True)
    ]
    return clamped, residual, [[low for low, _ in limits], [high for _, high in limits]]


def vector_scale(values: Sequence[Exact], rule: str) -> int:
    """Return the float32 bits of the scale of a vector, 6 over its largest magnitude (N25.5)."""
    if not all(map(is_finite, values)) or not any(map(number, values)):
        return float_bits(Fraction(1))
    ratio = 6 / max(abs(number(v)) for v in values)
    if rule == "power_of_two":
        ratio = Fraction(2) ** floor_log2(ratio)
    return float_bits(ratio) if float_bits(ratio) < _INFINITY["float32"] else float_bits(Fraction(1))
