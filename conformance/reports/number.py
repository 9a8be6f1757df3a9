"""Exact numbers in words."""

from __future__ import annotations

from fractions import Fraction


def number_text(exact: Fraction) -> str:
    """Return an exact number as a decimal of at most 12 characters, else as significand*2^exponent."""
    if exact == 0:
        return "0"
    power = exact.denominator & (exact.denominator - 1) == 0
    if power and exact < 1 << 20 and exact.denominator <= 1 << 10:
        return str(float(exact)).removesuffix(".0")
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent -= exact < Fraction(2) ** exponent
    significand = exact / Fraction(2) ** exponent
    return f"2^{exponent}" if significand == 1 else f"{float(significand):.9g}*2^{exponent}"
