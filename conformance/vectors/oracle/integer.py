"""The integer quantisers by the oracle (N26)."""

from __future__ import annotations

from typing import Any

from refnum.oracle import float_value
from refnum.oracle import integer as oracle
from refnum.oracle import llm as llm_oracle

from ..load import Vector
from .exact import exact


def sawb(vector: Vector) -> Any:
    """N26.1: exact means."""
    return oracle.sawb(exact(vector.inputs["x"]))


def int4_affine(vector: Vector) -> Any:
    """N26.2: each group by itself; a zero point as a whole number."""
    codes, scales, zeros = oracle.affine(exact(vector.inputs["x"]), vector.params["group"])
    return codes, scales, [[int(float_value(zero)) for zero in row] for row in zeros]


def efficient_qat(vector: Vector) -> Any:
    """N26.3: as N26.2."""
    return oracle.affine(exact(vector.inputs["x"]), vector.params["group"], "efficient_qat")


def int4_keep_two(vector: Vector) -> Any:
    """N26.5: a sort of the magnitudes."""
    return oracle.keep_two(exact(vector.inputs["x"]), vector.params["group"])


def llm_qat(vector: Vector) -> Any:
    """N26.8: a row or the tensor; a code in two's complement."""
    p = vector.params
    codes, values = llm_oracle.llm_qat(exact(vector.inputs["x"]), p["bits"], p["symmetric"], p["layerwise"])
    return [[code % (1 << 32) for code in row] for row in codes], values
