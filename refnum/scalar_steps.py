"""The steps of scalar conversions: a float to its code, a code to its float (clauses N1 and N2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import float32_bits
from .casts import decode_e2m1, decode_e4m3, decode_e8m0, encode_e2m1, encode_e4m3, encode_e8m0
from .codec import value
from .formats import E2M1, E4M3, E8M0, FP32, Format
from .profiles import HOPPER
from .steps import Step, check_rounding, code_step, round_steps, show

SCALARS: dict[str, tuple[Callable[..., Any], Format]] = {
    "encode_e2m1": (encode_e2m1, E2M1),
    "encode_e4m3": (encode_e4m3, E4M3),
    "encode_e8m0": (encode_e8m0, E8M0),
    "decode_e2m1": (decode_e2m1, E2M1),
    "decode_e4m3": (decode_e4m3, E4M3),
    "decode_e8m0": (decode_e8m0, E8M0),
}
"""Operation -> the golden function, and the format that it gives or takes."""


def scalar_steps(operation: str, arguments: Mapping[str, Any], at: tuple[int, ...]) -> tuple[list[Step], int]:
    """Return the steps of one element of a scalar conversion, and the bits that it ends in.

    Args:
        operation: a key of `SCALARS`.
        arguments: those of the golden function by name; what it does not know, such as `input`, is left out.
        at: the element's index.
    """
    function, fmt = SCALARS[operation]
    known = ("x", "codes", "scale_byte", "overflow", "rounding", "saturate", "dtype")
    given = {name: arguments[name] for name in known if name in arguments}
    result = function(**given)
    if operation.startswith("decode"):
        return _decoded(fmt, int(arguments["codes"][at]), result[at])
    bits, code = int(float32_bits(arguments["x"])[at]), int(result[at])
    exact = value(FP32, bits)
    first = Step("element", f"bits 0x{bits:08X}, value {show(exact, bool(bits >> 31))}", "N0")
    if fmt is E8M0:
        return [first, *_byte(exact, given, code)], code
    return [first, *_code(fmt, exact, bool(bits >> 31), given, code)], code


def _decoded(fmt: Format, code: int, result: Any) -> tuple[list[Step], int]:
    bits = int(np.asarray(result).view(f"u{result.dtype.itemsize}"))
    exact = value(fmt, code)
    text = "the quiet NaN" if exact == "nan" else f"exactly {show(exact, bool(code & fmt.sign_mask))}"
    steps = [Step("element", f"{fmt.name} code 0x{code:X}", "N1"), code_step(fmt, code)]
    return [
        *steps,
        Step("value", f"{text}, bits 0x{bits:0{2 * result.dtype.itemsize}X} of {result.dtype.name}", "N1"),
    ], bits


def _code(fmt: Format, exact: Fraction | str, negative: bool, given: Mapping[str, Any], code: int) -> list[Step]:
    scale, overflow = int(given.get("scale_byte", 127)), str(given.get("overflow", "saturate"))
    if scale == 255:
        return [Step("special", "scale byte 255 is NaN: code 0, whatever the element", "N4"), code_step(fmt, code)]
    if exact == "nan":
        words = f"NaN, which {fmt.name} lacks: the largest code" if fmt.nan_code is None else "NaN of its sign"
        return [Step("special", words, "N2"), code_step(fmt, code)]
    if isinstance(exact, str):
        return [Step("rounding", f"Inf is above the largest value -> {overflow}", "N2"), code_step(fmt, code)]
    profile = HOPPER.replace(name="explained", overflow=overflow)
    quotient = exact / Fraction(2) ** (scale - 127)
    if isinstance(value(fmt, code), Fraction):
        check_rounding(fmt, quotient, profile, code)
    return round_steps(fmt, quotient, negative, profile, code)


def _byte(exact: Fraction | str, given: Mapping[str, Any], byte: int) -> list[Step]:
    """Return the steps of N1.5."""
    rounding, saturate = given.get("rounding", "up"), bool(given.get("saturate", False))
    top = "254, saturated" if saturate else "255"
    if exact == "nan":
        return [Step("special", "NaN: byte 255", "N1"), code_step(E8M0, byte)]
    if isinstance(exact, str):
        return [Step("special", f"Inf: byte {top}", "N1"), code_step(E8M0, byte)]
    if exact == 0:
        return [Step("special", "zero, which E8M0 lacks: byte 0", "N1"), code_step(E8M0, byte)]
    size = abs(exact)
    k = size.numerator.bit_length() - size.denominator.bit_length()  # exact, as the denominator is a power of two
    significand = size / Fraction(2) ** k
    up = {"up": significand != 1, "down": False, "nearest": significand >= Fraction(3, 2)}[rounding]
    steps = [Step("rounding", f"{rounding}: 2^{k} times {show(significand)}: exponent {k}{' + 1' if up else ''}", "N1")]
    raw = k + up + 127
    expected = min(max(raw, 0), 254 if saturate else 255)
    assert expected == byte, f"the model's byte {byte} is not the rule's {expected}"
    if raw != byte:
        steps.append(Step("clamp", f"{raw} becomes {byte}", "N1"))
    return [*steps, code_step(E8M0, byte)]
