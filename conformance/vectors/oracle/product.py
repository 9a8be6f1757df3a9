"""Matrix products by the oracle (N19)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from refnum.oracle import product

from ..load import Vector


def matmul_fp8(vector: Vector) -> Any:
    """N19: each result from the codes of its row and its column; scales are E8M0 bytes."""
    scales = [_scales(vector, name) for name in ("a_scales", "b_scales")]
    keywords = {name: str(vector.params[name]) for name in ("order", "out", "a_format", "b_format")}
    return (product.matmul_fp8(vector.inputs["a"].tolist(), vector.inputs["b"].tolist(), *scales, **keywords),)


def matmul_bf16(vector: Vector) -> Any:
    """N19: each result from the bits of its row and its column."""
    a, b = (vector.inputs[name].view(np.uint16).tolist() for name in ("a", "b"))
    return (product.matmul_bf16(a, b, str(vector.params["order"]), str(vector.params["out"])),)


def _scales(vector: Vector, name: str) -> Any:
    if name not in vector.inputs:
        return None
    found = vector.inputs[name].tolist()
    lines = [[x if isinstance(x, int) else Fraction(x) for x in line] for line in found]
    return lines[0][0] if vector.inputs[name].size == 1 else lines
