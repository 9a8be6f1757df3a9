"""LUQ, radix 4 and the scalars beside them by exact rationals (clause N23)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from .matrices import Codes, Matrix, pack, unpack
from .nvfp4 import float32_divide
from .tables import NAN, Exact
from .values import (
    float32_add,
    float32_multiply,
    float_bits,
    float_value,
    floor_log2,
    is_finite,
    is_negative,
    number,
)

_TWO, _FOUR = Fraction(2), Fraction(4)
PARTS = {"midpoint": Fraction(5, 8), "0.4": Fraction(4, 10), "log": Fraction(1, 2)}


def _counted(value: Exact) -> Exact:
    """The magnitude of a value in a maximum: 0 for NaN."""
    if value == NAN:
        return Fraction(0)
    return abs(number(value)) if is_finite(value) else "+inf"


def _largest(rows: Matrix) -> Exact:
    found = [_counted(value) for row in rows for value in row]
    return "+inf" if "+inf" in found else max(found, default=Fraction(0))


def luq_step(amax: Exact, divisor: int, step: str) -> int:
    """Return the float32 bits of the step (N23.2)."""
    alpha = float32_divide(float_bits(_counted(amax)), float_bits(Fraction(divisor)))
    value = float_value(alpha)
    if step == "real" or not is_finite(value) or value == 0:
        return alpha
    exponent = floor_log2(number(value))
    power = _TWO**exponent
    return float_bits(power if power == value else 2 * power)


def luq_code(value: Exact, alpha: int, r_under: int, r_log: int) -> int:
    """Return the code of one element under a step given as float32 bits (N23.3 to N23.5)."""
    if value == NAN:
        return 7
    sign = 8 if is_negative(value) else 0
    if not is_finite(value):
        return sign + 7
    if number(value) == 0:
        return 0
    quotient = float_value(float32_divide(float_bits(abs(number(value))), alpha))
    if not is_finite(quotient):
        return sign + 7
    a = number(quotient)
    if a < 1:
        return sign + 1 if Fraction(r_under, 2**24) < a else 0
    exponent = floor_log2(a)
    part = a / _TWO**exponent - 1
    above = part + Fraction(r_log, 2**23) >= 1
    return sign + min(exponent + above, 6) + 1


def luq(
    rows: Matrix,
    r_under: Matrix,
    r_log: Matrix,
    divisor: int = 64,
    tensor_amax: Exact | None = None,
    step: str = "real",
) -> tuple[Codes, list[int]]:
    """Quantise [M, K] exact values to (packed [M, K/2], bits of the step [1]) (N23.1 to N23.5)."""
    alpha = luq_step(_largest(rows) if tensor_amax is None else tensor_amax, divisor, step)
    codes = [
        [luq_code(*given[:1], alpha, *given[1:]) for given in zip(*lines, strict=True)]
        for lines in zip(rows, r_under, r_log, strict=True)
    ]
    return pack(codes), [alpha]


def dequantize_luq(packed: Matrix, alpha: Exact, dtype: str = "float32") -> tuple[Codes]:
    """Dequantise to the bits of [M, K] (N23.6)."""
    step = float_bits(alpha)

    def bits(code: int) -> int:
        level = _TWO ** (code % 8 - 1) if code % 8 else Fraction(0)
        signed: Exact = level if code < 8 else "-0" if level == 0 else -level
        wide = float32_multiply(float_bits(signed), step)
        return wide if dtype == "float32" else float_bits(float_value(wide), dtype)

    return ([[bits(code) for code in row] for row in unpack(packed)],)


def _level(code: int, n0: int, phase: str) -> Fraction:
    return (2 if phase == "odd" else 1) * _FOUR ** (n0 + code - 1)


def radix4_code(value: Exact, n0: int, phase: str, part: Fraction) -> int:
    """Return the code of one element (N23.8)."""
    if value == NAN:
        return 7
    sign = 8 if is_negative(value) else 0
    if not is_finite(value):
        return sign + 7
    magnitude = abs(number(value))
    reached = sum(magnitude > begin for begin in _begins(n0, phase, part))
    return sign + reached if reached else 0


@cache
def _begins(n0: int, phase: str, part: Fraction) -> tuple[Fraction, ...]:
    return tuple(part * _level(code, n0, phase) for code in range(1, 8))


def radix4(rows: Matrix, n0: int, phase: str = "even", threshold: str = "midpoint") -> tuple[Codes]:
    """Quantise [M, K] exact values to (packed [M, K/2],) (N23.8)."""
    return (pack([[radix4_code(value, n0, phase, PARTS[threshold]) for value in row] for row in rows]),)


def dequantize_radix4(packed: Matrix, n0: int, phase: str = "even", dtype: str = "float32") -> tuple[Codes]:
    """Dequantise to the bits of [M, K] (N23.9)."""

    def bits(code: int) -> int:
        if code % 8 == 0:
            return float_bits("-0" if code else Fraction(0), dtype)
        return float_bits(_level(code % 8, n0, phase) * (-1 if code > 8 else 1), dtype)

    return ([[bits(code) for code in row] for row in unpack(packed)],)


def hindsight_amax(amax: int, previous: int, eta: int) -> int:
    """Return the float32 bits of the next maximum; all given as float32 bits (N23.11)."""
    rest = float32_add(float_bits(Fraction(1)), eta ^ 2**31)
    return float32_add(float32_multiply(rest, amax), float32_multiply(eta, previous))


def smp_average(samples: Sequence[int]) -> int:
    """Return the float32 bits of the average of samples given as float32 bits (N23.12)."""
    total = samples[0]
    for sample in samples[1:]:
        total = float32_add(total, sample)
    return float32_multiply(total, float_bits(Fraction(1, len(samples))))


def grad_scale(scale: Exact, amax: Exact, top: Exact) -> int:
    """Return the float32 bits of the next scale (N23.13)."""
    s = number(scale)
    if amax == NAN or (is_finite(amax) and number(amax) == 0):
        return float_bits(s)
    if not is_finite(amax) or number(amax) * s > number(top):
        return float_bits(max(s / 2, _TWO**-126))
    if 2 * number(amax) * s < number(top):
        return float_bits(min(2 * s, _TWO**127))
    return float_bits(s)
