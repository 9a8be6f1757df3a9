"""Corners of TetraJet-v2 (N24): maxima beside the steps of both scales, ties of elements under every inner scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.codec import decode_table
from refnum.formats import E4M3, FP32, Format
from refnum.tetrajet_v2 import tetrajet_v2_noise

from ..draw.bits import as_float, word
from ..recipes.distributions import target_of
from .floats import SPECIALS
from .nvfp4 import narrowed
from .tetrajet import TIES, UNIT, content, nudged

Corner = tuple[Any, ...]
SHAPES = ((0, 128), (1, 128), (3, 256), (33, 384), (2, 7168))
SEEDS = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)
TOP = 0x45280000
"""float32 bits of 2688, under which the outer scale is 1."""
INNER = np.asarray(decode_table(E4M3), np.uint32)[1:0x7F]
"""float32 bits of the positive E4M3 numbers."""

TWICE_ROUNDED = (0x3F81AAAB, 0x3F825555)
"""float32 bits of outer scales three times which is just above, and just below, the middle of two bfloat16 numbers that
the float32 product is: rounded once and not twice (N24.11), it is the other one."""


def grouped(blocks: np.ndarray, top: int = TOP) -> np.ndarray:
    """Groups of 128 made of a block with a given maximum, zeros otherwise, and seven blocks [n, 16]; rows of 1,024."""
    missing = np.zeros((-len(blocks) % 56, 16), blocks.dtype)
    sevens = np.concatenate([blocks, missing]).reshape(-1, 7, 16)
    first = np.zeros((len(sevens), 1, 16), blocks.dtype)
    first[:, 0, 5] = top
    return np.concatenate([first, sevens], axis=1).reshape(-1, 1024)


def _ulp(fmt: Format) -> int:
    return 1 if fmt is FP32 else 1 << 16


def _sixfold(bits: np.ndarray) -> np.ndarray:
    """float32 bits of six times a number of few bits."""
    return (bits.view(np.float32) * np.float32(6)).view(np.uint32).astype(np.int64)


def tied(fmt: Format) -> np.ndarray:
    """Under each inner scale a block whose maximum gives it, with every tie of E2M1 and its neighbours."""
    scales = np.repeat(INNER, 2)
    near = nudged(TIES, fmt).reshape(-1)
    halves = np.stack([near[:15], near[-15:]])
    factors = halves[np.arange(len(scales)) % 2].astype(np.uint32).view(np.float32)
    members = (factors * scales.view(np.float32)[:, None]).view(np.uint32).astype(np.int64)
    members |= (np.arange(members.size).reshape(members.shape) % 7 < 3).astype(np.int64) << 31
    return np.concatenate([_sixfold(scales)[:, None], members], axis=1).astype(np.uint32)


def stepped(fmt: Format) -> np.ndarray:
    """Blocks whose sixth lies in the middle of two inner scales, at one of them, or one ulp beside."""
    wide = np.concatenate([np.zeros(1, np.uint32), INNER]).view(np.float32).astype(np.float64)
    points = np.concatenate([wide[1:], (wide[1:] + wide[:-1]) / 2, [464, 480]]) * 6
    near = nudged(points.astype(np.float32).view(np.uint32).astype(np.int64), fmt).reshape(-1)
    near = near[near <= TOP]
    lanes = np.array([0, 3, 7, 11], np.int64)
    blocks = np.zeros((len(near), 16), np.int64)
    for step, share in enumerate((1.0, 0.75, 0.5, 0.25)):
        size = (near.astype(np.uint32).view(np.float32) * np.float32(share)).view(np.uint32).astype(np.int64)
        blocks[np.arange(len(near)), (lanes[step] + np.arange(len(near))) % 16] = size | (step % 2) << 31
    return blocks.astype(np.uint32)


def maxima(fmt: Format) -> np.ndarray:
    """Rows of 1,024 whose groups have maxima of every exponent, at and beside 2688 powers of two."""
    k = np.arange(-137, 117, dtype=np.int64) * UNIT
    near = nudged(np.clip(TOP + k, 1, 0x7F7FFFFF), fmt).reshape(-1)
    rows = np.zeros((-(-len(near) // 8) * 8, 128), np.int64)
    place = np.arange(len(near))
    rows[place, place * 37 % 128] = near
    for step in range(1, 12):
        lower = np.maximum(near - step * UNIT * 2, 0) // _ulp(fmt) * _ulp(fmt)
        rows[place, (place * 37 + 11 * step) % 128] = lower | (step % 2) << 31
    return rows.astype(np.uint32).reshape(-1, 1024)


def led_to_ties(seed: int) -> np.ndarray:
    """Under scales of 1, numbers that the noise of a seed takes to a tie of E2M1, or an ulp beside it."""
    place = np.arange(12 * 1024).reshape(12, 1024)
    tie = TIES.astype(np.uint32).view(np.float32)[place % 7].astype(np.float64)
    step = np.where(tie < 2, 0.5, np.where(tie < 4, 1.0, 2.0))
    exact = (tie - tetrajet_v2_noise(place.shape, seed) * step).astype(np.float32)
    near = exact.view(np.uint32).astype(np.int64) + place // 7 % 3 - 1 | place // 3 % 2 << 31
    blocks = np.where(place % 16 == place // 16 % 16, 0x40C00000, near.clip(0)).astype(np.uint32)
    blocks[:, 5::128] = TOP
    return blocks


def _fixed(fmt: Format) -> Iterator[tuple[str, np.ndarray]]:
    yield "ties under every inner scale", as_float(narrowed(grouped(tied(fmt)), fmt), fmt)
    yield "maxima beside every step of an inner scale", as_float(narrowed(grouped(stepped(fmt)), fmt), fmt)
    yield "maxima beside every step of an outer scale", as_float(narrowed(maxima(fmt), fmt), fmt)
    special: np.ndarray = np.array(SPECIALS[fmt], word(fmt))
    yield "special values alone", as_float(np.repeat(special[:, None], 128, axis=1), fmt)
    amid = content((2 * len(special), 128), fmt, 3)
    for place in range(len(amid)):
        amid[place, place % 128 :: 37 if place % 2 else 128] = special[place // 2]
    yield "special values amid numbers", as_float(amid, fmt)
    mixed = np.resize(special, (len(special), 128 * 3))
    yield "special values beside each other", as_float(mixed, fmt)


def quantize_tetrajet_v2(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Ties, steps of both scales, specials, shapes; with a seed, other seeds too."""
    fmt = target_of(operation, params).input
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", {"x": as_float(content(shape, fmt), fmt)}
    for label, x in _fixed(fmt):
        yield label, {"x": x}
    if params["seed"] is not None:
        for seed in SEEDS:
            yield f"seed {seed}", {"x": as_float(content((9, 1024), fmt, 5), fmt)}, {"seed": seed}
            if fmt is FP32:
                yield f"led to ties by seed {seed}", {"x": as_float(led_to_ties(seed), fmt)}, {"seed": seed}


