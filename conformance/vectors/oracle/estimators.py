"""DGE and OCC by the oracle (N25)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from refnum.oracle import estimators

from ..load import Vector
from .exact import exact


def dge(vector: Vector) -> Any:
    """N25.1 to N25.3: the slope at each element by itself."""
    p = vector.params
    values = np.asarray(exact(vector.inputs["x"]), dtype=object).reshape(-1)
    return ([estimators.derivative(v, p["k"], Fraction(p["cap"]), p["target"], p["compat"]) for v in values],)


def occ(vector: Vector) -> Any:
    """N25.4: order statistics of each vector by themselves."""
    x = vector.inputs["x"]
    words = x.view(f"u{x.dtype.itemsize}").tolist()
    return estimators.occ(words, Fraction(*vector.params["alpha"]), vector.params["axis"], x.dtype.name)
