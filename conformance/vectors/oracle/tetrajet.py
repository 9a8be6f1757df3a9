"""TetraJet by the oracle (N24)."""

from __future__ import annotations

from typing import Any

from refnum.oracle import tetrajet

from ..load import Vector
from .exact import exact


def quantize_tetrajet(vector: Vector) -> Any:
    """N24.1 to N24.4: each block by itself."""
    inputs, params = vector.inputs, vector.params
    rbits = inputs["rbits"].tolist() if "rbits" in inputs else None
    return tetrajet.quantize_tetrajet(
        exact(inputs["x"]), params["axis"], params["rule"], params["ties"], params["ratio"], rbits
    )


def q_ema(vector: Vector) -> Any:
    """N24.7: the neighbours by search."""
    inputs, params = vector.inputs, vector.params
    return tetrajet.q_ema(exact(inputs["w"]), exact(inputs["ema"]), params["axis"], params["rule"])
