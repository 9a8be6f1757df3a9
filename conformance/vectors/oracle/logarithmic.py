"""Logarithmic FP4 by the oracle (N23)."""

from __future__ import annotations

from typing import Any

from refnum.oracle import logarithmic

from ..load import Vector
from .exact import exact


def luq(vector: Vector) -> Any:
    """N23.1 to N23.5: the step, then one element after another."""
    inputs, params = vector.inputs, vector.params
    amax = exact(inputs["tensor_amax"])[0] if "tensor_amax" in inputs else None
    r_under, r_log = (inputs[name].tolist() for name in ("r_under", "r_log"))
    return logarithmic.luq(exact(inputs["x"]), r_under, r_log, params["divisor"], amax, params["step"])


def dequantize_luq(vector: Vector) -> Any:
    """N23.6: each product by itself."""
    step = exact(vector.inputs["alpha"])[0]
    return logarithmic.dequantize_luq(vector.inputs["packed"].tolist(), step, vector.params["dtype"])


def radix4(vector: Vector) -> Any:
    """N23.8: exact comparisons with the levels."""
    params = vector.params
    return logarithmic.radix4(exact(vector.inputs["x"]), params["n0"], params["phase"], params["threshold"])


def dequantize_radix4(vector: Vector) -> Any:
    """N23.9: the levels by themselves."""
    params = vector.params
    return logarithmic.dequantize_radix4(
        vector.inputs["packed"].tolist(), params["n0"], params["phase"], params["dtype"]
    )
