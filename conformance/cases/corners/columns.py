"""Corners of the row-to-column conversions (N9, N10): distances across rows, ragged experts, padded rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import E2M1, E4M3

from ..draw import CODED, Draw
from ..draw.coded import EDGE_BYTES, Layout
from ..operation import OPERATIONS
from .recast import NIBBLES, mxfp4_to_fp8

Corner = tuple[str, dict[str, np.ndarray], dict[str, Any]]

RAGGED: tuple[list[int], ...] = (
    [0], [], [0, 0, 0], [1], [127], [129], [0, 128, 0], [40, 24, 64],
    [1, 0, 127, 128, 129, 0, 0, 32, 33, 5, 255, 256, 257, 0],
)  # fmt: skip
EVEN: tuple[list[int], ...] = (
    [0], [], [0, 0, 0], [2], [30], [34], [0, 32, 0], [40, 24, 64],
    [2, 0, 126, 128, 130, 0, 0, 30, 32, 34, 62, 64, 66, 0],
)  # fmt: skip
"""Splits for the FP4 target, where two rows share a byte."""

ALONE = ((0, 96), (1, 96), (2, 96), (64, 96), (130, 96), (38, 256), (128, 128), (128, 256))
"""Rows and columns of one expert: the last ones in tiles that are whole across, and down."""

Tiled = tuple[list[int] | None, int, int, int]
TILED: dict[int, tuple[Tiled, ...]] = {
    128: (
        (None, 133, 288, 12), ([4, 64, 36, 0, 12, 60], 176, 160, 60), ([16, 0, 48, 112, 128], 304, 288, 12),
        (None, 160, 416, 60), (None, 131, 288, 60),
    ),
    32: (
        (None, 262, 288, 12), ([8, 64, 40, 0, 24, 56], 192, 160, 60), ([32, 0, 96, 128, 64], 320, 288, 12),
        (None, 288, 416, 60), (None, 62, 288, 60),
    ),
}  # fmt: skip
"""Rows of a block -> (splits, rows, columns, spread of the bytes): full tiles beside partial ones, ends at multiples of
1, 4 and 16 bytes, rows near each other and far apart.

