"""What is asked of payloads, permutation and layouts, which only move bytes, and of Philox (N0, N6, N12, N13)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from refnum import layouts

from ..draft import NAN, SIGN, Draft, bfloat16, bits, float32, octets

ROW_MAP = (3, 0, 5, 5, 1, 4, 2)
SPLITS = [3, 0, 4]


def _bytes(rows: int, columns: int, start: int = 1) -> np.ndarray:
    return ((np.arange(rows * columns) * 7 + start) % 251).astype(np.uint8).reshape(rows, columns)


def pack_payload() -> Iterator[Draft]:
    """Codes, then scale bytes, row by row."""
    for rows, blocks in ((1, 1), (3, 2), (2, 5), (0, 2)):
        yield Draft(
            {"packed": _bytes(rows, 16 * blocks), "scales": _bytes(rows, blocks, 200)},
            flags=("PAYLOAD_ORDER",) if rows else (),
            comment=f"{rows} rows of {blocks} blocks",
        )


def unpack_payload() -> Iterator[Draft]:
    """The way back."""
    for rows, blocks in ((1, 1), (3, 2), (0, 1)):
        yield Draft(
            {"payload": _bytes(rows, 17 * blocks)},
            flags=("PAYLOAD_ORDER",) if rows else (),
            comment=f"{rows} rows of {blocks} blocks",
        )


def permute_pad() -> Iterator[Draft]:
    """Rows gathered by expert, padded with zeros."""
    for align in (32, 16, 128):
        params: dict[str, Any] = {"splits": SPLITS, "align": align}
        yield Draft(
            {"payload": _bytes(6, 17), "row_map": np.asarray(ROW_MAP, np.int32)},
            params,
            flags=("PADDING_NOT_ZERO", "ROW_MAP_INVERTED"),
            comment="experts of 3, 0 and 4 rows; row 5 is taken twice",
        )
    whole = [32]
    yield Draft(
        {"payload": _bytes(40, 17), "row_map": np.arange(39, 7, -1).astype(np.int32)},
        {"splits": whole, "align": 32},
        flags=("ROW_MAP_INVERTED",),
        comment="an expert of exactly 32 rows needs no padding",
    )
    yield Draft(
        {"payload": _bytes(2, 17), "row_map": np.zeros(0, np.int32)},
        {"splits": [0, 0], "align": 32},
        comment="no rows go to any expert",
    )


def permute_unpack() -> Iterator[Draft]:
    """The rows of `permute_pad` with codes and scales apart."""
    for align in (32, 16, 128):
        yield Draft(
            {"payload": _bytes(6, 34), "row_map": np.asarray(ROW_MAP, np.int32)},
            {"splits": SPLITS, "align": align},
            flags=("PADDING_NOT_ZERO", "ROW_MAP_INVERTED", "PAYLOAD_ORDER"),
            comment="experts of 3, 0 and 4 rows; row 5 is taken twice",
        )
    yield Draft(
        {"payload": _bytes(2, 17), "row_map": np.zeros(0, np.int32)},
        {"splits": [0, 0], "align": 32},
        comment="no rows go to any expert",
    )


def quantize_payload() -> Iterator[Draft]:
    """Blocks of a small matrix, quantised and joined: a row's scale bytes lie behind all its codes."""
    values = [[bits(1) + (((r * 37 + k * 11) % 19) << 22) + 4099 * k for k in range(96)] for r in range(3)]
    matrix = np.asarray(values, np.uint32)
    matrix[1, 32:64] = 0
    matrix[2, 70] = 0x7FC00000
    yield Draft(
        {"x": matrix.view(np.float32)}, flags=("PAYLOAD_ORDER",),
        comment="three blocks a row: one of zeros, one with a NaN",
    )  # fmt: skip
    half = (matrix[:, :64] >> 16).astype(np.uint16)
    yield Draft(
        {"x": half.view(bfloat16([]).dtype)},
        flags=("PAYLOAD_ORDER",),
        comment="two blocks a row",
    )


