"""Rotations by the oracle (N22)."""

from __future__ import annotations

from typing import Any

from refnum.oracle import hadamard

from ..load import Vector
from .exact import exact

_SIGNS = 0xD7E8


def hadamard16(vector: Vector) -> Any:
    """N22.1 to N22.5: each sum by itself."""
    x, params = vector.inputs["x"], vector.params
    signs = params.get("signs", _SIGNS)
    return hadamard.hadamard16(exact(x), signs, params["axis"], params["order"], params["dtype"], x.shape[1])


def hadamard_quantize_nvfp4(vector: Vector) -> Any:
    """N22.6: the rotation, then each step of a block's scale and of an element."""
    inputs, params = vector.inputs, vector.params
    amax = exact(inputs["tensor_amax"])[0] if "tensor_amax" in inputs else None
    rbits = inputs["rbits"].tolist() if "rbits" in inputs else None
    x, signs = inputs["x"], params.get("signs", _SIGNS)
    variant = params.get("variant", "TE")
    return hadamard.hadamard_quantize_nvfp4(
        exact(x), signs, params["axis"], params["order"], variant, amax, rbits, x.shape[1]
    )
