"""Corners of operations that round floating-point values in blocks.

They implement the minimum input set that tells all known defects of block quantisers apart: every 16-bit
pattern as block maximum, every scale-rule boundary, every tie at every scale, specials in every lane.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import BF16, FP16, FP32, Format

from ..draw import VALUES, Draw
from ..draw.bits import as_float, assemble, exact, word
from ..draw.grid import as_arrays, grid, scale_thresholds
from ..draw.values import Target
from ..recipes.distributions import target_of
from .arrange import fill, lanes, matrix, rotate

Blocks = tuple[str, np.ndarray]

SPECIALS = {
    FP32: (0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF,
           0xFFFFFFFF, 0x7FC12345, 0x7FBFFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F600000, 0x7EC00001, 0x01400001,
           0x01C00001, 0x01800000, 0x00400000, 0x00400001, 0x00600000, 0x00000001, 0x80000001, 0x007FFFFF,
           0x00800000, 0x0D7FFFFF, 0x3E800001, 0x3E7FFFFF),
    BF16: (0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F81, 0xFF81, 0x7FFF, 0xFFFF, 0x7F7F, 0xFF7F, 0x7F60, 0x7EC0,
           0x0140, 0x0180, 0x01C0, 0x0040, 0x0041, 0x0060, 0x0001, 0x8001, 0x007F, 0x0080),
    FP16: (0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFC01, 0x7FFF, 0xFFFF, 0x7BFF, 0xFBFF, 0x7A00, 0x0001,
           0x8001, 0x03FF, 0x0400, 0x0401),
}  # fmt: skip
"""Patterns at which some implementation is known to be wrong, in each input format; zeros, Inf, NaN payloads first."""

SHAPES = ((0, 32), (0, 160), (1, 32), (1, 96), (3, 128), (2, 160), (5, 288), (31, 64), (33, 32), (1, 7168), (3, 256))
"""No rows, one block, a last tile with one to three blocks, odd row counts, DeepSeek-V3's hidden size; a payload row of
136 bytes."""


@functools.lru_cache(maxsize=3)
def quantizer_blocks(target: Target) -> tuple[Blocks, ...]:
    """Return (label, blocks u16 or u32 [n, B]) for a block quantiser; read-only, kept for the next variants."""
    found = (
        ("whole blocks of zeros, subnormals, Inf, NaN", uniform_blocks(target)),
        ("special values in every lane", special_blocks(target)),
        ("block maximum at every scale-rule step and one ulp beside", boundary_blocks(target)),
        ("every value and midpoint of the element format at every scale, and one ulp beside", tie_blocks(target)),
        ("every 16-bit pattern as block maximum, rotating lane", maximum_blocks(target)),
    )
    for _, blocks in found:
        blocks.flags.writeable = False
    return found


def maximum_blocks(target: Target) -> np.ndarray:
    """Every 16-bit pattern (widened from bfloat16 for float32) as the maximum, its lane rotating over the block.

    The other lanes hold the element format's ties within six binades below the maximum, one ulp to either
    side included, cut to the maximum. Blocks of NaN and Inf have finite companions.
    """
    fmt = target.input
    pattern = np.arange(1 << 16, dtype=np.uint32)
    if fmt is FP32:
        pattern = pattern << np.uint32(16)
    magnitude = pattern & np.uint32(fmt.sign_mask - 1)
    one = np.uint32(fmt.bias << fmt.mantissa_bits)
    base = np.where(magnitude > fmt.max_code, one, magnitude).astype(np.int32)
    blocks: np.ndarray = np.empty((pattern.size, target.block), word(fmt))
    blocks[:, 0] = pattern
    drops, fractions, nudges = companions(target)
    number = np.arange(pattern.size, dtype=np.int32)
    for lane in range(1, target.block):  # a column at a time: the temporaries stay small
        pick = (number * 31 + lane) % drops.size
        binade = (base >> fmt.mantissa_bits) - drops[pick]
        other = np.maximum((np.maximum(binade, 0) << fmt.mantissa_bits) + fractions[pick] + nudges[pick], 0)
        other = np.minimum(np.where(binade < 0, nudges[pick] + 1, other), base)
        blocks[:, lane] = other | np.where((number + lane) & 1, fmt.sign_mask, 0)
    return rotate(blocks, lanes(pattern.size, target.block))


@functools.cache
def companions(target: Target) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (binades below the maximum, fraction, ulps) of the ties that fill a block, i32 each."""
    fmt, element = target.input, target.element
    width = element.fraction_bits if element.kind == "integer" else element.mantissa_bits
    halves = min(width + 1, fmt.mantissa_bits)
    found = [
        (drop, step << (fmt.mantissa_bits - halves), nudge)
        for drop in range(6)
        for step in range(1 << halves)
        for nudge in (0, 1, -1)
    ]
    drops, fractions, nudges = (np.array(part, np.int32) for part in zip(*found, strict=True))
    return drops, fractions, nudges