They come first, since the calling contract is probed on the first corners: what a kernel does at the edge of a tile
depends on strides, on addresses, and on what lies behind an output.
"""


def mxfp4_columns(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """`mxfp4_to_fp8_columns` and `mxfp4_columns`: the same rows, split sizes even for the FP4 target."""
    tall = OPERATIONS[operation].tall
    yield from _tiled(Layout(E2M1, 1, 32), TILED[tall])
    corners = [_distances(np.arange(tall)), _combinations(tall), _column_maxima(tall), _lone_magnitudes(tall)]
    if tall == 32:
        corners += [_distances(np.r_[0, 10:41]), _lone_places(), _all_shallow()]
    for label, codes, scales in corners:
        yield label, {"packed": pack_nibbles(codes), "scales": scales}, {}
    yield from _ragged(operation, Layout(E2M1, 1, 32), EVEN if tall == 32 else RAGGED)


mxfp4_to_fp8_columns = mxfp4_columns


def mxfp4_to_fp8_rows_columns(operation: str, params: Mapping[str, Any]) -> Iterator[Any]:
    """`mxfp4_to_fp8_rows_columns`: what is awkward down the rows, and what is awkward along them."""
    yield from mxfp4_columns(operation, params)
    for label, *rest in mxfp4_to_fp8(operation, params):
        yield (f"along the rows: {label}", *rest)


def _distances(below: np.ndarray) -> tuple[str, np.ndarray, np.ndarray]:
    """Column blocks whose rows lie the given distances below the largest byte, one such byte a block and group."""
    groups, tall = 2, below.size
    largest = np.arange(256).reshape(-1, groups)[:, None, :]
    lower = np.minimum(largest, 254) - below[None, :, None]
    codes = np.broadcast_to(NIBBLES, (*lower.shape, 32)).copy()
    codes[lower < 0] &= 8  # a distance that does not exist becomes an empty row
    order = (np.arange(tall)[None, :] - np.arange(len(lower))[:, None]) % tall
    codes = np.take_along_axis(codes, order[:, :, None, None], axis=1)
    lower = np.take_along_axis(np.maximum(lower, 0), order[:, :, None], axis=1)
    return (f"all codes at distances up to {below[-1]} from every largest byte", codes.reshape(-1, 32 * groups),
            lower.reshape(-1, groups).astype(np.uint8))  # fmt: skip


def _combinations(tall: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Blocks of ordinary rows with two odd ones: padding under byte 0 and 254, -0, NaN with and without codes."""
    odd = [(0, 0), (0, 254), (8, 127), (8, 254), (5, 255), (0, 255), (1, 254), (7, 0), (7, 6), (15, 7)]
    count = len(odd) ** 2
    codes = np.broadcast_to(NIBBLES, (count, tall, 32)).copy()
    scales = np.broadcast_to(120 + np.arange(tall) % 16, (count, tall)).copy()
    for number in range(count):
        for place, (code, byte) in zip((number % tall, (7 * number + 5) % tall), (odd[number // 10], odd[number % 10]),
                                       strict=True):  # fmt: skip
            codes[number, place], scales[number, place] = code, byte
    codes[::11] = np.where(np.arange(32) & 1, 8, 0)  # and blocks in which every row but the odd ones is empty
    for number in range(0, count, 11):
        codes[number, number % tall] = odd[number // 10][0]
    scales[5::19] = 255  # and blocks in which every row is NaN, with codes and without
    codes[24::19] = 0
    return ("padding, negative zero and NaN rows among ordinary rows", codes.reshape(-1, 32),
            scales.reshape(-1, 1).astype(np.uint8))  # fmt: skip


def _column_maxima(tall: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Every column has its own maximum: code 1..7 in one row of it, at every place, the others small (rule `amax`)."""
    bases = np.array([0, 1, 2, 6, 7, 14, 100, 127, 246, 253, 254])
    codes = np.where(np.arange(tall)[:, None] + np.arange(32)[None, :] & 1, 9, 1)
    codes = np.broadcast_to(codes, (bases.size, 4, tall, 32)).astype(np.uint8)
    number, quarter, column = np.meshgrid(np.arange(bases.size), np.arange(4), np.arange(32), indexing="ij")
    place = (quarter * (tall // 4) + column) % tall
    codes[number, quarter, place, column] = 1 + (column + number + quarter) % 7
    scales = np.maximum(bases[:, None, None] - (np.arange(tall) % 5)[None, None, :], 0)
    scales = np.broadcast_to(scales, (bases.size, 4, tall))
    return ("a different maximum in every column, at every row", codes.reshape(-1, 32),
            scales.reshape(-1, 1).astype(np.uint8))  # fmt: skip


def _lone_magnitudes(tall: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Columns whose only element is each magnitude under each small or large byte, beside a row far away.

    Rows that lie near each other are often taken together; here none do.
    """
    bytes_ = np.r_[np.arange(16), 120, 250:255]
    codes = np.zeros((bytes_.size, tall, 32), np.uint8)
    codes[:, 0, :14] = np.r_[1:8, 9:16]
    codes[:, tall - 1, 31] = 2
    scales = np.repeat(bytes_[:, None], tall, axis=1)
    scales[:, tall - 1] = np.where(bytes_ < 100, bytes_ + 100, bytes_ - 100)
    return ("each magnitude alone in its column, a row far away", codes.reshape(-1, 32),
            scales.reshape(-1, 1).astype(np.uint8))  # fmt: skip


def _lone_places() -> tuple[str, np.ndarray, np.ndarray]:
    """Blocks in which one row holds one bit, at each of 32 places, under the largest byte: it must not be missed."""
    place, bit = (axis.reshape(-1) for axis in np.meshgrid(np.arange(32), np.arange(3), indexing="ij"))
    number = np.arange(place.size)
    codes = np.broadcast_to(NIBBLES, (place.size, 32, 32)).copy()
    scales = np.full((place.size, 32), 120, np.uint8)
    row = (5 * number + 3) % 32
    codes[number, row] = 0
    codes[number, row, place] = 1 << bit
    scales[number, row] = 124 + number % 3
    return "a row of one bit at every place under the largest byte", codes.reshape(-1, 32), scales.reshape(-1, 1)


def _all_shallow() -> tuple[str, np.ndarray, np.ndarray]:
    """Blocks of columns with the same largest magnitude, under bytes 0 to 3: none sends the others another way."""
    tops, magnitudes = (axis.reshape(-1) for axis in np.meshgrid(np.arange(4), np.arange(1, 8), indexing="ij"))
    codes = np.zeros((tops.size, 32, 32), np.uint8)
    number, column = np.meshgrid(np.arange(tops.size), np.arange(32), indexing="ij")
    codes[:, ::2] = 1
    codes[number, (7 * column + number) % 32, column] = magnitudes[number]
    scales = np.repeat(tops, 32).astype(np.uint8)
    return "columns alike under every small byte", codes.reshape(-1, 32), scales[:, None]


def _tiled(layout: Layout, shapes: tuple[Tiled, ...]) -> Iterator[Corner]:
    """Rows of all distances, some NaN or zero; behind the last row of an expert comes a NaN row of the next one.

    Where there are many rows, the last 128 of a group of columns are all NaN. Of the rows that hold something, the last
    one of a full tile alone has the largest byte.
    """
    for counts, rows, columns, spread in shapes:
        codes, scales = CODED["rows"].make(Draw(rows + columns), layout, (rows, columns), base=127, spread=spread,
                                           zero=50, nan=4)  # fmt: skip
        starts = np.cumsum(counts or [rows])
        scales[starts[starts < rows], ::2] = 255
        scales[max(rows - 128, 128) :, 1] = 255
        codes[127:128, ::5], scales[127:128, 0] = 3, 128
        if spread > 40:  # and columns whose only elements lie far below the other columns'
            codes[:, 3::7], codes[16::32, 3::7], scales[16::32] = 0, 5, 1
        first = {"packed": pack_nibbles(codes)} if layout.element is E2M1 else {"codes": codes}
        extra = {} if counts is None else {"splits": counts}
        yield f"tiles of {rows} x {columns}, splits {counts or 'none'}", {**first, "scales": scales}, extra


def _ragged(operation: str, layout: Layout, splits: tuple[list[int], ...]) -> Iterator[Corner]:
    """Experts of awkward sizes; padded rows have zero codes under byte 0 or 254; some rows are NaN."""
    for number, counts in enumerate(splits):
        for columns in (32, 160, 288) if sum(counts) > 200 else (96,):
            codes, scales = CODED["rows"].make(Draw(number + columns), layout, (sum(counts), columns),
                                               base=127, spread=20, zero=50, nan=4)  # fmt: skip
            first = {"packed": pack_nibbles(codes)} if layout.element is E2M1 else {"codes": codes}
            yield f"splits {counts} x {columns}", {**first, "scales": scales}, {"splits": counts}
    codes, scales = CODED["activations"].make(Draw(9), layout, (256, 256), spread=2, exponent=0)
    first = {"packed": pack_nibbles(codes)} if layout.element is E2M1 else {"codes": codes}
    yield "activations", {**first, "scales": scales}, {"splits": [96, 0, 160]}
    for rows, columns in ALONE:
        if rows % 2 == 0 or not OPERATIONS[operation].even_rows:
            codes, scales = CODED["apart"].make(Draw(rows), layout, (rows, columns), base=127, spread=12, empty=60,
                                                nan=10)  # fmt: skip
            first = {"packed": pack_nibbles(codes)} if layout.element is E2M1 else {"codes": codes}
            yield f"one expert of {rows} rows x {columns}", {**first, "scales": scales}, {}


def fp8_columns(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every code at every distance 0..41 below edge bytes, zero rows under huge bytes, NaN rows, ragged experts."""
    yield from _tiled(Layout(E4M3, 1, 128), TILED[128])
    tile = np.arange(256, dtype=np.uint8)
    distance = np.arange(42)
    tops = np.unique(np.r_[EDGE_BYTES[EDGE_BYTES < 255], 20, 41, 60, 200])
    lower = tops[:, None].astype(int) - distance[None, :]
    codes = np.broadcast_to(tile, (*lower.shape, 256)).copy()
    codes[lower < 0] &= 0x80
    scales = np.repeat(np.maximum(lower, 0).reshape(-1, 1), 2, axis=1).astype(np.uint8)
    yield ("every code at distances 0..41 from edge bytes", {"codes": codes.reshape(-1, 256), "scales": scales},
           {"splits": [42] * tops.size})  # fmt: skip
    yield _odd_rows()
    yield from _ragged(operation, Layout(E4M3, 1, 128), RAGGED)


def _odd_rows() -> Corner:
    """128-row tiles with one odd row each: zeros, -0 or NaN codes under bytes 0, 126..128, 254 and 255."""
    kinds, bytes_ = (0x00, 0x80, 0x7F, 0xFF, 0x01, 0x81, 0x08, 0x7E), (0, 100, 126, 127, 128, 254, 255)
    code, byte = (part.reshape(-1) for part in np.meshgrid(kinds, bytes_, indexing="ij"))
    codes = np.broadcast_to(np.arange(128, dtype=np.uint8) ^ 0x80, (code.size, 128, 128)).copy()
    scales = np.broadcast_to(127 - np.arange(128) % 20, (code.size, 128)).copy()
    place = (np.arange(code.size) * 37) % 128
    codes[np.arange(code.size), place] = code[:, None]
    scales[np.arange(code.size), place] = byte
    codes[1::9, :, :] = codes[1::9, :, :] & 0x80  # and tiles in which no other row takes part
    codes[np.arange(code.size), place] = code[:, None]
    return ("zero, NaN and tiny rows under odd bytes",
            {"codes": codes.reshape(-1, 128), "scales": scales.reshape(-1, 1).astype(np.uint8)}, {})  # fmt: skip
