"""Corners of DGE and OCC (N25): both ends and the middle of each interval, and vectors whose thresholds are special."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import BF16, FP32, Format

from ..draw.bits import as_float, word
from ..recipes.distributions import target_of
from .casts import encoders
from .floats import SPECIALS

Corner = tuple[str, dict[str, np.ndarray]]
BOUNDS = (0x3E800000, 0x3F000000, 0x3F400000, 0x3F800000, 0x3FA00000, 0x3FC00000, 0x3FE00000, 0x40000000, 0x40200000,
          0x40400000, 0x40600000, 0x40800000, 0x40A00000, 0x40C00000)  # fmt: skip
"""float32 bits of the middles and the upper bounds of the intervals of E2M1."""
TINY = (0x2F800000, 0x3B800000, 0x33800000, 0x34000000, 0x00800000)
"""Powers of two below which a place is that of 0, has another unit, or is lost in a float32 sum with 1/2 or 1."""
SHAPES = ((0, 5), (5, 0), (1, 1), (1, 2), (2, 1), (1, 99), (1, 100), (1, 101), (100, 1), (101, 1), (10, 10), (3, 200),
          (200, 3), (33, 67), (1, 4097), (4097, 1), (128, 512))  # fmt: skip


def near(fmt: Format) -> np.ndarray:
    """The patterns beside each bound, 24 on either side and some further, of both signs [2, n]."""
    shift = FP32.bits - fmt.bits
    centre = np.array(BOUNDS + TINY, np.int64)[:, None] >> shift
    steps = np.concatenate([np.arange(-24, 25), [-4097, -511, 511, 4097]])
    bits = np.clip(centre + steps, 0, (1 << fmt.bits - 1) - 1).reshape(-1)
    return np.stack([bits, bits | 1 << fmt.bits - 1]).astype(word(fmt))


def beside_middles(k: int) -> np.ndarray:
    """Float32 bits in every interval beside the places whose slope is the middle of two bfloat16 up to 4, k above 1."""
    middles = ((np.arange(128, 256) + 0.5)[None, :] * 2.0 ** np.arange(-12, -5)[:, None]).reshape(-1)
    middles = middles[middles * k > 1]
    place = (k * middles) ** (-k / (k - 1))
    ends = np.array((0, *BOUNDS[1::2]), np.uint32).view(np.float32).astype(np.float64)
    low, half = ends[:-1, None, None], np.diff(ends)[:, None, None] / 2
    x = (low + half * (1 + np.array([-1, 1])[:, None] * place)).astype(np.float32).view(np.uint32)
    found: np.ndarray = np.unique(x[..., None].astype(np.int64) + np.arange(-1, 2)).clip(0).astype(np.uint32)
    return found


HARD = (0x3C2414D5, 0x3DE85F2B, 0x3DEDCFF4, 0x3D24F581, 0x3E02463F, 0x3DF7D441, 0x3CB0B166, 0x3D6F4DC6,
        0x3C531D10, 0x3DCC2A86, 0x3C8F6B61, 0x3D19A1C9, 0x3CE55806, 0x3D40F8B8, 0x3C37A698, 0x3DCC6C5E)  # fmt: skip
"""float32 bits of numbers whose slope, k 5, is within 2**-21 of a unit of the middle of two float32: above it by the
first eight, below it by the others. A good estimate of float64 decides them, one of 2**-45 does not."""


UNDECIDED = ((13, 0x38B3C59D), (14, 0x3989D923))
"""k and float32 bits of a number whose slope rounds to a middle of two float32 in float64, but lies below it: the only
ones for k of 2 to 16 below 1/2, where every place occurs."""
CAPS = (2.0**-133, 0.125, 255 * 2.0**92, 2.0**100, 255 * 2.0**120)
"""Caps at both ends, below 1/k, and on both sides of 2**100: only the slope of 0 is above the last ones."""

LOW_CAPS = ((1, 0.5), (2, 0.375), (16, 2.0**-5))
"""k that variants do not have, among them that without a power, and caps that every slope is above."""


def dge(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Both ends and the middle of each interval and the numbers beside them, under any cap; what the encoders have."""
    fmt = target_of(operation, params).input
    beside = near(fmt)
    yield "the numbers beside each bound and each middle", {"x": as_float(beside, fmt)}
    nearest = beside.reshape(2, -1, 53)[..., 22:27].copy()
    for cap in CAPS:
        yield f"beside each bound and each middle, cap {cap:g}", {"x": as_float(nearest, fmt)}, {"cap": cap}
    for k, cap in LOW_CAPS:
        yield f"k {k}, cap {cap:g} below 1/k", {"x": as_float(nearest, fmt)}, {"k": k, "cap": cap}
    if fmt is FP32:
        yield "the numbers beside the middles of results", {"x": as_float(beside_middles(int(params["k"])), fmt)}
        yield "numbers whose slope is beside a middle of results", {"x": as_float(np.array(HARD, np.uint32), fmt)}
        for k, bits in UNDECIDED:
            x = as_float(np.array([bits], np.uint32), fmt)
            yield f"a slope that float64 does not decide, k {k}", {"x": x}, {"k": k}
    yield from encoders(operation, params)


def _content(shape: tuple[int, int], seed: int, fmt: Format) -> np.ndarray:
    """Patterns of many sizes and both signs in which few are alike."""
    place = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape) + np.uint32(seed)
    mixed = place * np.uint32(2654435761) ^ (place >> np.uint32(3)) * np.uint32(40503)
    exponent = np.uint32(118) + (mixed >> np.uint32(9)) % np.uint32(14)
    bits = mixed & np.uint32(0x807FFFFF) | exponent << np.uint32(23)
    return (bits >> np.uint32(FP32.bits - fmt.bits)).astype(word(fmt))


def occ(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every shape about a multiple of 100; vectors that are alike, of zeros, of NaN and Inf; every 16-bit pattern."""
    fmt = target_of(operation, params).input
    for number, shape in enumerate(SHAPES):
        yield f"shape {shape[0]}x{shape[1]}", {"x": as_float(_content(shape, number, fmt), fmt)}
    zeros: np.ndarray = np.zeros((20, 110), word(fmt))
    zeros[::2, ::3] = zeros[1::3, 1::2] = 1 << fmt.bits - 1
    yield "zeros of both signs", {"x": as_float(zeros, fmt)}
    yield "one number", {"x": as_float(np.full((12, 130), SPECIALS[fmt][20], word(fmt)), fmt)}
    for count in (1, 2, 60, 128):
        spoiled = _content((128, 128), 7 * count, fmt)
        spoiled[:count] = SPECIALS[fmt][4]
        spoiled[:, :count:2] = SPECIALS[fmt][2]
        spoiled[:, 1:count:2] = SPECIALS[fmt][3]
        yield f"{count} rows of NaN beside columns of Inf", {"x": as_float(spoiled, fmt)}
    far = _content((128, 128), 9, fmt)
    far[np.arange(128), np.arange(128)] = (148 << fmt.mantissa_bits) - 1
    yield "one number far beyond the others in each row and column", {"x": as_float(far, fmt)}
    special: np.ndarray = np.array(SPECIALS[fmt], word(fmt))
    yield "special values", {"x": as_float(np.resize(special, (len(special), len(special))), fmt)}
    pattern = np.arange(1 << 16, dtype=np.uint32) << np.uint32(FP32.bits - 16 if fmt is not BF16 else 0)
    yield "every 16-bit pattern", {"x": as_float(pattern.astype(word(fmt)).reshape(256, 256), fmt)}