def boundary_blocks(target: Target) -> np.ndarray:
    """Maxima 2**k times every scale-rule step, and one ulp to either side, for every k the input format has."""
    fmt = target.input
    steps = np.array([int(step * 2**23) for step in scale_thresholds(target.element)], np.uint32)
    low, high = 1 - fmt.bias - fmt.mantissa_bits, fmt.bias
    k = np.arange(low, high + 1, dtype=np.int32)
    top = assemble(fmt, steps[None, :, None], (k[:, None, None] - 23)).astype(np.int64)
    top = np.clip(top + np.array([-1, 0, 1]), 1, fmt.max_code).reshape(-1)
    top = np.unique(top).astype(np.uint32)
    drops, fractions, nudges = companions(target)
    number, lane = np.arange(top.size, dtype=np.int64)[:, None], np.arange(target.block - 1)[None, :]
    pick = (number * 31 + lane) % drops.size
    base = top.astype(np.int64)[:, None]
    other = ((base >> fmt.mantissa_bits) - drops[pick] << fmt.mantissa_bits) + fractions[pick] + nudges[pick]
    other = np.where(other > base, other - (1 << fmt.mantissa_bits), other)
    other = np.clip(other, 0, base).astype(np.uint32) | np.where((number + lane) & 1, np.uint32(fmt.sign_mask), 0)
    blocks = np.concatenate([top[:, None] | np.where(number & 1, np.uint32(fmt.sign_mask), 0), other], axis=1)
    return rotate(blocks.astype(word(fmt)), lanes(top.size, target.block))


def tie_blocks(target: Target) -> np.ndarray:
    """Every value, midpoint and the overflow threshold of the element format, and one ulp beside, at every scale.

    At scale 2**k the block maximum is pinned at 2**emax, at the largest value and one ulp below twice 2**emax,
    which fixes the scale for every rule; values above the pin are left out.
    """
    fmt, element = target.input, target.element
    significand, exponent = as_arrays(grid(element))
    k = np.arange(-127, 128, dtype=np.int32)
    pattern, ok = exact(fmt, significand[None, :], exponent[None, :] + k[:, None])
    near = np.stack([pattern, np.maximum(pattern, 1) - 1, pattern + 1], axis=2)
    near = np.where(ok[:, :, None] & (near <= fmt.max_code), near, 0).reshape(k.size, -1).astype(np.uint32)
    both = np.concatenate([near, near | np.uint32(fmt.sign_mask)], axis=1)
    top = significand[-2], exponent[-2]  # the largest value; the last point is the overflow threshold
    pins = [
        assemble(fmt, np.uint32(1), element.emax + k),
        assemble(fmt, top[0], top[1] + k),
        assemble(fmt, np.uint32((1 << fmt.mantissa_bits + 1) - 1), element.emax + k - fmt.mantissa_bits),
    ]
    parts = []
    for pin in pins:
        kept = np.where((both & np.uint32(fmt.sign_mask - 1)) <= pin[:, None], both, 0)
        parts.append(fill(kept, pin, target.block))
    blocks = np.concatenate(parts)
    return rotate(blocks, lanes(len(blocks), target.block)).astype(word(fmt))


