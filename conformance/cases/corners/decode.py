"""Corners of dequantisers and scalar decoders: every code under every scale byte. Encoders cannot reach them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import get_format

from ..draw import CODED, Draw
from ..recipes.distributions import layout_of
from .floats import SHAPES

BYTES = np.arange(256, dtype=np.uint8)


def dequantize_mxfp4_corners(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every packed byte under every scale byte, then odd shapes with neighbours of different scale."""
    packed = np.broadcast_to(BYTES, (256, 256)).copy()
    yield "every packed byte under every scale byte", {
        "packed": packed, "scales": np.repeat(BYTES[:, None], 16, axis=1)}  # fmt: skip
    yield "every packed byte, scale bytes in sequence along K", {
        "packed": packed, "scales": (BYTES[:, None] + 16 * np.arange(16)[None, :]).astype(np.uint8)}  # fmt: skip
    for label, codes, scales in _shapes(operation, params):
        yield label, {"packed": pack_nibbles(codes), "scales": scales}


def dequantize_mx_corners(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every code of the element format under every scale byte, then odd shapes."""
    width = 1 << get_format(params["element"]).bits
    columns = max(width, 32)
    codes = np.broadcast_to(np.arange(columns) % width, (256, columns)).astype(np.uint8)
    yield "every code under every scale byte", {
        "codes": codes, "scales": np.repeat(BYTES[:, None], columns // 32, axis=1)}  # fmt: skip
    for label, codes, scales in _shapes(operation, params):
        yield label, {"codes": codes, "scales": scales}


def dequantize_tiles_corners(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
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
    for label, codes, scales in _shapes(operation, params):
        yield label, {"codes": codes, "scales": scales}


def decoder_corners(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Every code, in one row, and in rows of other lengths."""
    count = 1 << layout_of(operation, params).element.bits
    yield "every code", {"codes": np.arange(count, dtype=np.uint8)[None, :]}
    yield "every code, odd width", {"codes": (np.arange(37 * 29) % count).astype(np.uint8).reshape(37, 29)}
    yield "no rows", {"codes": np.zeros((0, 32), np.uint8)}


def _shapes(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    layout = layout_of(operation, params)
    shapes = SHAPES if layout.rows == 1 else (*SHAPES, (129, 160), (257, 288))
    for shape in shapes:
        codes, scales = CODED["uniform"].make(Draw(shape[0] * 8192 + shape[1]), layout, shape, base=127, spread=20)
        yield f"shape {shape[0]}x{shape[1]}", codes, scales
