"""Explain one element of logarithmic FP4: its quotient or its bounds, its word, its code (clause N23)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .arrays import float32_bits, unpack_nibbles
from .codec import value
from .division import divide
from .formats import E3M0, FP4_RADIX4, FP32
from .logarithmic import _grid, _least_dropped, _threshold, dequantize_luq, dequantize_radix4, luq, radix4
from .logarithmic_tables import level_bits
from .softfloat import INF
from .steps import Step, fields, show


def _float(bits: int) -> str:
    return f"0x{bits:08X} = {show(value(FP32, bits), bool(bits >> 31))}"


def _given(arguments: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: arguments[name] for name in names if name in arguments}


def _first(bits: int) -> Step:
    return Step("element", f"bits {_float(bits)}", "N0")


def _code(fmt: Any, code: int, level: str) -> Step:
    return Step("code", f"{fields(fmt, code)}, {level}", "N23.1")


def _luq(arguments: Mapping[str, Any], row: int, column: int) -> tuple[list[Step], int]:
    given = _given(arguments, "x", "r_under", "r_log", "divisor", "tensor_amax", "step")
    packed, alpha = luq(**given)
    code, bits = int(unpack_nibbles(packed)[row, column]), int(float32_bits(given["x"])[row, column])
    step = int(alpha.view(np.uint32)[0])
    steps = [_first(bits), Step("step", f"alpha {_float(step)}", "N23.2")]
    level = "zero" if code & 7 == 0 else f"{'-' if code & 8 else ''}{2 ** ((code & 7) - 1)} alpha"
    if bits & 0x7FFFFFFF >= INF or bits & 0x7FFFFFFF == 0:
        return [
            *steps,
            Step("special", "a zero, an infinity or NaN: no word decides", "N23.1"),
            _code(E3M0, code, level),
        ], code
    quotient = divide(np.array([bits & 0x7FFFFFFF], np.uint32), alpha.view(np.uint32))
    a = int(quotient[0])
    steps.append(Step("quotient", f"a = fl(|x| / alpha) = {_float(a)}", "N23.3"))
    if a < 0x3F800000:
        r, least = int(given["r_under"][row, column]), int(_least_dropped(quotient)[0])
        words = f"r = {r} {'<' if r < least else '>='} {least} = ceil(a 2^24): {'kept' if r < least else 'zero'}"
        steps.append(Step("pruning", words, "N23.4"))
    elif a < INF:
        q, f = int(given["r_log"][row, column]), a & 0x7FFFFF
        up = f + q >= 1 << 23
        words = f"f + q = {f} + {q} {'>=' if up else '<'} 2^23: {'up' if up else 'down'}, at most 64 alpha"
        steps.append(Step("rounding", words, "N23.5"))
    return [*steps, _code(E3M0, code, level)], code


def _radix4(arguments: Mapping[str, Any], row: int, column: int) -> tuple[list[Step], int]:
    given = _given(arguments, "x", "n0", "phase", "threshold")
    code = int(unpack_nibbles(radix4(**given))[row, column])
    bits = int(float32_bits(given["x"])[row, column])
    part = _threshold(given.get("threshold", "midpoint"))
    levels = level_bits(*_grid(given["n0"], given.get("phase", "even")))
    numbers = [value(FP32, int(one)) for one in levels[1:8]]
    parts = ", ".join(show(part * number) for number in numbers if not isinstance(number, str))
    steps = [_first(bits), Step("bounds", f"{show(part)} of each level: {parts}", "N23.8")]
    return [*steps, _code(FP4_RADIX4, code, f"level {_float(int(levels[code]))}")], code


def _back(arguments: Mapping[str, Any], row: int, column: int) -> tuple[list[Step], int]:
    radix = "alpha" not in arguments
    names = ("packed", "n0", "phase", "dtype") if radix else ("packed", "alpha", "dtype")
    result = (dequantize_radix4 if radix else dequantize_luq)(**_given(arguments, *names))[row, column]
    code = int(unpack_nibbles(arguments["packed"])[row, column])
    bits = int(np.asarray(result).view(f"u{result.dtype.itemsize}"))
    fmt = FP4_RADIX4 if radix else E3M0
    steps = [Step("element", f"{fmt.name} code {fields(fmt, code)}", "N23.1")]
    if not radix:
        steps.append(Step("step", f"alpha {_float(int(np.asarray(arguments['alpha']).view(np.uint32)[0]))}", "N23.6"))
    text = f"bits 0x{bits:0{2 * result.dtype.itemsize}X} of {result.dtype.name}"
    return [*steps, Step("value", text, "N23.9" if radix else "N23.6")], bits


LOGARITHMIC: dict[str, Callable[[Mapping[str, Any], int, int], tuple[list[Step], int]]] = {
    "luq": _luq,
    "radix4": _radix4,
    "dequantize_luq": _back,
    "dequantize_radix4": _back,
}
"""Operation -> (arguments, row, column) -> the steps of one element, and the code or the bits that they end in."""
