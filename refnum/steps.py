"""The steps that explanations share, on exact rationals: a value shown, a scale chosen, a quotient rounded."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

from .codec import value
from .formats import FP32, Format, magnitude_value
from .profiles import Profile

_LEAST, _MOST = Fraction(2) ** -1000, Fraction(2) ** 1000
"""Between these a number is one of float64."""


@dataclass(frozen=True)
class Step:
    """One step: what it is called, what came out, and the clause that decides it."""

    name: str
    text: str
    clause: str


@functools.lru_cache  # one step shows a number several times
def show(x: Fraction | str, negative: bool = False) -> str:
    """An exact value as a decimal where that is short, else as significand x 2^exponent."""
    if isinstance(x, str):
        return x
    if x == 0:
        return "-0" if negative else "0"
    number = float(x) if _LEAST < abs(x) < _MOST else 0.0
    text = f"{number:.10g}"
    if number and Fraction(text) == x:
        return text
    exponent = _floor_log2(abs(x))
    return f"{float(x / Fraction(2) ** exponent)!r} x 2^{exponent}"


def _floor_log2(x: Fraction) -> int:
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent - (x < Fraction(2) ** exponent)


def fields(fmt: Format, code: int) -> str:
    """Code in hex and as sign, exponent and mantissa fields."""
    digits = f"{code:0{fmt.bits}b}"
    parts = [digits[: int(fmt.signed)], digits[int(fmt.signed) : int(fmt.signed) + fmt.exponent_bits]]
    parts.append(digits[int(fmt.signed) + fmt.exponent_bits :])
    return f"0x{code:X} = {' '.join(p for p in parts if p)}"


def rule_steps(profile: Profile, fmt: Format, amax: Fraction) -> tuple[list[Step], int]:
    """Steps of clause N3 for a finite amax > 0; returns them and the byte."""
    steps = []
    if profile.amax_floor is not None:
        floor = value(FP32, profile.amax_floor)
        assert isinstance(floor, Fraction)
        if floor > amax:
            steps.append(Step("amax floor", f"amax raised to {show(floor)}", "N3"))
            amax = floor
    exponent = _floor_log2(amax)
    significand = amax / Fraction(2) ** exponent
    top = fmt.max_value / Fraction(2) ** fmt.emax
    if profile.scale_rule == "rceil":
        up = significand > top
        why = f"significand {show(significand)} {'>' if up else '<='} {show(top)}"
    elif profile.scale_rule == "ceil":
        up = significand != 1
        why = f"significand {show(significand)} {'is not' if up else 'is'} 1"
    elif profile.scale_rule == "even":
        width = fmt.fraction_bits if fmt.kind == "integer" else fmt.mantissa_bits
        limit = 2 - Fraction(1, 2 ** (width + 1))
        up = significand >= limit
        why = f"significand {show(significand)} {'>=' if up else '<'} {show(limit)}, where it rounds up to 2"
    else:
        up, why = False, "exponent of amax, whatever its significand"
    k = exponent - fmt.emax + up
    byte = min(max(k + 127, 0), 254)
    text = f"{profile.scale_rule}: k = {exponent} - {fmt.emax}{' + 1' if up else ''} = {k} ({why})"
    steps.append(Step("scale exponent", text, "N3"))
    clamp = f", clamped from {k + 127}" if byte != k + 127 else ""
    steps.append(Step("scale byte", f"{byte}, scale 2^{byte - 127}{clamp}", "N3"))
    return steps, byte


def round_steps(fmt: Format, quotient: Fraction, negative: bool, profile: Profile, code: int) -> list[Step]:
    """Steps of clause N2 for a finite quotient; `code` is the model's answer."""
    size = abs(quotient)
    finite = [(magnitude_value(fmt, c), c) for c in range(fmt.max_code + 1)]
    steps = [Step("quotient", f"x / scale = {show(quotient, negative)}", "N5")]
    below = max((v, c) for v, c in finite if v <= size)
    above = min(((v, c) for v, c in finite if v >= size), default=None)
    if above is None:
        decision = f"above the largest value {show(fmt.max_value)} -> {profile.overflow}"
    elif below == above:
        decision = f"exactly the value of magnitude code 0x{below[1]:X}"
    elif profile.rounding != "nearest":
        decision = f"between {show(below[0])} and {show(above[0])}: {profile.rounding}"
    else:
        middle = (below[0] + above[0]) / 2
        where = "tie at" if size == middle else "below the midpoint" if size < middle else "above the midpoint"
        rule = f" -> {profile.ties}" if size == middle else ""
        decision = f"between {show(below[0])} and {show(above[0])}: {where} {show(middle)}{rule}"
    steps.append(Step("rounding", decision, "N2"))
    steps.append(code_step(fmt, code))
    return steps


def code_step(fmt: Format, code: int) -> Step:
    """The last step: the code, its fields and its value."""
    exact = value(fmt, code)
    return Step("code", f"{fields(fmt, code)}, value {show(exact, bool(code & fmt.sign_mask))}", "N1")


def check_rounding(fmt: Format, quotient: Fraction, profile: Profile, code: int) -> None:
    """The model's code must be a nearest one (deterministic nearest rounding, inside the range)."""
    got = value(fmt, code)
    assert isinstance(got, Fraction)
    if profile.rounding == "nearest" and abs(quotient) <= fmt.max_value:
        best = min(abs(abs(quotient) - magnitude_value(fmt, c)) for c in range(fmt.max_code + 1))
        assert abs(got - quotient) == best, f"the model's code 0x{code:X} is not nearest to {quotient}"
