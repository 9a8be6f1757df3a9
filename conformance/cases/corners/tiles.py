"""Corners of FP8 tiles (N6): the quantiser as all of floats are aimed, every code under every scale byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .coded import BYTES, shapes
from .floats import quantizer_corners

quantize_fp8_tiles = quantizer_corners


def dequantize_fp8_tiles(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every E4M3 code under every scale byte; for 128x128 tiles also tiles cut off below and right."""
    if tuple(params.get("tile", (1, 128))) == (1, 128):
        codes = np.broadcast_to(BYTES, (256, 256)).copy()
        yield "every code under every scale byte", {"codes": codes, "scales": np.repeat(BYTES[:, None], 2, axis=1)}
    else:
        halves = BYTES.reshape(2, 128)
        yield "every code under every scale byte (tiles of two rows)", {
            "codes": np.tile(halves, (1, 256)), "scales": BYTES[None, :].copy()}  # fmt: skip
        codes = np.broadcast_to(BYTES, (128 * 7, 256)).copy()
        edges = [[0, 1], [6, 7], [120, 127], [134, 253], [254, 255], [255, 0], [100, 200]]
        yield "whole tiles at edge bytes", {"codes": codes, "scales": np.array(edges, np.uint8)}
    for label, codes, scales in shapes(operation, params):
        yield label, {"codes": codes, "scales": scales}
