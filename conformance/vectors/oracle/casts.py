"""Scalar casts by the oracle's value tables, and encode_e8m0 by definition (N1, N2)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from refnum import oracle

from ..load import Vector
from .exact import exact

_IEEE = {"BF16": ("bfloat16", 0x7F80), "FP16": ("float16", 0x7C00)}
_CHOICES = ("rounding", "ties", "overflow", "negative_zero", "random_bits")


def encode_e2m1(vector: Vector) -> Any:
    """N2: the nearest E2M1 value, ties to even, saturating."""
    return _encode(vector, "E2M1")


def encode_e4m3(vector: Vector) -> Any:
    """N2: the nearest E4M3 value, ties to even, with the vector's overflow."""
    return _encode(vector, "E4M3", overflow=vector.params["overflow"])


def encode_element(vector: Vector) -> Any:
    """N2: any element format, with the vector's choices."""
    choices = {name: vector.params[name] for name in _CHOICES if name in vector.params}
    return _encode(vector, vector.params["element"], **choices)


def _encode(vector: Vector, element: str, **choices: Any) -> Any:
    values = np.asarray(exact(vector.inputs["x"]), dtype=object).reshape(-1)
    if element in _IEEE:
        return ([_encode_ieee(element, value, choices["overflow"]) for value in values],)
    draws = vector.inputs["rbits"].reshape(-1).tolist() if "rbits" in vector.inputs else [0] * len(values)
    codes = [oracle.encode(element, v, rbits=r, **choices) for v, r in zip(values, draws, strict=True)]
    return (codes,)


def _encode_ieee(element: str, value: oracle.Exact, overflow: str) -> int:
    """BF16 and FP16 have no value table: one rounding of the exact value, whose overflow saturates or is Inf."""
    dtype, infinity = _IEEE[element]
    bits = oracle.float_bits(value, dtype)
    return bits - 1 if overflow == "saturate" and bits & 0x7FFF == infinity else bits


def encode_e8m0(vector: Vector) -> Any:
    """By definition: the power of two at or above, at or below, or nearest (a midpoint goes up), clamped."""
    out = []
    top = 254 if vector.params["saturate"] else 255
    for value in np.asarray(exact(vector.inputs["x"]), dtype=object).reshape(-1):
        if value == oracle.NAN:
            out.append(255)
        elif value in (oracle.POS_INF, oracle.NEG_INF):
            out.append(top)
        else:
            magnitude = Fraction(0) if value == oracle.NEG_ZERO else abs(value)
            out.append(_e8m0_byte(magnitude, vector.params["rounding"], top))
    return (out,)


def _e8m0_byte(magnitude: Fraction, rounding: str, top: int) -> int:
    if magnitude == 0:
        return 0
    below = oracle.floor_log2(magnitude)
    ratio = magnitude / Fraction(2) ** below
    step = {"down": False, "up": ratio > 1, "nearest": ratio >= Fraction(3, 2)}[rounding]
    return min(max(below + step + 127, 0), top)


def decode_e2m1(vector: Vector) -> Any:
    """N1: the values of E2M1's table."""
    return _decode(vector, "E2M1")


def decode_e4m3(vector: Vector) -> Any:
    """N1: the values of E4M3's table."""
    return _decode(vector, "E4M3")


def decode_e8m0(vector: Vector) -> Any:
    """N1: powers of two, and NaN."""
    return _decode(vector, "E8M0")


def decode_element(vector: Vector) -> Any:
    """N1: the values of any element format's table."""
    return _decode(vector, vector.params["element"])


def _decode(vector: Vector, element: str) -> Any:
    dtype = vector.params.get("dtype", "float32")
    codes = vector.inputs["codes"].reshape(-1).tolist()
    return ([oracle.float_bits(oracle.decode(element, code, signed_zero=True), dtype) for code in codes],)
