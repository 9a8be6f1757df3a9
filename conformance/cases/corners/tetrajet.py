"""Corners of TetraJet (N24): maxima beside each step of each rule, averages beside the middle of two neighbours."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum import philox
from refnum.formats import FP32, Format

from ..draw.bits import as_float, word
from ..recipes.distributions import target_of
from .arrange import rotate
from .floats import quantizer_blocks

Corner = tuple[str, dict[str, np.ndarray]]
SHAPES = ((0, 32), (1, 32), (2, 96), (31, 64), (32, 32), (33, 160), (65, 32), (130, 64), (1, 7168))
TOPS = np.array([0x40800000, 0x40C00000, 0x40C0C000, 0x41000000], np.int64)
"""4, 6, 6 * (1 + 2**-8) and 8: where the exponent of a scale steps, by one rule or another."""
TIES = np.array([0x3E800000, 0x3F400000, 0x3FA00000, 0x3FE00000, 0x40200000, 0x40600000, 0x40A00000], np.int64)
"""The midpoints of E2M1: 0.25, 0.75, 1.25, 1.75, 2.5, 3.5 and 5."""
LEVELS = np.array([0, 0x3F000000, 0x3F800000, 0x3FC00000, 0x40000000, 0x40400000, 0x40800000, 0x40C00000], np.int64)
LEAST = np.array([0x01400000, 0x01418000], np.int64)
"""6 * 2**-127 and 6 * 2**-127 * (1 + 2**-7): where the subnormal ratio of a maximum rounds to the least power, or
above."""
UNIT = 1 << 23


def laid(blocks: np.ndarray, axis: int, columns: int = 256) -> np.ndarray:
    """Lay blocks [n, 32] out along rows, or down columns; the last rows are filled up with zeros."""
    width = columns // 32 if axis else columns
    missing = -len(blocks) % width
    whole = np.concatenate([blocks, np.zeros((missing, 32), blocks.dtype)])
    if axis:
        return np.ascontiguousarray(whole.reshape(-1, columns))
    down = whole.reshape(-1, columns, 32).transpose(0, 2, 1)
    return np.ascontiguousarray(down.reshape(-1, columns))


def narrowed(bits: np.ndarray, fmt: Format) -> np.ndarray:
    """Float32 patterns in the input format: as they are, or their upper halves."""
    return (bits if fmt is FP32 else bits >> np.uint32(16)).astype(word(fmt))


def nudged(values: np.ndarray, fmt: Format) -> np.ndarray:
    """Patterns of positive float32 [n] and their neighbours in the input format, [n, 3] as float32 patterns."""
    ulp = 1 if fmt is FP32 else 1 << 16
    return np.clip(values[:, None] // ulp * ulp + np.array([0, ulp, -ulp]), 0, 0x7F7FFFFF // ulp * ulp)


@functools.cache
def edge_blocks(fmt: Format) -> np.ndarray:
    """Blocks whose maximum lies at a step of a rule at every scale, or one ulp beside; the others lie near ties."""
    k = np.arange(-131, 126, dtype=np.int64) * UNIT
    tops = np.clip(TOPS[None, :] + k[:, None], 1, 0x7F7FFFFF)
    near = nudged(tops.reshape(-1), fmt).reshape(len(k), -1)
    ties = nudged(TIES, fmt).reshape(-1)
    others = ties[None, :] + k[:, None]
    others = np.where(others < UNIT, (np.arange(21) * 3)[None, :] << (0 if fmt is FP32 else 16), others)
    blocks = np.zeros((len(k), near.shape[1], 32), np.int64)
    blocks[:, :, 0] = near
    blocks[:, :, 1:22] = np.minimum(others[:, None, :], near[:, :, None])
    blocks[:, :, 22:29] = blocks[:, :, 1:22:3]
    rows = blocks.reshape(-1, 32)
    turned = rotate(rows, np.arange(len(rows)) % 32)
    sign = (np.arange(turned.size).reshape(turned.shape) % 3 == 1) << 31
    blocks = narrowed((turned | sign).astype(np.uint32), fmt)
    blocks.flags.writeable = False  # kept for the next variants
    return blocks


def least_blocks(fmt: Format) -> np.ndarray:
    """Blocks whose maximum has a ratio beside the least normal number, above elements down to nothing."""
    ulp = 1 if fmt is FP32 else 1 << 16
    tops = np.unique((LEAST[:, None] // ulp + np.arange(-3, 4)).reshape(-1) * ulp)
    blocks = tops[:, None] * np.arange(32, 0, -1) // 32
    return narrowed(blocks.astype(np.uint32), fmt)


def content(shape: tuple[int, int], fmt: Format, seed: int = 0) -> np.ndarray:
    """Numbers of many sizes in which neighbours and blocks differ."""
    place = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape) + np.uint32(977 * seed)
    mixed = place * np.uint32(2654435761) ^ (place >> np.uint32(5)) * np.uint32(40503)
    exponent = np.uint32(121) + (mixed >> np.uint32(9)) % np.uint32(8) + (place >> np.uint32(5)) % np.uint32(5)
    return narrowed(mixed & np.uint32(0x807FFFFF) | exponent << np.uint32(23), fmt)


def _fixed(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Blocks in the input format by label: those of all quantisers, thinned, and those of these rules."""
    target = target_of(operation, params)
    for label, blocks in quantizer_blocks(target):
        yield label, blocks if len(blocks) < 4096 else blocks[5 :: 1 + len(blocks) // 2048]
    yield "maxima at each step of each rule and one ulp beside", edge_blocks(target.input)
    yield "maxima beside the least ratio", least_blocks(target.input)


def quantize_tetrajet(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Maxima at the steps, ties, specials in every lane, shapes, and random bytes beside all of them."""
    fmt, axis = target_of(operation, params).input, int(params["axis"])
    for label, blocks in _fixed(operation, params):
        yield label, {"x": as_float(laid(blocks, axis), fmt)}
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", {"x": as_float(content(shape, fmt), fmt)}
    x = as_float(laid(edge_blocks(fmt)[::4], axis), fmt)
    yield "random bytes", {"x": x, "rbits": philox.random_bits(x.shape, 8, seed=24)}
    ends = np.where(np.arange(x.size).reshape(x.shape) & 1, np.uint8(255), np.uint8(0)).astype(np.uint8)
    yield "random bytes 0 and 255", {"x": x, "rbits": ends}


def near_middles(fmt: Format) -> tuple[np.ndarray, np.ndarray]:
    """Weights at every code and between codes, and averages at the middles beside them: blocks [n, 32] of each."""
    middle = np.append(TIES, 0x40C00000)
    weights = np.concatenate([nudged(LEVELS[1:], fmt).reshape(-1), TIES, [0, 0x3DCCCCCD, 0x3F19999A]])
    averages = np.concatenate([nudged(middle, fmt).reshape(-1), [0, 0x7F800000, 0x7FC00000, 0x41900000]])
    left, right = (part.reshape(-1) for part in np.meshgrid(weights, averages, indexing="ij"))
    signs = np.arange(left.size) % 2 << 31
    pairs = []
    for part, sign in ((left, signs), (right, np.where(np.arange(left.size) % 5 == 0, 1 << 31, 0) ^ signs)):
        flat = np.zeros(-(-left.size // 31) * 31, np.int64)
        flat[: left.size] = part | sign
        block = np.full((flat.size // 31, 32), LEVELS[7], np.int64)  # a 6 pins the scale at 1
        block[:, 1:] = flat.reshape(-1, 31)
        pairs.append(narrowed(block.astype(np.uint32), fmt))
    return pairs[0], pairs[1]


def q_ema(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Averages at the middles of neighbours, averages that are the weights themselves, their negatives and others."""
    fmt, axis = target_of(operation, params).input, int(params["axis"])
    w, ema = near_middles(fmt)
    yield "averages at the middle of neighbours and one ulp beside", {
        "w": as_float(laid(w, axis), fmt), "ema": as_float(laid(ema, axis), fmt)}  # fmt: skip
    for label, blocks in _fixed(operation, params):
        w = laid(blocks, axis)
        for how, other in (("itself", w), ("a neighbour's", np.roll(w, 1, axis=axis))):
            yield f"{label}, the average {how}", {"w": as_float(w, fmt), "ema": as_float(other.copy(), fmt)}
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", {
            "w": as_float(content(shape, fmt), fmt), "ema": as_float(content(shape, fmt, 1), fmt)}  # fmt: skip