def fp8_to_payload() -> Iterator[Draft]:
    """FP8 tiles, the last one short, quantised and joined."""
    codes = _bytes(3, 160)
    codes[codes & 0x7F == 0x7F] = 0x7E
    codes[1, 32:64] = 0
    codes[2, 150] = 0x7F
    yield Draft(
        {"codes": codes, "scales": octets([[127, 120], [3, 254], [200, 127]])},
        flags=("PAYLOAD_ORDER",),
        comment="five blocks a row: one of zeros, one with a NaN",
    )


def unpermute() -> Iterator[Draft]:
    """The weighted sum back, in ascending expert order, one rounding an operation."""
    splits, tokens = [2, 2, 2], 3
    row_map = np.asarray([0, 1, 0, 2, 0, 1], np.int32)
    values = [
        [
            bits(1) + 77 * r + 3 * k + ((r * 5 + k) % 7 << 23) | (0x80000000 if (r + k) % 3 == 0 else 0)
            for k in range(32)
        ]
        for r in range(6)
    ]
    padded = np.zeros((96, 32), np.uint32)
    for r, row in enumerate(values):
        padded[r // 2 * 32 + r % 2] = row
    weights = np.asarray([0x3EAAAAAB, 0x3F333333, 0x3E4CCCCD, 0x3DCCCCCD, 0x3F19999A, 0x3E99999A], np.uint32).view(
        np.float32
    )
    params = {"splits": splits, "tokens": tokens, "align": 32}
    yield Draft(
        {"rows": padded.view(np.float32), "row_map": row_map, "weights": weights},
        params,
        flags=("FMA_CONTRACTION", "SUM_ORDER"),
        comment="three experts, token 0 has three rows",
    )
    dirty = padded.copy()
    dirty[2:32] = 0x7FC00000
    yield Draft(
        {"rows": dirty.view(np.float32), "row_map": row_map, "weights": weights},
        params,
        flags=("PADDING_READ",),
        comment="NaN in the padding rows: they are not read",
    )
    half = np.zeros((32, 32), np.uint16)
    half[:3] = (np.arange(96) * 331 % 0x7F00).reshape(3, 32)
    yield Draft(
        {"rows": half.view(bfloat16([]).dtype), "row_map": np.asarray([2, 2, 0], np.int32), "weights": weights[:3]},
        {"splits": [1, 2, 0], "tokens": 4, "align": 16},
        comment="bfloat16 rows; tokens 1 and 3 have none: +0",
    )
    special = np.full((32, 32), bits(1), np.uint32)
    special[0, :4] = [0x7FC00001, 0x7F800000, 0x80000000, 0x00000100]
    yield Draft(
        {"rows": special.view(np.float32), "row_map": np.asarray([0], np.int32), "weights": float32([[0x3F000000]])[0]},
        {"splits": [1], "tokens": 1, "align": 32},
        flags=("FTZ_SILENT",),
        comment="NaN, Inf, -0 and a subnormal",
    )
    special[0, :4] = [0xFFC00001, 0xFF800000, 0xFF800001, 0x7F800000]
    special[1, :4] = [bits(1), 0x7F800000, 0xFF800000, 0x7F800000]
    yield Draft(
        {
            "rows": special.view(np.float32),
            "row_map": np.asarray([0, 0], np.int32),
            "weights": float32([[bits(-1), bits(-1)]])[0],
        },
        {"splits": [2], "tokens": 1, "align": 32},
        comment="NaN with a sign and a payload, and NaN from Inf - Inf: every NaN is 0x7FC00000",
    )


def scales_to_swizzled() -> Iterator[Draft]:
    """Blackwell's 128x4 blocks, whole and padded."""
    for rows, columns in ((128, 4), (1, 1), (33, 5), (130, 3), (256, 8)):
        padded = rows % 128 or columns % 4
        yield Draft(
            {"scales": _bytes(rows, columns)},
            flags=("SWIZZLE_LAYOUT", "PAD_SCALE_READ") if padded else ("SWIZZLE_LAYOUT",),
            comment=f"{rows} x {columns} scales",
        )


def scales_to_packed_ue8m0() -> Iterator[Draft]:
    """Four bytes an integer, column-major, both axes padded to four."""
    for rows, columns in ((4, 4), (1, 1), (3, 5), (6, 8)):
        padded = rows % 4 or columns % 4
        yield Draft(
            {"scales": _bytes(rows, columns)},
            comment=f"{rows} x {columns} scales",
            flags=("UE8M0_PACK_ORDER", "PAD_SCALE_READ") if padded else ("UE8M0_PACK_ORDER",),
        )


def scales_to_gemm_float32() -> Iterator[Draft]:
    """Transposed float32 scales, rows padded to four."""
    for rows, columns in ((4, 2), (5, 3), (1, 1)):
        yield Draft(
            {"scales": _bytes(rows, columns)},
            flags=("TRANSPOSE_MISSING", "PAD_SCALE_READ") if rows == 5 else (),
            comment=f"{rows} x {columns} scales",
        )
    yield Draft(
        {"scales": octets([[0, 255], [1, 254]])},
        flags=("E8M0_ZERO_IS_TINY", "E8M0_FF_NOT_NAN"),
        comment="bytes 0 and 255",
    )


def scales_from_layout() -> Iterator[Draft]:
    """Stored scales of every layout, as an operation reads them: bytes 0 and 255 among them, padding not zero."""
    for rows, columns in ((6, 7), (130, 5), (1, 1)):
        scales = _bytes(rows, columns)
        scales[0, -1] = 255
        scales[-1, 0] = 0
        for layout in layouts.LAYOUTS:
            stored = layouts.scales_to_layout(scales, layout).copy()
            words = stored.view(f"u{stored.dtype.itemsize}")
            if layout == "gemm_float32":
                words[:, rows:] = 0xDEADBEEF
            elif layout == "packed_ue8m0":
                words[:, rows:] = 0xEE
                words[-1] |= np.uint32(0xEE000000) if columns % 4 else np.uint32(0)
            elif layout == "swizzled":
                held = layouts.scales_to_swizzled(np.ones_like(scales))
                words[held == 0] = 0xEE
            yield Draft(
                {"stored": stored},
                {"layout": layout, "rows": rows, "columns": columns},
                flags=("SCALE_LAYOUT_REVERSED",) if layout != "bytes" else (),
                comment=f"{rows} x {columns} scales, whatever lies in the padding",
            )
    nans = np.asarray([[NAN, SIGN | NAN, 0x7F800001, 0xFFFFFFFF, 0x00400000, 0x00800000, 0x7F000000]], np.uint32)
    yield Draft(
        {"stored": nans.view(np.float32)},
        {"layout": "float32", "rows": 1, "columns": 7},
        flags=("SCALE_LAYOUT_REVERSED",),
        comment="every NaN is byte 255, 2^-127 is byte 0, and both ends of the normal range",
    )


def codes_to_packed() -> Iterator[Draft]:
    """Three nibble orders of the same codes."""
    codes = (np.arange(128) * 5 % 16).astype(np.uint8).reshape(2, 64)
    for order in layouts.NIBBLE_ORDERS:
        yield Draft(
            {"codes": codes}, {"order": order}, flags=("NIBBLE_ORDER", "SPLIT_HALF_ORDER"), comment=f"order {order}"
        )


def philox4x32() -> Iterator[Draft]:
    """Philox4x32-10: Random123's three published answers, and a run of counters."""
    ones = 0xFFFFFFFF
    pi = ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))
    for counter, key, word in (((0,) * 4, (0, 0), "zeros"), ((ones,) * 4, (ones, ones), "ones"), (*pi, "digits of pi")):
        yield Draft(
            {"counter": np.asarray([counter], np.uint32), "key": np.asarray(key, np.uint32)},
            flags=("PHILOX_WIDTH",),
            comment=f"Random123 known answer: {word}",
        )
    run = np.stack([np.arange(8), np.zeros(8), np.full(8, 3), np.full(8, 9)], axis=1).astype(np.uint32)
    yield Draft(
        {"counter": run, "key": np.asarray([0x01234567, 0x89ABCDEF], np.uint32)},
        flags=("PHILOX_WIDTH",),
        comment="eight counters, stream 3, step 9",
    )
