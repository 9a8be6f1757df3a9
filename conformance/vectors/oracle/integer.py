"""The integer quantisers by the oracle (N26)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

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


def dequantize_int4(vector: Vector) -> Any:
    """N26.4: one scale spread over the tensor, zero points as numbers."""
    inputs = vector.inputs
    codes, scales, zeros = inputs["codes"].tolist(), inputs["scales"], inputs.get("zeros")
    if zeros is not None and zeros.dtype == np.uint8:
        zeros = zeros.astype(np.float32)
    placed = None if zeros is None else _rows(zeros, len(codes))
    return (oracle.dequantize_int4(codes, _rows(scales, len(codes)), placed),)


def _rows(part: np.ndarray, rows: int) -> list[list[int]]:
    """float32 bits of the numbers of each row; one number for all is that of each."""
    bits = part.view(np.uint32).tolist()
    return [bits] * rows if part.ndim == 1 else bits


def llm_fp4(vector: Vector) -> Any:
    """N26.7: logarithms and powers by decimals of 70 digits."""
    tops = [Fraction(float(top)) for top in vector.inputs["maxval"]]
    return llm_oracle.llm_fp4(exact(vector.inputs["x"]), tops, vector.params["exponent_bits"])
