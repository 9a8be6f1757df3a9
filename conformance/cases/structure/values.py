"""Values that show every misplacement: neighbours in any direction differ in codes and in scales.

Whole-number hashes of the place only, so that a case is the same on every machine and costs less than judging it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.formats import BF16, FP16, FP32, Format, get_format

from ..draw.bits import as_float

KEPT = 1 << 17
"""Rows, and columns, of which the words that are hashed are kept."""
PERIOD = 13
"""Steps of the texture: 3 a row and 7 a column are no multiples of it, nor are their sum and difference."""


def noise(rows: int, columns: int, seed: int) -> np.ndarray:
    """Return u32 [rows, columns], a hash of each place: no two rows or columns are alike."""
    row = _rows(KEPT)[:rows] if rows <= KEPT else _rows.__wrapped__(rows)
    column = _columns(KEPT)[:columns] if columns <= KEPT else _columns.__wrapped__(columns)
    column = column + np.uint32(seed * 0x2545F491 & 0xFFFFFFFF)
    x = row[:, None] + column[None, :]
    moved = np.empty_like(x)
    for places, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39), (15, 1)):
        x ^= np.right_shift(x, np.uint32(places), out=moved)
        if factor > 1:
            x *= np.uint32(factor)
    return x


@functools.cache
def _rows(count: int) -> np.ndarray:
    return (np.arange(count, dtype=np.uint64) * 0x9E3779B97F4A7C15 >> np.uint64(11)).astype(np.uint32)


@functools.cache
def _columns(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32) * np.uint32(0x85EBCA77)


def texture(rows: np.ndarray, columns: np.ndarray, seed: int) -> np.ndarray:
    """Return i32 [rows, columns] in 0..12 of block indices; blocks beside, above and across always differ."""
    down, across = ((step % PERIOD).astype(np.int32) for step in (3 * rows + seed, 7 * columns))
    total = down[:, None] + across[None, :]
    return total - np.int32(PERIOD) * (total >= PERIOD)


def floats(fmt: Format, shape: tuple[int, int], seed: int, block: tuple[int, int] = (1, 32)) -> np.ndarray:
    """Return finite values [rows, columns] of a format; the largest exponent of a block is that of its texture.

    block: rows and columns that one scale of the output covers.
    """
    rows, columns = shape
    hashed = noise(rows, columns, seed)
    blocks = texture(np.arange(rows) // block[0], np.arange(-(-columns // block[1])), seed) - 8 + fmt.bias
    field = np.repeat(blocks.astype(np.uint32), block[1], axis=1)[:, :columns]
    bits = hashed & np.uint32(3)
    bits[:, :: block[1]] = 0  # the first lane of a block holds the largest exponent
    np.subtract(field, bits, out=bits)
    bits <<= np.uint32(fmt.mantissa_bits)
    bits |= (hashed >> np.uint32(31)) << np.uint32(fmt.bits - 1)
    hashed >>= np.uint32(4)
    hashed &= np.uint32((1 << fmt.mantissa_bits) - 1)
    bits |= hashed
    return as_float(bits, fmt)


def vector(count: int, seed: int) -> np.ndarray:
    """Return float32 [count], distinct numbers from 0.5 to 2 of both signs: weights and probabilities."""
    bits = noise(1, count, seed)[0]
    exponent = np.uint32(126) + (bits & np.uint32(1))
    sign = (bits & np.uint32(2)) << np.uint32(30)
    return as_float(sign | exponent << np.uint32(23) | bits >> np.uint32(9), FP32)


def nibbles(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return E2M1 codes u8 [rows, columns], all sixteen equally often."""
    return (noise(*shape, seed) >> np.uint32(28)).astype(np.uint8)


def lower_columns(codes: np.ndarray, bits: int, seed: int) -> np.ndarray:
    """Return codes whose columns are 0 to 3 powers of two lower, by a hash, so that scales of columns differ too.

    bits: of a code: 4 of E2M1, 8 of E4M3.
    """
    down = (noise(1, codes.shape[1], seed + 3) >> np.uint32(21)) & np.uint32(3)
    sign = codes & np.uint8(1 << bits - 1)
    magnitude = codes & np.uint8((1 << bits - 1) - 1)
    if bits == 4:
        return sign | np.minimum(magnitude, (7 - 2 * down).astype(np.uint8))
    step = (8 * down).astype(np.uint8)
    return sign | np.where(magnitude > step, magnitude - step, magnitude)


def fp8(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return finite E4M3 codes u8 whose largest magnitude differs from block of 32 to block."""
    rows, columns = shape
    hashed = noise(rows, columns, seed)
    limit = (0x7E - 8 * ((np.arange(rows)[:, None] + 3 * np.arange(-(-columns // 32))[None, :]) % 5)).astype(np.uint32)
    magnitude = (hashed & np.uint32(0xFFFF)) * np.repeat(limit, 32, axis=1)[:, :columns]
    magnitude >>= np.uint32(16)
    magnitude[:, ::32] = limit
    hashed >>= np.uint32(31)
    hashed <<= np.uint32(7)
    return (magnitude | hashed).astype(np.uint8)


def finite_fp8(name: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return finite codes u8 of an FP8 format, as `fp8` gives those of E4M3."""
    codes = fp8(shape, seed)
    return (codes & np.uint8(0x80)) | np.minimum(codes & np.uint8(0x7F), np.uint8(get_format(name).max_code))


def codes_below(bits: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return codes u8 of any shape, each below 2**bits and equally often."""
    count = int(np.prod(shape))
    return (noise(1, count, seed) >> np.uint32(32 - bits)).astype(np.uint8).reshape(shape)


def scale_bytes(rows: np.ndarray, columns: np.ndarray, seed: int, low: int = 114, step: int = 1) -> np.ndarray:
    """Return E8M0 bytes u8 of block indices: texture times `step` above `low`."""
    return (low + step * texture(rows, columns, seed)).astype(np.uint8)


def scales_as(scales: np.ndarray, name: str, row: Mapping[str, Any], seed: int) -> np.ndarray:
    """Return E8M0 bytes of an operand's scales, or float32 about as large of both signs that are no powers of two."""
    level = row.get("scales as", "bytes")
    if level == "bytes" or (level == "float32 beside bytes" and name != "a"):
        return scales
    drawn = noise(*scales.reshape(-1, scales.shape[-1]).shape, seed + 11).reshape(scales.shape)
    signed = drawn >> np.uint32(9) | drawn << np.uint32(31)
    return as_float(scales.astype(np.uint32) << np.uint32(23) | signed, FP32)


def opaque(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return bytes u8 without a zero, so that padding is told from data."""
    return (noise(*shape, seed) >> np.uint32(24)).astype(np.uint8) | np.uint8(1)


FORMATS = {"float32": FP32, "bfloat16": BF16, "float16": FP16}
