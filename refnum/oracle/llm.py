"""LLM-FP4 and LLM-QAT by exact rationals, logarithms by decimals of 70 digits (clauses N26.7 and N26.8)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

from .matrices import Codes, Matrix
from .nvfp4 import float32_divide
from .tables import NAN, NEG_INF, POS_INF, Exact
from .values import float32_add, float32_multiply, float_bits, float_value, floor_log2, is_finite, is_negative, number

_DIGITS = 70


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


@cache
def log2_float(value: Fraction) -> int:
    """The bits of log2 of a positive rational, to float32: decimals of 70 digits lie beside no middle of two."""
    if value == Fraction(2) ** floor_log2(value):
        return float_bits(Fraction(floor_log2(value)))
    with localcontext(prec=_DIGITS):
        return float_bits(Fraction(_decimal(value).ln() / Decimal(2).ln()))


@cache
def power_float(value: Fraction) -> int:
    """The bits of 2 to the power of a rational, to float32."""
    with localcontext(prec=_DIGITS):
        return float_bits(Fraction((_decimal(value) * Decimal(2).ln()).exp()))


def _minus(bits: int) -> int:
    return bits ^ 2**31


def _nearest_whole(bits: int) -> int:
    value = float_value(bits)
    if not is_finite(value):
        return bits
    found = Fraction(round(number(value)))
    return float_bits("-0" if found == 0 and is_negative(value) else found)


def _one_fp4(value: Exact, top: Fraction, width: int) -> tuple[int, int]:
    """Code and bits of the value of one number."""
    mantissa = 3 - width
    if value == NAN:
        return 7, float_bits(NAN)
    bias = float32_add(float_bits(Fraction(2) ** width), _minus(log2_float(top)))
    bias = float32_add(bias, log2_float(2 - Fraction(1, 2**mantissa)))
    bias = float32_add(bias, float_bits(Fraction(-1)))
    clipped = min(abs(number(value)), top) if is_finite(value) else top
    exponent = 1
    if clipped:
        placed = number(float_value(float32_add(log2_float(clipped), bias)))
        exponent = max(placed.numerator // placed.denominator, 1)
    scale = power_float(number(float_value(float32_add(float_bits(Fraction(exponent - mantissa)), _minus(bias)))))
    quotient = number(float_value(float32_divide(float_bits(clipped), scale)))
    whole = round(quotient)
    found, minus = float32_multiply(float_bits(Fraction(whole)), scale), is_negative(value)
    code = min(whole + (exponent - 1) * 2**mantissa, 7)
    return code + 8 * minus, _minus(found) if minus else found


def llm_fp4(rows: Matrix, tops: Sequence[Fraction], width: int) -> tuple[Codes, Codes]:
    """Return (codes, bits of the values) [M, K] (N26.7); tops: one largest number, or one a row."""
    found = [[_one_fp4(value, tops[row % len(tops)], width) for value in line] for row, line in enumerate(rows)]
    return [[code for code, _ in line] for line in found], [[bits for _, bits in line] for line in found]


def _place(value: Exact) -> tuple[int, Fraction, int]:
    """A key in the order of the numbers, -0 below +0."""
    if not is_finite(value):
        return (1 if value == POS_INF else -1), Fraction(0), 0
    return 0, number(value), -1 if value == "-0" else 0


def _vector(values: Sequence[Exact], bits: int, symmetric: bool) -> list[tuple[int, int]]:
    """Whole numbers as float32 bits, and bits of the values, of one vector."""
    nan, given = float_bits(NAN), [float_bits(value) for value in values]
    spoiled = any(value == NAN for value in values)
    found = []
    if symmetric:
        sizes = [POS_INF if v in (POS_INF, NEG_INF) else abs(number(v)) for v in values if v != NAN]
        top = nan if spoiled else float_bits(max(sizes, key=_place))
        small = float_bits(Fraction(1, 10**6))
        scale = float32_divide(float_bits(Fraction(2 ** (bits - 1) - 1)), float32_add(top, small))
        for one in given:
            whole = _nearest_whole(float32_multiply(one, scale))
            found.append((whole, float32_divide(whole, float32_add(scale, small))))
        return found
    least, top = (nan, nan) if spoiled else (float_bits(f(values, key=_place)) for f in (min, max))
    spread = float32_add(float32_add(top, _minus(least)), float_bits(Fraction(1, 10**8)))
    most = float_bits(Fraction(2**bits - 1))
    for one in given:
        part = float32_divide(float32_add(one, _minus(least)), spread)
        whole = _nearest_whole(float32_multiply(part, most))
        found.append((whole, float32_add(float32_multiply(float32_divide(whole, most), spread), least)))
    return found


def llm_qat(rows: Matrix, bits: int, symmetric: bool, layerwise: bool) -> tuple[Codes, Codes]:
    """Return (codes, bits of the values) [M, K] (N26.8)."""
    if layerwise:
        whole = _vector([value for row in rows for value in row], bits, symmetric)
        starts = [sum(map(len, rows[:row])) for row in range(len(rows))]
        found = [whole[start : start + len(row)] for start, row in zip(starts, rows, strict=True)]
    else:
        found = [_vector(row, bits, symmetric) for row in rows]

    def code(whole: int) -> int:
        value = float_value(whole)
        return int(number(value)) if is_finite(value) else 0

    return [[code(whole) for whole, _ in line] for line in found], [[bits for _, bits in line] for line in found]
