"""Questions about payloads, permutation and the weighted way back (N12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..draft import Draft, bfloat16, bits, counted, float32, octets, plain
from . import mixed

ROW_MAP = (3, 0, 5, 5, 1, 4, 2)
SPLITS = [3, 0, 4]


def _pack_payload() -> Iterator[Draft]:
    """Codes, then scale bytes, row by row."""
    for rows, blocks in ((1, 1), (3, 2), (2, 5), (0, 2)):
        yield Draft(
            {"packed": counted(rows, 16 * blocks), "scales": counted(rows, blocks, 200)},
            flags=("PAYLOAD_ORDER",) if rows else (),
            comment=f"{rows} rows of {blocks} blocks",
        )


def _unpack_payload() -> Iterator[Draft]:
    """The way back."""
    for rows, blocks in ((1, 1), (3, 2), (0, 1)):
        yield Draft(
            {"payload": counted(rows, 17 * blocks)},
            flags=("PAYLOAD_ORDER",) if rows else (),
            comment=f"{rows} rows of {blocks} blocks",
        )


def _permute_pad() -> Iterator[Draft]:
    """Rows gathered by expert, padded with zeros."""
    for align in (32, 16, 128):
        params: dict[str, Any] = {"splits": SPLITS, "align": align}
        yield Draft(
            {"payload": counted(6, 17), "row_map": np.asarray(ROW_MAP, np.int32)},
            params,
            flags=("PADDING_NOT_ZERO", "ROW_MAP_INVERTED"),
            comment="experts of 3, 0 and 4 rows; row 5 is taken twice",
        )
    whole = [32]
    yield Draft(
        {"payload": counted(40, 17), "row_map": np.arange(39, 7, -1).astype(np.int32)},
        {"splits": whole, "align": 32},
        flags=("ROW_MAP_INVERTED",),
        comment="an expert of exactly 32 rows needs no padding",
    )
    yield Draft(
        {"payload": counted(2, 17), "row_map": np.zeros(0, np.int32)},
        {"splits": [0, 0], "align": 32},
        comment="no rows go to any expert",
    )


def _permute_unpack() -> Iterator[Draft]:
    """The rows of `permute_pad` with codes and scales apart."""
    for align in (32, 16, 128):
        yield Draft(
            {"payload": counted(6, 34), "row_map": np.asarray(ROW_MAP, np.int32)},
            {"splits": SPLITS, "align": align},
            flags=("PADDING_NOT_ZERO", "ROW_MAP_INVERTED", "PAYLOAD_ORDER"),
            comment="experts of 3, 0 and 4 rows; row 5 is taken twice",
        )
    yield Draft(
        {"payload": counted(2, 17), "row_map": np.zeros(0, np.int32)},
        {"splits": [0, 0], "align": 32},
        comment="no rows go to any expert",
    )


def _quantize_payload() -> Iterator[Draft]:
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


def _fp8_to_payload() -> Iterator[Draft]:
    """FP8 tiles, the last one short, quantised and joined."""
    codes = counted(3, 160)
    codes[codes & 0x7F == 0x7F] = 0x7E
    codes[1, 32:64] = 0
    codes[2, 150] = 0x7F
    yield Draft(
        {"codes": codes, "scales": octets([[127, 120], [3, 254], [200, 127]])},
        flags=("PAYLOAD_ORDER",),
        comment="five blocks a row: one of zeros, one with a NaN",
    )


def _unpermute() -> Iterator[Draft]:
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


pack_payload, unpack_payload = plain(_pack_payload), plain(_unpack_payload)
quantize_payload, fp8_to_payload = plain(_quantize_payload), plain(_fp8_to_payload)
permute_pad, permute_unpack = plain(_permute_pad, mixed.moe_rows), plain(_permute_unpack)
unpermute = plain(_unpermute, mixed.moe_combine)
