"""Row-wise conversions between FP8 and MXFP4 by the oracle (N7, N8)."""

from __future__ import annotations

from typing import Any

from refnum import oracle

from ..load import Vector
from .exact import converter, policy


def fp8_to_mxfp4(vector: Vector) -> Any:
    """N7: each block of 32 from the exact values of its tile."""
    return oracle.fp8_to_mxfp4(vector.inputs["codes"].tolist(), vector.inputs["scales"].tolist(), policy(vector))


mxfp4_to_fp8 = converter(oracle.mxfp4_to_fp8, "packed", "scale")