def dequantize_tetrajet_v2(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every code under every inner scale and outer scales of every size; zeros, Inf and NaN among these; shapes."""
    codes: np.ndarray = np.tile(np.arange(16, dtype=np.uint8), (256, 8))
    scales = (np.arange(256)[:, None] + 32 * np.arange(8)).astype(np.uint8)
    sizes: list[int] = [0, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0x3F800001, 0x3FFFFFFF, 0x7F7FFFFF, 0x7F800000,
                        0x7FC00000, 0x7F800001, 0x3F000000, 0x7E967699, 0x01400001, 0x7D800000, 0x33333333]  # fmt: skip
    patterns = np.array([size | sign for size in sizes for sign in (0, 1 << 31)], np.uint32)
    parts = {"small and large": patterns[:16], "special": patterns[16:]}
    if params["dtype"] == "bfloat16":
        parts["whose products are rounded twice"] = np.array(TWICE_ROUNDED, np.uint32).repeat(8)  # a power of two each
    for part, numbers in parts.items():
        outer = np.resize(numbers, (256, 1)).view(np.float32)
        yield f"every code and scale, outer scales {part}", {
            "packed": pack_nibbles(codes), "scales": scales, "outer": outer}  # fmt: skip
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", stored(shape)


def stored(shape: tuple[int, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Codes and both scales of a shape, neighbours of which differ."""
    m, k = shape
    place = np.arange(m * k, dtype=np.uint32).reshape(shape) + np.uint32(seed)
    mixed = place * np.uint32(2654435761) ^ place >> np.uint32(7)
    inner = mixed[:, : k // 16] >> np.uint32(9) & np.uint32(0x7F)
    outer = mixed[:, : k // 128] & np.uint32(0x7FFFFF) | np.uint32(0x3F000000)
    return {"packed": pack_nibbles((mixed >> np.uint32(28)).astype(np.uint8)),
            "scales": np.minimum(inner, np.uint32(0x7E)).astype(np.uint8),
            "outer": np.ascontiguousarray(outer).view(np.float32)}  # fmt: skip