def special_blocks(target: Target) -> np.ndarray:
    """Each special in every lane of a block of zeros, of ones and of the smallest subnormals; Inf beside NaN."""
    fmt = target.input
    one = np.uint32(fmt.bias << fmt.mantissa_bits)
    special = np.array(SPECIALS[fmt], np.uint32)
    alternate = np.where(np.arange(target.block) & 1, np.uint32(fmt.sign_mask), np.uint32(0))
    grounds = [alternate & 0, alternate | one, alternate | np.uint32(1)]
    parts = []
    for ground in grounds:
        block = np.broadcast_to(ground, (special.size, target.block, target.block)).copy()
        lane = np.arange(target.block)
        block[:, lane, lane] = special[:, None]
        parts.append(block.reshape(-1, target.block))
    pair = np.broadcast_to(grounds[1], (target.block, target.block)).copy()
    lane = np.arange(target.block)
    pair[lane, lane] = special[2]
    pair[lane, target.block - 1 - lane] = special[4]
    return np.concatenate([*parts, pair]).astype(word(fmt))


def uniform_blocks(target: Target) -> np.ndarray:
    """Blocks of one special throughout, of consecutive subnormals, and of the lowest and highest binades."""
    fmt = target.input
    special = np.array(SPECIALS[fmt], np.uint32)
    same = np.repeat(special[:, None], target.block, axis=1)
    ramp = np.arange(target.block, dtype=np.uint32)[None, :]
    starts = np.array(
        [
            0,
            1,
            2,
            1 << fmt.mantissa_bits - 2,
            (1 << fmt.mantissa_bits) - target.block // 2,
            (2 << fmt.mantissa_bits) - 8,
            fmt.max_code - target.block,
        ],
        np.int64,
    )[:, None]
    ramps = np.maximum(starts + ramp, 0).astype(np.uint32)
    falling = np.uint32(fmt.max_code) - (ramp << np.uint32(fmt.mantissa_bits - 2)) % np.uint32(fmt.max_code)
    return np.concatenate([same, ramps, ramps | np.uint32(fmt.sign_mask), falling]).astype(word(fmt))


def quantizer_corners(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield (label, {"x": [M, K]}) for `quantize_mxfp4`, `quantize_mx` and `quantize_fp8_tiles`."""
    target = target_of(operation, params)
    square = tuple(params.get("tile", ())) == (128, 128)
    for label, blocks in quantizer_blocks(target):
        if square:  # a tile of one row holds one block: tiles differ along K only
            blocks = blocks if len(blocks) < 1 << 13 else blocks[3::37]
            yield f"{label} (tiles of one row)", {"x": as_float(blocks.reshape(1, -1), target.input)}
        else:
            yield label, {"x": as_float(matrix(blocks, 1024), target.input)}
    if square:
        yield from _square(target)
    else:
        yield "all 16-bit patterns in sequence", {"x": as_float(sequence(target.input, 1024), target.input)}
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", {"x": as_float(_content(target, shape), target.input)}
    for name in ("normal", "heavy", "channels", "specials", "bits"):
        distribution = VALUES[name]
        bits = distribution.make(Draw(16), target, (128, 512), **distribution.simple)
        yield f"{name} data", {"x": as_float(bits, target.input)}


def sequence(fmt: Format, columns: int) -> np.ndarray:
    """Return all 16-bit patterns in order, in the upper half of float32 ones: [65536 / columns, columns]."""
    pattern = np.arange(1 << 16, dtype=np.uint32) << np.uint32(fmt.bits - 16)
    return pattern.reshape(-1, columns)


def _content(target: Target, shape: tuple[int, int]) -> np.ndarray:
    """Data in which every element differs from its neighbours and every block from the next."""
    spread = VALUES["distances"]
    return spread.make(Draw(shape[0] * 8192 + shape[1]), target, shape, **spread.simple)


def _square(target: Target) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The maximum of a 128x128 tile in every row and every column of it, and tiles cut off below and right."""
    fmt = target.input
    lane = np.arange(128)
    x = np.full((128, 128, 128), fmt.bias << fmt.mantissa_bits, np.uint32)
    x[lane, lane, (lane * 37) % 128] = (fmt.bias + 3 << fmt.mantissa_bits) + (lane << fmt.mantissa_bits - 7)
    yield "maximum in every row and column of a 128x128 tile", {"x": as_float(x.reshape(-1, 128), fmt)}
    for shape in ((127, 128), (129, 128), (130, 160), (257, 96)):
        yield f"ragged tiles {shape[0]}x{shape[1]}", {"x": as_float(_content(target, shape), fmt)}
