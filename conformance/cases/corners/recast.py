"""Corners of the direct row-wise conversions between FP8 tiles and MXFP4 blocks (N7, N8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import E2M1, E4M3

from ..draw import CODED, Draw
from ..draw.coded import EDGE_BYTES, Layout
from .arrange import lanes, rotate
from .floats import SHAPES

Corner = tuple[str, dict[str, np.ndarray]]
NIBBLES = np.tile(np.arange(16, dtype=np.uint8), 2)
"""All sixteen codes twice: one block."""


def fp8_to_mxfp4(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Block-maximum ladders under edge bytes, codes around every threshold, NaN in every lane, zeros, shapes."""
    yield "every block maximum with the codes below it, under edge scale bytes", _tiles(_ladder(), EDGE_BYTES)
    yield "every tile scale byte", _tiles(_ladder()[np.r_[0:254:9, 248:254]], np.arange(256, dtype=np.uint8))
    special = _one_in_every_lane((0x7F, 0xFF, 0x80, 0x7E, 0xFE, 0x01, 0x81))
    yield "NaN, zero, largest and smallest code in every lane", _tiles(special, [127, 0, 254])
    yield "zero blocks, negative zeros, NaN beside finite blocks", _tiles(_mixed(), [0, 1, 127, 254, 255])
    for shape in SHAPES:
        codes, scales = CODED["apart"].make(Draw(sum(shape)), Layout(E4M3, 1, 128), shape, base=127, spread=9, empty=40,
                                            nan=10)  # fmt: skip
        yield f"shape {shape[0]}x{shape[1]}", {"codes": codes, "scales": scales}
    codes, scales = CODED["activations"].make(Draw(3), Layout(E4M3, 1, 128), (64, 512), spread=2, exponent=0)
    yield "activations", {"codes": codes, "scales": scales}


