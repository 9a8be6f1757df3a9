"""Whole matrices as nested lists; names, argument order and defaults are those of the model (N5 to N10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError, ShapeError
from .blocks import DEFAULT, covered, encode_element, quantize_block, quantize_tile, scale_byte
from .tables import NAN, Exact
from .values import decode, float_bits, number

Matrix = Sequence[Sequence[Any]]
Codes = list[list[int]]


def _groups(count: int, size: int) -> list[range]:
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def pack(codes: Matrix) -> Codes:
    """Pack two E2M1 codes a byte, the even element in the low nibble (N0)."""
    return [[row[j] + 16 * row[j + 1] for j in range(0, len(row), 2)] for row in codes]


def unpack(packed: Matrix) -> Codes:
    """Undo `pack`."""
    return [[nibble for byte in row for nibble in (byte % 16, byte // 16)] for row in packed]


def quantize_mx(
    rows: Matrix, element: str = "E2M1", policy: Any = DEFAULT, rbits: Matrix | None = None
) -> tuple[Codes, Codes]:
    """Quantise [M, K] exact values to (codes [M, K], bytes [M, K/32]) (N5)."""
    codes, scales = [], []
    for i, row in enumerate(rows):
        draws = [0] * len(row) if rbits is None else rbits[i]
        blocks = [
            quantize_block([row[k] for k in g], element, policy, [draws[k] for k in g]) for g in _groups(len(row), 32)
        ]
        codes.append([c for block, _ in blocks for c in block])
        scales.append([byte for _, byte in blocks])
    return codes, scales


def quantize_mxfp4(rows: Matrix, policy: Any = DEFAULT, rbits: Matrix | None = None) -> tuple[Codes, Codes]:
    """Quantise [M, K] exact values to (packed [M, K/2], bytes [M, K/32]) (N5)."""
    codes, scales = quantize_mx(rows, "E2M1", policy, rbits)
    return pack(codes), scales


def dequantize_mx(codes: Matrix, scales: Matrix, element: str = "E2M1", dtype: str = "float32") -> Codes:
    """Return the bits [M, K] of the dequantised values, rounded once to `dtype` (N5)."""
    return [
        [float_bits(covered(element, c, scales[i][k // 32]), dtype) for k, c in enumerate(row)]
        for i, row in enumerate(codes)
    ]


def dequantize_mxfp4(packed: Matrix, scales: Matrix, dtype: str = "float32") -> Codes:
    """Return the bits [M, K] of the dequantised MXFP4 values (N5)."""
    return dequantize_mx(unpack(packed), scales, "E2M1", dtype)


def quantize_fp8_tiles(rows: Matrix, tile: tuple[int, int] = (1, 128), policy: Any = DEFAULT) -> tuple[Codes, Codes]:
    """Quantise [M, K] exact values to (E4M3 codes [M, K], bytes, one a tile) (N6)."""
    codes: Codes = [[0] * len(row) for row in rows]
    scales = []
    for rs in _groups(len(rows), tile[0]):
        line = []
        for ks in _groups(len(rows[0]), tile[1]):
            flat, byte = quantize_tile([rows[i][k] for i in rs for k in ks], policy)
            line.append(byte)
            for n, (i, k) in enumerate((i, k) for i in rs for k in ks):
                codes[i][k] = flat[n]
        scales.append(line)
    return codes, scales


def dequantize_fp8_tiles(
    codes: Matrix, scales: Matrix, tile: tuple[int, int] = (1, 128), dtype: str = "float32"
) -> Codes:
    """Return the bits [M, K] of the dequantised FP8 tiles, rounded once to `dtype` (N6)."""
    return [
        [float_bits(covered("E4M3", c, scales[i // tile[0]][k // tile[1]]), dtype) for k, c in enumerate(row)]
        for i, row in enumerate(codes)
    ]


def fp8_to_mxfp4(codes: Matrix, scales: Matrix, policy: Any = DEFAULT) -> tuple[Codes, Codes]:
    """Quantise the exact values of FP8 tiles 1x128 to (packed, bytes) (N7)."""
    values = [[covered("E4M3", c, scales[i][k // 128]) for k, c in enumerate(row)] for i, row in enumerate(codes)]
    return quantize_mxfp4(values, policy)


def _target_byte(members: Sequence[tuple[Exact, int]], mode: str, to: str) -> int | None:
    """Byte of one target block (N8, N9); `members` are (value, source byte) of its participating elements.

    None where no block takes part.
    """
    if not members:
        return None
    if mode == "max":
        largest = max(byte for _, byte in members)
        return max(largest - 6, 0) if to == "E4M3" else largest
    if mode == "amax":
        return scale_byte("rceil", max(abs(number(v)) for v, _ in members), to)
    raise ArgumentError(f"scale={mode!r} is not one of 'max', 'amax'")


def _participates(codes: Sequence[int], byte: int) -> bool:
    return byte != 255 and any(decode("E2M1", c) != 0 for c in codes)


def mxfp4_to_fp8(packed: Matrix, scales: Matrix, scale: str = "max") -> tuple[Codes, Codes]:
    """Convert MXFP4 rows to (E4M3 codes [M, K], bytes [M, ceil(K/128)]) (N8)."""
    out, lines = [], []
    for row, bytes_ in zip(unpack(packed), scales, strict=True):
        values = [covered("E2M1", c, bytes_[k // 32]) for k, c in enumerate(row)]
        codes, line = [], []
        for ks in _groups(len(row), 128):
            blocks = [range(k, k + 32) for k in ks if k % 32 == 0]
            live = [b for b in blocks if _participates([row[k] for k in b], bytes_[b.start // 32])]
            byte = _target_byte([(values[k], bytes_[k // 32]) for b in live for k in b], scale, "E4M3")
            line.append(127 if byte is None else byte)
            codes += [encode_element(values[k], "E4M3", line[-1], DEFAULT) for k in ks]
        out.append(codes)
        lines.append(line)
    return out, lines


def _row_blocks(rows: int, splits: Sequence[int] | None, size: int) -> list[range]:
    """Row blocks of `size` that restart at every split (N9)."""
    parts = [rows] if splits is None else list(splits)
    if sum(parts) != rows:
        raise ShapeError(f"splits sum to {sum(parts)} but there are {rows} rows; they must be equal")
    starts = [sum(parts[:e]) for e in range(len(parts))]
    return [
        range(start + g.start, start + g.stop)
        for start, part in zip(starts, parts, strict=True)
        for g in _groups(part, size)
    ]


def mxfp4_to_fp8_columns(
    packed: Matrix, scales: Matrix, splits: Sequence[int] | None = None, scale: str = "max"
) -> tuple[Codes, Codes]:
    """Convert MXFP4 rows to FP8 columns: (E4M3 codes [K, M], bytes [row blocks, K]) (N9)."""
    return _mxfp4_by_column(packed, scales, _row_blocks(len(packed), splits, 128), scale, "E4M3", 127)


def mxfp4_to_fp8_rows_columns(
    packed: Matrix, scales: Matrix, splits: Sequence[int] | None = None, scale: str = "max"
) -> tuple[Codes, Codes, Codes, Codes]:
    """Convert MXFP4 rows to FP8 rows and to FP8 columns (N9)."""
    return (*mxfp4_to_fp8(packed, scales, scale), *mxfp4_to_fp8_columns(packed, scales, splits, scale))


def mxfp4_columns(
    packed: Matrix, scales: Matrix, splits: Sequence[int] | None = None, scale: str = "amax"
) -> tuple[Codes, Codes]:
    """Convert MXFP4 rows to MXFP4 columns: (packed [K, M/2], bytes [row blocks of 32, K]) (N9)."""
    blocks = _row_blocks(len(packed), splits, 32)
    codes, lines = _mxfp4_by_column(packed, scales, blocks, scale, "E2M1", 0)
    return pack(codes), lines


def _mxfp4_by_column(
    packed: Matrix, scales: Matrix, blocks: Sequence[range], mode: str, to: str, zero_byte: int
) -> tuple[Codes, Codes]:
    rows = unpack(packed)
    width = len(rows[0]) if rows else 0
    out: Codes = [[0] * len(rows) for _ in range(width)]
    lines = []
    for block in blocks:
        line = []
        for k in range(width):
            group = range(k - k % 32, k - k % 32 + 32)
            live = [i for i in block if _participates([rows[i][c] for c in group], scales[i][k // 32])]
            column = [(covered("E2M1", rows[i][k], scales[i][k // 32]), scales[i][k // 32]) for i in live]
            if mode == "amax" and all(number(v) == 0 for v, _ in column):
                column = []
            byte = _target_byte(column, mode, to)
            byte = zero_byte if byte is None else byte
            values = [covered("E2M1", rows[i][k], scales[i][k // 32]) for i in block]
            if to == "E2M1" and NAN in values:
                byte, codes = 255, [0] * len(values)
            else:
                codes = [encode_element(v, to, byte, DEFAULT) for v in values]
            line.append(byte)
            for i, code in zip(block, codes, strict=True):
                out[k][i] = code
        lines.append(line)
    return out, lines


def fp8_columns(
    codes: Matrix, scales: Matrix, splits: Sequence[int] | None = None, underflow: str = "rne"
) -> tuple[Codes, Codes]:
    """Convert FP8 rows (tiles 1x128) to FP8 columns: (codes [K, M], bytes [row blocks, K]) (N10)."""
    width = len(codes[0]) if codes else 0
    out: Codes = [[0] * len(codes) for _ in range(width)]
    lines = []
    for block in _row_blocks(len(codes), splits, 128):
        line: list[int] = []
        for ks in _groups(width, 128):
            tile = ks.start // 128
            live = [
                scales[i][tile]
                for i in block
                if scales[i][tile] != 255 and any(decode("E4M3", codes[i][k]) != 0 for k in ks)
            ]
            byte = max(live, default=127)
            line += [byte] * len(ks)
            for i in block:
                for k in ks:
                    out[k][i] = _align(codes[i][k], scales[i][tile], byte, underflow)
        lines.append(line)
    return out, lines


def _align(code: int, row_byte: int, byte: int, underflow: str) -> int:
    """Move one E4M3 code from its row's scale to the tile's (N10)."""
    if underflow not in ("rne", "te"):
        raise ArgumentError(f"underflow={underflow!r} is not one of 'rne', 'te'")
    if underflow == "rne" or row_byte == 255:
        return encode_element(covered("E4M3", code, row_byte), "E4M3", byte, DEFAULT)
    # the published kernel works on the fields: it knows no NaN, and keeps the mantissa on underflow
    sign, field, mantissa = code // 128, code // 8 % 16, code % 8
    if field == 0:
        return 0
    shifted = field - (byte - row_byte)
    return sign * 128 + (shifted * 8 if shifted >= 1 else 0) + mantissa
