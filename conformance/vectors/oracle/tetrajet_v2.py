"""TetraJet-v2 by the oracle (N24)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.oracle import tetrajet_v2 as oracle

from ..load import Vector
from .exact import exact


def quantize_tetrajet_v2(vector: Vector) -> Any:
    """N24.11 and N24.12: each element by itself, the noise as a rational."""
    return oracle.quantize_tetrajet_v2(exact(vector.inputs["x"]), vector.params["seed"])


def dequantize_tetrajet_v2(vector: Vector) -> Any:
    """N24.11: two products."""
    inputs = vector.inputs
    outer = inputs["outer"].view(np.uint32).tolist()
    return (
        oracle.dequantize_tetrajet_v2(
            inputs["packed"].tolist(), inputs["scales"].tolist(), outer, vector.params["dtype"]
        ),
    )