def _tiles(blocks: np.ndarray, scale_bytes: Any) -> dict[str, np.ndarray]:
    """Blocks [n, 32] four to a 1x128 tile, one row of all of them under each scale byte."""
    missing = -len(blocks) % 4
    row = np.concatenate([blocks, np.zeros((missing, 32), np.uint8)]).reshape(-1)
    scale_bytes = np.asarray(scale_bytes, np.uint8)
    codes = np.broadcast_to(row, (scale_bytes.size, row.size)).copy()
    return {"codes": codes, "scales": np.repeat(scale_bytes[:, None], row.size // 128, axis=1)}


def _ladder() -> np.ndarray:
    """For every maximum 0..126 two blocks: the 31 codes just below it and 31 spread evenly, signs alternating."""
    top = np.arange(127, dtype=np.int64)[:, None]
    near = np.maximum(top - np.arange(32), 0)
    spread = (top * (31 - np.arange(32))) // 31
    sign = np.where(np.arange(32) & 1, 0x80, 0)
    blocks = np.concatenate([near | sign, spread | (sign ^ 0x80)]).astype(np.uint8)
    return rotate(blocks, lanes(len(blocks), 32))


def _one_in_every_lane(special: tuple[int, ...]) -> np.ndarray:
    ground = np.where(np.arange(32) & 1, 0xB8, 0x38).astype(np.uint8)  # +-1
    blocks = np.broadcast_to(ground, (2 * len(special), 32, 32)).copy()
    blocks[len(special) :] = 0
    lane = np.arange(32)
    blocks[:, lane, lane] = np.array(special * 2, np.uint8)[:, None]
    return blocks.reshape(-1, 32)


def _mixed() -> np.ndarray:
    """Tiles that mix zero blocks, negative zeros, NaN blocks, the largest and the smallest codes."""
    kinds = np.array([0x00, 0x80, 0x7F, 0xFF, 0x7E, 0x01, 0x38], np.uint8)
    pick = np.stack(np.meshgrid(*[np.arange(kinds.size)] * 4, indexing="ij"), axis=-1).reshape(-1)
    blocks = np.zeros((pick.size, 32), np.uint8)
    blocks[:] = kinds[pick][:, None] & np.where(np.arange(32) & 1, 0xFF, 0x80).astype(np.uint8)
    return blocks


def mxfp4_to_fp8(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """All codes at every distance 0..40 from every largest byte, empty blocks under huge bytes, NaN blocks, shapes."""
    yield "all codes at distances 0..40 from every largest byte", _distances()
    yield "zeros of both signs at every distance", _zero_distances()
    yield "tile maximum at every code, distances 0..16", _tile_maxima()
    yield "empty, NaN and ordinary blocks in every combination", _combinations()
    yield "one magnitude in every place of a block, beside a smaller block", _lone_places()
    alone = pack_nibbles(np.broadcast_to(NIBBLES, (256, 32)).copy())
    yield "every code under every byte, alone in its tile", {
        "packed": alone, "scales": np.arange(256, dtype=np.uint8)[:, None].copy()}  # fmt: skip
    for shape in SHAPES:
        codes, scales = CODED["apart"].make(Draw(sum(shape)), Layout(E2M1, 1, 32), shape, base=127, spread=18, empty=60,
                                            nan=20)  # fmt: skip
        yield f"shape {shape[0]}x{shape[1]}", {"packed": pack_nibbles(codes), "scales": scales}
    codes, scales = CODED["activations"].make(Draw(3), Layout(E2M1, 1, 32), (64, 512), spread=2, exponent=0)
    yield "activations", {"packed": pack_nibbles(codes), "scales": scales}


def _rows(codes: np.ndarray, scale_bytes: np.ndarray, columns: int = 1024) -> dict[str, np.ndarray]:
    """Tiles: codes u8 [n, 4, 32], bytes u8 [n, 4] -> packed and scales in rows of `columns`, zeros to fill up."""
    per_row = columns // 128
    missing = -len(codes) % per_row
    codes = np.concatenate([codes, np.zeros((missing, 4, 32), np.uint8)]).reshape(-1, columns)
    scale_bytes = np.concatenate([scale_bytes, np.zeros((missing, 4), np.uint8)]).reshape(-1, columns // 32)
    return {"packed": pack_nibbles(codes), "scales": scale_bytes.astype(np.uint8)}


def _distances() -> dict[str, np.ndarray]:
    """Tiles of one block at the largest byte and three at distances 0..41, its place rotating."""
    largest, distance = np.meshgrid(np.arange(255), np.arange(42).reshape(14, 3)[:, 0], indexing="ij")
    lower = largest.reshape(-1, 1) - distance.reshape(-1, 1) - np.arange(3)[None, :]
    keep = lower >= 0
    scale_bytes = np.concatenate([largest.reshape(-1, 1), np.maximum(lower, 0)], axis=1)
    codes = np.broadcast_to(NIBBLES, (len(lower), 4, 32)).copy()
    codes[:, 1:][~keep] &= 8  # a distance that does not exist becomes an empty block
    order = (np.arange(4)[None, :] - np.arange(len(lower))[:, None]) % 4
    return _rows(np.take_along_axis(codes, order[:, :, None], axis=1), np.take_along_axis(scale_bytes, order, axis=1))


def _zero_distances() -> dict[str, np.ndarray]:
    """A zero block lies 0..254 below, and above, the only block that is not empty; its code is 1."""
    number = np.arange(255)
    codes = np.zeros((510, 4, 32), np.uint8)
    codes[:, 0, 5] = 1
    codes[:, 1] = 8
    codes[:, 2, ::2] = 8
    base = np.concatenate([np.full(255, 254), number])
    other = np.concatenate([number, np.full(255, 254)])
    return _rows(codes, np.stack([base, other, other, other], axis=1))


def _tile_maxima() -> dict[str, np.ndarray]:
    """Tile maximum at each code 1..7 in each block, the others below it at distances 0..16 (rule `amax`)."""
    code, distance, place = (part.reshape(-1) for part in np.meshgrid(np.arange(1, 8), np.arange(17), np.arange(4),
                                                                      indexing="ij"))  # fmt: skip
    small = np.where(np.arange(32) & 1, 9, 1)
    codes = np.broadcast_to(small, (code.size, 4, 32)).astype(np.uint8)
    codes[:, :, 3] = 0
    codes[np.arange(code.size), place, 7] = code
    parts = []
    for largest in (0, 3, 6, 7, 9, 14, 127, 200, 246, 254):
        scale_bytes = np.repeat(np.maximum(largest - distance, 0)[:, None], 4, axis=1)
        scale_bytes[np.arange(code.size), place] = largest
        parts.append(scale_bytes)
    return _rows(np.tile(codes, (len(parts), 1, 1)), np.concatenate(parts))


def _lone_places() -> dict[str, np.ndarray]:
    """A block whose only element is each magnitude at each of 32 places, both signs; the next block is near it.

    A maximum that leaves a place out, or a test for emptiness that does, takes the other block's byte.
    """
    place, magnitude = (axis.reshape(-1) for axis in np.meshgrid(np.arange(32), np.arange(1, 8), indexing="ij"))
    rows = np.arange(place.size)
    codes = np.zeros((place.size, 128), np.uint8)
    codes[rows, place] = magnitude | (rows % 2) << 3
    codes[rows, 32 + (place + 1) % 32] = 1
    scales = np.full((place.size, 4), 127, np.uint8)
    scales[:, 1] = 120 + rows % 5
    return {"packed": pack_nibbles(codes), "scales": scales}


def _combinations() -> dict[str, np.ndarray]:
    """Every way to fill four blocks from: empty under byte 0, 127, 254; NaN with codes, without; three ordinary."""
    kinds = [(0, 0), (8, 127), (8, 254), (5, 255), (0, 255), (7, 120), (1, 127), (10, 3)]
    pick = np.stack(np.meshgrid(*[np.arange(len(kinds))] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    code, byte = (np.array(part, np.uint8) for part in zip(*kinds, strict=True))
    codes = np.zeros((len(pick), 4, 32), np.uint8)
    codes[:, :, ::3] = code[pick][:, :, None]
    return _rows(codes, byte[pick])
