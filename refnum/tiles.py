"""FP8 tiles: E4M3 codes with one power-of-two scale a 1x128 or 128x128 tile (clauses N4 and N6)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import (
    BLOCK,
    OUTPUTS,
    TILE,
    Array,
    contiguous,
    empty,
    group_amax,
    grouped,
    output_dtype,
    own_bits,
    require_codes,
    require_float,
    row_chunks,
    spread,
    table_like,
    widen,
)  # fmt: skip
from .blocks import _scaled_table
from .codec import INF32, encode_bits
from .errors import ArgumentError, shown
from .formats import E4M3
from .layouts import scales_from_layout, scales_to_layout
from .narrow import encode_scaled
from .profiles import HOPPER, Profile, deterministic
from .scales import tile_scale

TILE_SHAPES = ((1, 128), (128, 128))


def tile_count(n: int) -> int:
    """Number of 128-element tiles that cover n elements; the last may be short."""
    return -(-n // TILE)


def _tall(tile: Any) -> int:
    """Return the rows of one of TILE_SHAPES; ArgumentError for anything else, `True` and `1.0` in place of 1 too."""
    whole = isinstance(tile, (tuple, list)) and all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in tile
    )
    if not whole or tuple(tile) not in TILE_SHAPES:
        raise ArgumentError(f"tile={shown(tile)} is not one of {', '.join(map(repr, TILE_SHAPES))}")
    return int(tile[0])


def _tile_rows(rows: slice, tall: int) -> slice:
    """Range of the tiles that hold a range of rows, which starts where a tile does."""
    return slice(rows.start // tall, -(-rows.stop // tall))


def quantize_fp8_tiles(
    x: Array, tile: tuple[int, int] = (1, 128), profile: Profile | str = HOPPER, *, layout_out: str = "bytes"
) -> tuple[Array, Array]:
    """Quantise to E4M3 with one E8M0 scale a tile (clause N6).

    x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits), K % 32 == 0; tile: (1, 128) activations or
    (128, 128) weights, the last tile of an axis may be short.
    Returns (codes u8 [M, K], scales of [M, ceil(K/128)] or [ceil(M/128), ceil(K/128)] E8M0 bytes in the storage
    layout `layout_out` of N6.5). A zero tile and a tile with NaN or Inf have byte 127; there NaN is 0x7F, Inf +-448,
    and finite values are encoded at scale 1.
    Raises DtypeError, ShapeError, ArgumentError, ProfileError.
    """
    require_float("x", x, BLOCK)
    tall = _tall(tile)
    profile = deterministic(profile, "quantize_fp8_tiles")
    m, k = x.shape
    codes = empty((m, k), np.uint8, x)
    scales = empty((-(-m // tall), tile_count(k)), np.uint8, x)
    for rows in row_chunks(x, k, multiple=tall):
        bits = own_bits(contiguous(x[rows]))
        amax = _fold_rows(_row_tile_amax(bits), tall)
        byte = tile_scale(amax, E4M3, profile)
        scales[_tile_rows(rows, tall)] = byte
        finite = not bool((amax >= np.uint32(INF32)).any())
        codes[rows] = _encode_tiles(bits, spread(byte, tall, axis=0)[: bits.shape[0]], finite, profile)
    return codes, scales_to_layout(scales, layout_out)


def _encode_tiles(bits: Array, byte: Array, finite: bool, profile: Profile) -> Array:
    """Codes of bits [M, K] (`own_bits`) under the bytes of their tiles [M, ceil(K/128)]."""
    m, k = bits.shape
    if finite:
        each = spread(byte, TILE // BLOCK, axis=1)[:, : k // BLOCK]
        quick = encode_scaled(E4M3, grouped(bits, BLOCK), each, profile)
        if quick is not None:
            return quick.reshape(m, k)
    exponent = spread_tiles(byte.astype(np.int32) - np.int32(127), k)
    return encode_bits(E4M3, widen(bits), exponent, profile, finite=finite)


def _row_tile_amax(bits: Array) -> Array:
    """Bits [M, K] (`own_bits`) -> the largest magnitude in each 1x128 tile, float32 bits u32 [M, ceil(K/128)]."""
    k = bits.shape[1]
    whole = k // TILE * TILE
    amax = group_amax(contiguous(bits[:, :whole]), TILE)
    if whole == k:
        return amax
    return np.concatenate([amax, group_amax(contiguous(bits[:, whole:]), k - whole)], axis=1)


def _fold_rows(amax: Array, tall: int) -> Array:
    """Maximum over each run of `tall` rows, a short last run included."""
    missing = -amax.shape[0] % tall
    if missing:
        amax = np.concatenate([amax, np.zeros((missing, amax.shape[1]), dtype=amax.dtype, like=amax)])
    return amax.reshape(amax.shape[0] // tall, tall, amax.shape[1]).max(axis=1)


def spread_tiles(byte: Array, k: int) -> Array:
    """Repeat one item a 128-element tile for each element: [M, ceil(K/128)] -> [M, K]."""
    return spread(byte, TILE, axis=1)[:, :k]


def dequantize_fp8_tiles(
    codes: Array,
    scales: Array,
    tile: tuple[int, int] = (1, 128),
    dtype: str = "float32",
    *,
    layout_in: str = "bytes",
) -> Array:
    """Dequantise FP8 tiles (clause N6): exact in float32, rounded to nearest even in bfloat16.

    codes: u8 [M, K]; scales: [M, ceil(K/128)] or [ceil(M/128), ceil(K/128)] E8M0 bytes in the storage layout
    `layout_in` of N6.5; dtype "float32" or "bfloat16".
    A magnitude of 2**128 or more is Inf; a NaN code or a scale byte of 255 gives a quiet NaN.
    Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    require_codes("codes", codes, BLOCK)
    tall = _tall(tile)
    m, k = codes.shape
    scales = scales_from_layout(scales, layout_in, -(-m // tall), tile_count(k))
    name = output_dtype(dtype)
    table = table_like(_scaled_table, codes, E4M3, name)
    out = empty((m, k), table.dtype, codes)
    for rows in row_chunks(codes, k, multiple=tall):
        byte = spread(scales[_tile_rows(rows, tall)], tall, axis=0)[: rows.stop - rows.start]
        out[rows] = np.take(table, (spread_tiles(byte, k).astype(np.int32) << np.int32(8)) | codes[rows])
    return out.view(OUTPUTS[name])
