"""One value: codes, rounding by distance, and the IEEE binary formats (clauses N1 and N2)."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import cache
from operator import itemgetter

from ..errors import ArgumentError, ProfileError
from .tables import NAN, NEG_INF, NEG_ZERO, POS_INF, TABLES, Exact, Table

_TWO = Fraction(2)
_FLOATS = {"float32": (8, 23), "bfloat16": (8, 7), "float16": (5, 10)}
"""Name -> exponent and fraction bits of the IEEE binary formats that hold inputs and outputs."""


def _table(name: str) -> Table:
    if name not in TABLES:
        raise ProfileError(f"format {name!r} has no value table; the oracle knows {', '.join(TABLES)}")
    return TABLES[name]


def number(value: Exact) -> Fraction:
    """The rational of a finite exact value."""
    if isinstance(value, Fraction):
        return value
    return Fraction(0) if value == NEG_ZERO else Fraction(value)


def is_finite(value: Exact) -> bool:
    """Whether an exact value is a number."""
    return isinstance(value, Fraction) or value == NEG_ZERO


def is_negative(value: Exact) -> bool:
    """Whether an exact value carries a minus sign, zero included."""
    return value < 0 if isinstance(value, Fraction) else value in (NEG_ZERO, NEG_INF)


def decode(name: str, code: int, signed_zero: bool = False) -> Exact:
    """Return the exact value of one code (N1); -0 is Fraction(0), or '-0' when `signed_zero`."""
    table = _table(name)
    if not 0 <= code < len(table.values):
        raise ArgumentError(f"code {code} is no code of {name}; allowed are 0..{len(table.values) - 1}")
    value = table.values[code]
    return Fraction(0) if value == NEG_ZERO and not signed_zero else value


@cache
def _candidates(name: str, minus: bool) -> tuple[tuple[Fraction, int], ...]:
    """Every (magnitude, code) that a value of this sign may be rounded to, ascending."""
    table, found = _table(name), []
    for code, value in enumerate(table.values):
        if not is_finite(value) or (table.lowest is not None and number(value) < table.lowest):
            continue
        zero_of_both_signs = not table.sign and value == 0
        if zero_of_both_signs or is_negative(value) == minus:
            found.append((abs(number(value)), code))
    return tuple(sorted(found))


def encode(
    name: str,
    value: Exact,
    *,
    ties: str = "even",
    overflow: str = "saturate",
    negative_zero: str = "keep",
    rounding: str = "nearest",
    rbits: int = 0,
    random_bits: int = 8,
    negative: bool | None = None,
) -> int:
    """Return the code of one exact value (N2): the nearest, by distance to the whole table.

    `negative` gives the sign of a zero given as Fraction(0) ('-0' says it by itself). NaN becomes the
    canonical NaN, or the largest positive value where the format has none. An infinity is an overflow:
    the largest value when saturating, else the format's own Inf or NaN with the sign of the value.
    Raises ProfileError for an unknown choice, and for `overflow='nan'` with a format that has neither.
    """
    table = _table(name)
    beyond = table.nan if table.inf is None else table.inf
    if overflow != "saturate" and (overflow != "nan" or beyond is None):
        raise ProfileError(f"overflow={overflow!r} does not exist in {name}; use 'saturate'")
    if isinstance(value, str) and value == NAN:
        return max(_candidates(name, False))[1] if table.nan is None else table.nan
    minus = is_negative(value) if negative is None else negative
    infinite = isinstance(value, str) and value in (POS_INF, NEG_INF)
    magnitude = table.overflow if infinite else abs(number(value))
    candidates = _candidates(name, minus)
    place = bisect_right(candidates, magnitude, key=itemgetter(0))
    low, code = max(candidates[max(place - 1, 0) : place])
    high, above = min(candidates[place : place + 1], default=(table.overflow, None))
    if magnitude >= high or _goes_up(magnitude, low, high, code, minus, ties, rounding, rbits, random_bits):
        if above is not None:
            code = above
        elif overflow == "nan" and beyond is not None:
            return beyond + (table.sign if minus else 0)
    if negative_zero == "drop" and number(table.values[code]) == 0:
        return 0
    return code


def _goes_up(
    magnitude: Fraction, low: Fraction, high: Fraction, code: int, minus: bool, ties: str, rounding: str,
    rbits: int, random_bits: int,
) -> bool:  # fmt: skip
    """Whether a magnitude in [low, high), `code` the code of `low`, is rounded away from zero."""
    if rounding == "toward_zero" or magnitude == low:
        return False
    if rounding == "stochastic":
        discarded = (magnitude - low) * 2**random_bits // (high - low)
        return discarded + rbits >= 2**random_bits
    if rounding != "nearest":
        raise ProfileError(f"rounding={rounding!r} is not one of nearest, toward_zero, stochastic")
    if magnitude - low != high - magnitude:
        return magnitude - low > high - magnitude
    upward = {"even": code % 2 == 1, "away": True, "zero": False, "up": not minus, "down": minus}
    if ties not in upward:
        raise ProfileError(f"ties={ties!r} is not one of {', '.join(upward)}")
    return upward[ties]


def _widths(dtype: str) -> tuple[int, int]:
    if dtype not in _FLOATS:
        raise ArgumentError(f"dtype={dtype!r} is not one of {', '.join(_FLOATS)}")
    return _FLOATS[dtype]


def float_value(bits: int, dtype: str = "float32") -> Exact:
    """Return the exact value of the bits of a float32, bfloat16 or float16; -0 is '-0'."""
    exponent_bits, fraction_bits = _widths(dtype)
    fraction = bits % 2**fraction_bits
    field = bits // 2**fraction_bits % 2**exponent_bits
    minus = bits // 2 ** (fraction_bits + exponent_bits) % 2 == 1
    if field == 2**exponent_bits - 1:
        return NAN if fraction else NEG_INF if minus else POS_INF
    bias = 2 ** (exponent_bits - 1) - 1
    significand = fraction + (2**fraction_bits if field else 0)
    value = significand * _TWO ** (max(field, 1) - bias - fraction_bits)
    return NEG_ZERO if minus and value == 0 else -value if minus else value


def float_bits(value: Exact, dtype: str = "float32") -> int:
    """Return the bits of `value` rounded once, to nearest even, to float32, bfloat16 or float16.

    Overflow gives an infinity and NaN the canonical quiet one (float32: 0x7FC00000).
    """
    exponent_bits, fraction_bits = _widths(dtype)
    infinity = (2**exponent_bits - 1) * 2**fraction_bits
    sign = 2 ** (exponent_bits + fraction_bits) if is_negative(value) else 0
    if value == NAN:
        return infinity + 2 ** (fraction_bits - 1)
    if value in (POS_INF, NEG_INF):
        return sign + infinity
    magnitude = abs(number(value))
    if magnitude == 0:
        return sign
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = max(floor_log2(magnitude), 1 - bias)
    units = magnitude / _TWO ** (exponent - fraction_bits)
    whole = units.numerator // units.denominator
    rest = units - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    return sign + min(infinity, (exponent + bias - 1) * 2**fraction_bits + whole)


def float32_multiply(a: int, b: int) -> int:
    """Return the bits of the correctly rounded product of two float32 given as bits."""
    x, y = float_value(a), float_value(b)
    minus = is_negative(x) != is_negative(y)
    if NAN in (x, y):
        return float_bits(NAN)
    if not (is_finite(x) and is_finite(y)):
        zero = any(is_finite(v) and number(v) == 0 for v in (x, y))
        return float_bits(NAN if zero else NEG_INF if minus else POS_INF)
    product = number(x) * number(y)
    return float_bits(NEG_ZERO if product == 0 and minus else product)


def float32_add(a: int, b: int) -> int:
    """Return the bits of the correctly rounded sum of two float32 given as bits."""
    x, y = float_value(a), float_value(b)
    infinite = {v for v in (x, y) if v in (POS_INF, NEG_INF)}
    if NAN in (x, y) or len(infinite) == 2:
        return float_bits(NAN)
    if infinite:
        return float_bits(infinite.pop())
    total = number(x) + number(y)
    return float_bits(NEG_ZERO if x == y == NEG_ZERO else total)


def float32_fused(a: int, b: int, c: int) -> int:
    """Return the bits of a * b + c of three float32 given as bits, rounded once."""
    x, y, z = float_value(a), float_value(b), float_value(c)
    if not (is_finite(x) and is_finite(y)) or 0 in (number(x), number(y)):
        return float32_add(float32_multiply(a, b), c)  # the product is exact
    if not is_finite(z):
        return float32_add(0, c)
    return float_bits(number(x) * number(y) + number(z))


def floor_log2(value: Fraction) -> int:
    """Return the largest k with 2**k <= value, for value > 0."""
    k = value.numerator.bit_length() - value.denominator.bit_length()
    return k if _TWO**k <= value else k - 1
