"""Scaling-aware row-to-column conversion, dense and ragged over experts (clauses N9 and N10).

Input rows are tokens, grouped by expert; output rows are the K columns, so a code array comes out transposed.
Column blocks (128 rows for FP8, 32 for MXFP4) restart at every expert.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from .arguments import require_choice, row_splits
from .arrays import (
    BLOCK,
    TILE,
    Array,
    chunks,
    contiguous,
    empty,
    pack_nibbles,
    require_codes,
    require_scales,
    spread,
    table_like,
    unpack_nibbles,
)  # fmt: skip
from .errors import ShapeError
from .formats import E2M1, E4M3
from .profiles import HOPPER
from .recast import (
    ABSENT,
    SCALE_MODES,
    SHIFT_BIAS,
    block_maxima,
    key_scale,
    magnitude_table,
    mxfp4_to_fp8,
    participating,
    recode,
    recode_table,
    shared_fp8_scale,
)  # fmt: skip
from .scales import NAN_BYTE, ONE_BYTE
from .tiles import spread_tiles, tile_count

Splits = Sequence[int] | None


def mxfp4_to_fp8_columns(
    packed: Array, scales: Array, splits: Splits = None, scale: str = "max"
) -> tuple[Array, Array]:
    """Turn row-wise MXFP4 into column-wise FP8 (clause N9).

    packed: u8 [M, K/2]; scales: u8 [M, K/32]; splits: rows of each expert, sum M, zeros allowed, None for one
    expert; scale: "max" (one byte a 128-row block and 32-column group: largest block byte - 6, repeated for the
    32 columns) or "amax" (one byte a column, N3 rceil on its exact amax).
    Returns (codes u8 [K, M] E4M3, scales u8 [sum ceil(m_i/128), K]). Zero and NaN rules as N8.
    Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    require_choice("scale", scale, SCALE_MODES)
    m, k = _require_mxfp4(packed, scales)
    segments = _segments(row_splits(splits, m), TILE)
    codes = empty((k, m), np.uint8, packed)
    out_scales = empty((len(segments), k), np.uint8, packed)
    if scale == "max":
        part = participating(block_maxima(packed), scales, "max")
    for group in chunks(len(segments), TILE * k, packed):
        rows = slice(segments[group.start][0], segments[group.stop - 1][1])
        starts = [start - rows.start for start, _ in segments[group]]
        counts = [stop - start for start, stop in segments[group]]
        nibbles = unpack_nibbles(packed[rows])
        if scale == "max":
            largest = segment_maxima(part[rows], starts, counts, TILE)
            byte = spread(shared_fp8_scale(largest, "max"), BLOCK, axis=1)
        else:
            byte = shared_fp8_scale(segment_maxima(_column_keys(nibbles, scales[rows]), starts, counts, TILE), "amax")
        block_byte = spread(scales[rows], BLOCK, axis=1)
        shift = block_byte.astype(np.int32) - _spread_rows(byte, counts).astype(np.int32)
        out = recode(E2M1, E4M3, nibbles, shift)
        out = np.where(block_byte == NAN_BYTE, np.uint8(0x7F), out)
        codes[:, rows] = out.T
        out_scales[group] = byte
    return codes, out_scales


