"""Corners of the MX block formats (N5): quantisers as all of floats are aimed, every code under every scale byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import get_format

from .coded import BYTES, shapes
from .floats import quantizer_corners

quantize_mxfp4 = quantize_mx = quantizer_corners


def dequantize_mxfp4(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every packed byte under every scale byte, then odd shapes with neighbours of different scale."""
    packed = np.broadcast_to(BYTES, (256, 256)).copy()
    yield "every packed byte under every scale byte", {
        "packed": packed, "scales": np.repeat(BYTES[:, None], 16, axis=1)}  # fmt: skip
    yield "every packed byte, scale bytes in sequence along K", {
        "packed": packed, "scales": (BYTES[:, None] + 16 * np.arange(16)[None, :]).astype(np.uint8)}  # fmt: skip
    for label, codes, scales in shapes(operation, params):
        yield label, {"packed": pack_nibbles(codes), "scales": scales}


def dequantize_mx(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every code of the element format under every scale byte, then odd shapes."""
    width = 1 << get_format(params["element"]).bits
    columns = max(width, 32)
    codes = np.broadcast_to(np.arange(columns) % width, (256, columns)).astype(np.uint8)
    yield "every code under every scale byte", {
        "codes": codes, "scales": np.repeat(BYTES[:, None], columns // 32, axis=1)}  # fmt: skip
    for label, codes, scales in shapes(operation, params):
        yield label, {"codes": codes, "scales": scales}
