"""Distributions of coded inputs: FP8 codes with tile scales, MX codes with block scales, and scale bytes alone.

Each function takes (draw, layout, shape, **parameters) and returns (codes u8 [M, K], scales u8), both unpacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import refnum
from refnum.arrays import unpack_nibbles
from refnum.formats import BF16, Format

from .bits import as_float, high_product
from .values import Target, channels
from .words import Draw, repeated

Array = Any

EDGE_BYTES = np.array([0, 1, 5, 6, 7, 8, 13, 14, 126, 127, 128, 246, 247, 248, 252, 253, 254, 255], np.uint8)
"""Scale bytes at which a rule clamps, a decoder flushes to zero, or a value stops being finite."""


@dataclass(frozen=True)
class Layout:
    """The element format of the codes and the (rows, columns) that one scale byte covers."""

    element: Format
    rows: int
    columns: int

    def grid(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Shape of the scales of codes [M, K]."""
        return -(-shape[0] // self.rows), -(-shape[1] // self.columns)

    def spread(self, values: Array, shape: tuple[int, int]) -> Array:
        """Repeat the value of each scale block for each of its elements."""
        wide = repeated(values, self.columns, self.rows)
        return wide[: shape[0], : shape[1]]


def zero(draw: Draw, layout: Layout, shape: tuple[int, int], base: int = 127) -> tuple[Array, Array]:
    """Codes 0 under the scale byte `base`."""
    return draw.zeros(shape, np.uint8), draw.zeros(layout.grid(shape), np.uint8) + np.uint8(base)


def uniform(
    draw: Draw, layout: Layout, shape: tuple[int, int], base: int = 127, spread: int = 0
) -> tuple[Array, Array]:
    """Uniform codes, NaN included, under bytes base-spread..base+spread, clipped to 0..254."""
    codes = draw.below(1 << layout.element.bits, *shape).astype(np.uint8)
    return codes, near(draw, layout.grid(shape), base, spread)


def near(draw: Draw, shape: tuple[int, int], base: int, spread: int) -> Array:
    """Bytes base-spread..base+spread, clipped to 0..254."""
    return np.clip(draw.between(base - spread, base + spread, *shape), 0, 254).astype(np.uint8)


def finite(draw: Draw, layout: Layout, shape: tuple[int, int]) -> Array:
    """Finite codes; the magnitudes of each block of 32 stay below a limit drawn for the block."""
    rows, columns = shape
    fmt = layout.element
    limit = draw.below(fmt.max_code + 1, rows, -(-columns // 32)) + np.uint32(1)
    wide = repeated(limit, 32)[:, :columns]
    magnitude = high_product(draw.words(*shape), wide)
    sign = draw.words(*shape) & np.uint32(fmt.sign_mask)
    if fmt.kind == "integer":  # two's complement: the sign bit is the complement plus one
        mask = np.uint32((1 << fmt.bits) - 1)
        return np.where(sign != 0, (~magnitude + np.uint32(1)) & mask, magnitude).astype(np.uint8)
    return (magnitude | sign).astype(np.uint8)


def apart(
    draw: Draw, layout: Layout, shape: tuple[int, int], base: int = 127, spread: int = 14, empty: int = 0, nan: int = 0
) -> tuple[Array, Array]:
    """Finite codes in blocks up to `spread` binades below `base`.

    Args:
        draw: the source of random integers.
        layout: the element format and what one scale byte covers.
        shape: [M, K].
        base: the largest scale byte.
        spread: binades.
        empty: chance in 256 of a block of signed zeros under any byte 0..254; no maximum may count the block.
        nan: chance in 256 of a block under byte 255 that keeps its codes.
    """
    codes = finite(draw, layout, shape)
    cells = layout.grid(shape)
    scales = np.clip(draw.between(base - spread, base, *cells), 0, 254).astype(np.uint8)
    blank, poisoned = draw.chance(empty, *cells), draw.chance(nan, *cells)
    zeros = codes & np.uint8(0 if layout.element.kind == "integer" else layout.element.sign_mask)
    codes = np.where(layout.spread(blank, shape), zeros, codes)
    scales = np.where(blank, draw.below(255, *cells).astype(np.uint8), scales)
    return codes, np.where(poisoned, np.uint8(255), scales)


def edges(draw: Draw, layout: Layout, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Uniform codes under scale bytes at the edges, 255 included."""
    codes = draw.below(1 << layout.element.bits, *shape).astype(np.uint8)
    return codes, draw.pick(EDGE_BYTES, *layout.grid(shape))


def rows(
    draw: Draw, layout: Layout, shape: tuple[int, int], base: int = 127, spread: int = 14, zero: int = 64, nan: int = 0
) -> tuple[Array, Array]:
    """Each row at one distance from `base`; some rows are all zero under byte 0 or 254 (padding), some NaN."""
    codes = finite(draw, layout, shape)
    height, width = layout.grid(shape)
    level = np.clip(draw.between(base - spread, base, height, 1), 0, 254).astype(np.uint8)
    blank, poisoned = draw.chance(zero, height, 1), draw.chance(nan, height, 1)
    padding = np.where(draw.chance(128, height, 1), np.uint8(254), np.uint8(0))
    level = np.where(poisoned, np.uint8(255), np.where(blank, padding, level))
    codes = np.where(layout.spread(blank, (shape[0], layout.columns))[:, :1], np.uint8(0), codes)
    return codes, repeated(level, width)


def activations(
    draw: Draw, layout: Layout, shape: tuple[int, int], spread: int = 2, exponent: int = 0
) -> tuple[Array, Array]:
    """Lognormal channels of bfloat16, quantised by the golden model: codes and scales as in a training run."""
    target = Target(BF16, layout.element, layout.columns)
    x = as_float(channels(draw, target, shape, spread, exponent), BF16)
    if layout.columns == 16:
        packed, scales, _ = refnum.quantize_nvfp4(x, tile=(layout.rows, layout.columns))
        return unpack_nibbles(packed), scales
    if layout.element.name == "E8M0":  # a power of two has no sign, and a rounding of its own
        return refnum.encode_e8m0(x), draw.zeros(layout.grid(shape), np.uint8)
    if layout.element.name not in refnum.MX_ELEMENTS:
        return refnum.encode(layout.element, x), draw.zeros(layout.grid(shape), np.uint8)
    if layout.columns == 128:
        return refnum.quantize_fp8_tiles(x, (layout.rows, layout.columns))
    return refnum.quantize_mx(x, layout.element)