def mxfp4_to_fp8_rows_columns(
    packed: Array, scales: Array, splits: Splits = None, scale: str = "max"
) -> tuple[Array, Array, Array, Array]:
    """Turn row-wise MXFP4 into FP8 rows and FP8 columns (clause N9.10): what forward and weight gradient need.

    packed: u8 [M, K/2]; scales: u8 [M, K/32]; splits: rows of each expert, sum M, zeros allowed, None for one
    expert; scale: "max" or "amax", for both layouts.
    Returns (row codes u8 [M, K], row scales u8 [M, ceil(K/128)], column codes u8 [K, M], column scales u8
    [sum ceil(m_i/128), K]): the results of `mxfp4_to_fp8` and of `mxfp4_to_fp8_columns`.
    Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    columns = mxfp4_to_fp8_columns(packed, scales, splits, scale)
    return (*mxfp4_to_fp8(packed, scales, scale), *columns)


def mxfp4_columns(packed: Array, scales: Array, splits: Splits = None, scale: str = "amax") -> tuple[Array, Array]:
    """Turn row-wise MXFP4 into column-wise MXFP4, blocks of 32 rows x 1 column (clause N9).

    packed: u8 [M, K/2]; scales: u8 [M, K/32]; splits: rows of each expert, sum M, each even because two codes
    share a byte; scale: "amax" (N5 on the exact decoded values) or "max" (one byte a 32-row block and 32-column
    group, the largest of its non-empty blocks; 4-8 dB worse).
    Returns (packed u8 [K, M/2], scales u8 [sum ceil(m_i/32), K]). A NaN row block makes the column blocks that
    it touches NaN blocks. A column block of zeros (`amax`) or an empty group (`max`) has byte 0.
    Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    require_choice("scale", scale, SCALE_MODES)
    m, k = _require_mxfp4(packed, scales)
    ranges = row_splits(splits, m)
    odd = [count for count in (stop - start for start, stop in ranges) if count % 2]
    if odd:
        raise ShapeError(
            f"splits hold an odd row count, {odd[0]}; two codes share a byte, so pad each to an even count"
        )
    segments = _segments(ranges, BLOCK)
    out_packed = empty((k, m // 2), np.uint8, packed)
    out_scales = empty((len(segments), k), np.uint8, packed)
    for group in chunks(len(segments), BLOCK * k, packed):
        rows = slice(segments[group.start][0], segments[group.stop - 1][1])
        starts = [start - rows.start for start, _ in segments[group]]
        counts = [stop - start for start, stop in segments[group]]
        nibbles = unpack_nibbles(packed[rows])
        block_byte = spread(scales[rows], BLOCK, axis=1)
        part = (
            _column_keys(nibbles, scales[rows])
            if scale == "amax"
            else participating(block_maxima(packed[rows]), scales[rows], "max")
        )
        part = segment_maxima(part, starts, counts, BLOCK)
        byte = _mxfp4_column_bytes(part, scale)
        nan = segment_maxima(scales[rows], starts, counts, BLOCK) == NAN_BYTE
        byte = np.where(spread(nan, BLOCK, axis=1), NAN_BYTE, byte)
        each = _spread_rows(byte, counts)
        out = recode(E2M1, E2M1, nibbles, block_byte.astype(np.int32) - each.astype(np.int32))
        out = np.where(each == NAN_BYTE, np.uint8(0), out)
        out_packed[:, rows.start // 2 : rows.stop // 2] = pack_nibbles(contiguous(out.T))
        out_scales[group] = byte
    return out_packed, out_scales


def _mxfp4_column_bytes(part: Array, mode: str) -> Array:
    """Bytes of 32x1 column blocks: N3 rceil per column (`amax`), or one byte a 32-column group (`max`)."""
    byte = key_scale("rceil", E2M1, part) if mode == "amax" else part.astype(np.uint8)
    byte = np.where(part == np.int32(ABSENT), np.uint8(HOPPER.zero_scale), byte)
    return byte if mode == "amax" else spread(byte, BLOCK, axis=1)


def fp8_columns(codes: Array, scales: Array, splits: Splits = None, underflow: str = "rne") -> tuple[Array, Array]:
    """Transpose FP8 1x128 tiles into column tiles without a second quantisation (clause N10).

    codes: u8 [M, K] E4M3; scales: u8 [M, ceil(K/128)]; splits: rows of each expert, sum M, None for one.
    Per 128x128 tile the byte is the largest over the rows that hold a non-zero element (127 if none), repeated
    for the 128 columns. underflow: "rne" rounds value * 2**(s_row - s) to nearest even; "te" lowers the exponent
    field and, when it leaves the normal range, keeps only the mantissa bits, as TransformerEngine's FP8-Flow
    kernel does. A row tile of byte 255 gives 0x7F and takes no part.
    Returns (codes u8 [K, M], scales u8 [sum ceil(m_i/128), K]).
    Raises DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    require_choice("underflow", underflow, ("rne", "te"))
    require_codes("codes", codes, BLOCK)
    m, k = codes.shape
    require_scales(scales, (m, tile_count(k)), f"codes of shape {tuple(codes.shape)} in 1x128 tiles")
    segments = _segments(row_splits(splits, m), TILE)
    out = empty((k, m), np.uint8, codes)
    out_scales = empty((len(segments), k), np.uint8, codes)
    table = table_like(_te_table if underflow == "te" else _rne_table, codes)
    for group in chunks(len(segments), TILE * k, codes):
        rows = slice(segments[group.start][0], segments[group.stop - 1][1])
        starts = [start - rows.start for start, _ in segments[group]]
        counts = [stop - start for start, stop in segments[group]]
        row_byte = scales[rows]
        present = _row_tile_nonzero(codes[rows]) & (row_byte != NAN_BYTE)
        part = np.where(present, row_byte.astype(np.int32), np.int32(ABSENT))
        part = segment_maxima(part, starts, counts, TILE)
        byte = np.where(part == np.int32(ABSENT), ONE_BYTE, part.astype(np.uint8))
        shift = row_byte.astype(np.int32) - _spread_rows(byte, counts).astype(np.int32)
        shift = np.where(row_byte == NAN_BYTE, np.int32(NAN_SHIFT), shift)
        index = ((spread_tiles(shift, k) + np.int32(SHIFT_BIAS)) << np.int32(8)) | codes[rows]
        out[:, rows] = np.take(table, index).T
        out_scales[group] = spread_tiles(byte, k)
    return out, out_scales


NAN_SHIFT = -SHIFT_BIAS
"""A shift no pair of finite bytes has: the table's first row, which turns every code into NaN."""


@functools.cache
def _rne_table() -> np.ndarray:
    table = recode_table(E4M3, E4M3, HOPPER).reshape(2 * SHIFT_BIAS, 256).copy()
    table[0] = 0x7F
    return table.ravel()


@functools.cache
def _te_table() -> np.ndarray:
    """The `te` element rule on bits, index (shift + 256) << 8 | code."""
    codes = np.arange(256, dtype=np.int32)
    field, others = (codes >> 3) & 15, codes & 0x87
    shifts = np.arange(-SHIFT_BIAS, SHIFT_BIAS, dtype=np.int32)[:, None]
    lowered = np.maximum(field + shifts, 0)  # a shift above 0 meets zeros alone: their row takes no part
    table = np.where(field == 0, 0, others | (lowered << 3)).astype(np.uint8)
    table[0] = 0x7F
    table.flags.writeable = False
    return table.ravel()


def _row_tile_nonzero(codes: Array) -> Array:
    """Whether each row's 1x128 tile holds a non-zero element: u8 [m, K] -> bool [m, ceil(K/128)]."""
    m, k = codes.shape
    magnitude = codes & np.uint8(0x7F)
    whole = k // TILE * TILE
    largest = magnitude[:, :whole].reshape(m, whole // TILE, TILE).max(axis=-1)
    if whole != k:
        largest = np.concatenate([largest, magnitude[:, whole:].max(axis=1)[:, None]], axis=1)
    return largest != np.uint8(0)


def _column_keys(nibbles: Array, scales: Array) -> Array:
    """Sort key of each element's magnitude, i32 [m, K]; ABSENT for a zero and under a NaN scale."""
    key = np.take(table_like(magnitude_table, nibbles, E2M1), nibbles)
    key = key + spread((scales.astype(np.int32) - np.int32(127)) << np.int32(23), BLOCK, axis=1)
    left_out = ((nibbles & np.uint8(7)) == np.uint8(0)) | spread(scales == NAN_BYTE, BLOCK, axis=1)
    return np.where(left_out, np.int32(ABSENT), key)


def segment_maxima(x: Array, starts: list[int], counts: list[int], tall: int) -> Array:
    """Maximum over the rows of each segment: [m, n] -> [segments, n].

    starts, counts: first row and number of rows (1 to `tall`) of each segment, in order and without gaps.
    """
    if all(count == tall for count in counts):
        return x.reshape(len(counts), tall, x.shape[1]).max(axis=1)
    # a short segment repeats its last row, which leaves its maximum as it is
    index = np.asarray(starts)[:, None] + np.minimum(np.arange(tall), np.asarray(counts)[:, None] - 1)
    return np.take(x, np.asarray(index, like=x), axis=0).max(axis=1)


def _require_mxfp4(packed: Array, scales: Array) -> tuple[int, int]:
    require_codes("packed", packed, BLOCK // 2)
    m, k = packed.shape[0], packed.shape[1] * 2
    require_scales(scales, (m, k // BLOCK), f"packed of shape {tuple(packed.shape)}")
    return m, k


def _segments(ranges: list[tuple[int, int]], tall: int) -> list[tuple[int, int]]:
    """Row ranges of the column blocks: each expert's rows in steps of `tall`, the last one short."""
    return [(start, min(start + tall, stop)) for first, stop in ranges for start in range(first, stop, tall)]


def _spread_rows(byte: Array, counts: list[int]) -> Array:
    """Repeat each segment's row for its rows: [segments, n] -> [rows, n]."""
    if len(set(counts)) == 1:
        return spread(byte, counts[0], axis=0)
    segment = np.repeat(np.arange(len(counts)), counts)
    return np.take(byte, np.asarray(segment, like=byte), axis=0)
