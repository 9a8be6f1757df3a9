"""NVFP4 by the oracle (N21)."""

from __future__ import annotations

from typing import Any

from refnum.oracle import nvfp4

from ..load import Vector
from .exact import exact


def quantize_nvfp4(vector: Vector) -> Any:
    """N21.1 to N21.6: each step of a block's scale and of an element by itself."""
    inputs, params = vector.inputs, vector.params
    amax = exact(inputs["tensor_amax"])[0] if "tensor_amax" in inputs else None
    rbits = inputs["rbits"].tolist() if "rbits" in inputs else None
    return nvfp4.quantize_nvfp4(exact(inputs["x"]), params["variant"], amax, tuple(params["tile"]), rbits)


def dequantize_nvfp4(vector: Vector) -> Any:
    """N21.7: each product by itself."""
    inputs, params = vector.inputs, vector.params
    return nvfp4.dequantize_nvfp4(
        inputs["packed"].tolist(), inputs["scales"].tolist(), exact(inputs["tensor_amax"])[0],
        params["order"], tuple(params["tile"]), params["dtype"],
    )  # fmt: skip
