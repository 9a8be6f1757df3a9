"""Explain one element of TetraJet's quantisers: its block's scale, its quotient and how it is rounded (clause N24)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import BLOCK, float32_bits, unpack_nibbles
from .codec import value
from .formats import E2M1, FP32
from .steps import Step, code_step, show
from .tetrajet import q_ema, quantize_tetrajet

_NAMES = ("axis", "rule", "ties", "ratio", "rbits", "philox")
_RULES = {
    "truncation_free": "least power of two at or above amax / 6, rounded to {ratio}",
    "exact": "least power of two at or above amax / 6", "microscaling": "power of two at or below amax, over 4",
}  # fmt: skip


def _float(bits: int) -> str:
    return f"0x{bits:08X} = {show(value(FP32, bits), bool(bits >> 31))}"


def tetrajet_steps(operation: str, arguments: Mapping[str, Any], row: int, column: int) -> tuple[list[Step], int, int]:
    """Return the steps of one element of `quantize_tetrajet` or `q_ema`, its code and its block's byte."""
    given = {name: arguments[name] for name in _NAMES if name in arguments}
    average = operation == "q_ema"
    x = arguments["w" if average else "x"]
    packed, scales = q_ema(x, arguments["ema"], **given) if average else quantize_tetrajet(x, **given)
    axis, code = int(given.get("axis", 1)), int(unpack_nibbles(packed)[row, column])
    byte = int(scales[(row, column // BLOCK) if axis else (row // BLOCK, column)])
    bits = float32_bits(np.ascontiguousarray(x))
    first = (column if axis else row) // BLOCK * BLOCK
    block = bits[row, first : first + BLOCK] if axis else bits[first : first + BLOCK, column]
    rule = _RULES[given.get("rule", "truncation_free")].format(ratio=given.get("ratio", "bfloat16"))
    steps = [
        Step("element", f"bits {_float(int(bits[row, column]))}", "N0"),
        Step("amax", f"{_float(int((block & np.uint32(0x7FFFFFFF)).max()))}, of a block of {block.size}", "N24.1"),
        Step("scale byte", f"{byte}: {_scale(byte, rule)}", "N24.3" if byte in (98, 255) else "N24.2"),
    ]
    if byte != 255:
        own = value(FP32, int(bits[row, column]))
        quotient = own if isinstance(own, str) else own / _power(byte)
        steps.append(Step("quotient", f"x / 2^{byte - 127} = {show(quotient, bool(bits[row, column] >> 31))}", "N24.4"))
    steps.append(_rounding(given, average, arguments, row, column, byte))
    return [*steps, code_step(E2M1, code)], code, byte


def _power(byte: int) -> Fraction:
    return Fraction(2) ** (byte - 127)


def _scale(byte: int, rule: str) -> str:
    if byte == 255:
        return "a NaN or an Inf in the block"
    return f"2^{byte - 127}, {rule}" if byte != 98 else f"2^-29, {rule}, or a block of zeros"


def _rounding(
    given: Mapping[str, Any], average: bool, arguments: Mapping[str, Any], row: int, column: int, byte: int
) -> Step:
    if byte == 255:
        return Step("rounding", "none: the codes of the block are 0", "N24.3")
    if average:
        own = int(float32_bits(np.ascontiguousarray(arguments["ema"]))[row, column])
        text = f"to the neighbour that the average chooses, {_float(own)}"
        return Step("rounding", f"{text}: up in magnitude from the middle on", "N24.7")
    if "rbits" in given or "philox" in given:
        return Step("rounding", "by random bits", "N24.4")
    return Step("rounding", f"to nearest, ties {given.get('ties', 'even')}, at most 6", "N24.4")
