"""Questions about the column-wise conversions, dense and ragged over experts (N9, N10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..draft import MODES, Draft, each, octets
from . import mixed
from .recast import EVERY, TOP, blocks, stack

RAGGED = [6, 0, 2, 34, 2]
"""Rows of five experts: one empty, one of more than an MX block, all even."""


def _ladder(bytes_: list[int]) -> dict[str, np.ndarray]:
    """One row a byte, K = 32, codes shifted from row to row so that columns differ."""
    return stack(*[blocks(([(c + 3 * r) % 16 for c in range(16)], byte)) for r, byte in enumerate(bytes_)])


def _mxfp4_to_fp8_columns(mode: str) -> Iterator[Draft]:
    """FP8 columns: distances down the rows, zeros, signs, empty and NaN blocks, experts."""

    def asked(splits: list[int] | None = None) -> dict[str, Any]:
        return {"scale": mode, "splits": splits}

    yield Draft(
        _ladder([140 - d for d in range(7)]),
        asked(),
        flags=("RECIPE_SIGN_LOST", "SHARED_SCALE_MODE", "TRANSPOSE_MISSING"),
        comment="distances 0 to 6 down the rows",
    )
    yield Draft(
        _ladder([140, *range(133, 116, -1)]),
        asked(),
        flags=("RECIPE_ZERO_FULL_SCALE", "RECIPE_SIGN_LOST"),
        comment="distances 7 to 23 down the rows: a zero stays a zero of its sign",
    )
    yield Draft(
        stack(blocks((TOP, 130)), blocks(((0,), 0)), blocks(((0, 8), 94)), blocks(((0,), 0))),
        asked(),
        flags=("RECIPE_ZERO_FULL_SCALE",),
        comment="padded rows and zero blocks under a normal row",
    )
    yield Draft(
        stack(blocks((TOP, 120)), blocks(((0, 8), 200)), blocks(((2, 10), 118))),
        asked(),
        flags=("EMPTY_BLOCK_JOINS_MAX",),
        comment="a zero row of a large byte takes no part",
    )
    yield Draft(
        stack(blocks((TOP, 120)), blocks((EVERY, 255)), blocks((EVERY, 117))),
        asked(),
        flags=("NAN_BLOCK_JOINS_MAX", "E8M0_FF_NOT_NAN"),
        comment="a NaN row gives 0x7F and takes no part",
    )
    yield Draft(
        stack(blocks(((0, 8), 0)), blocks(((0,), 77))),
        asked(),
        flags=("TILE_ZERO_BYTE", "RECIPE_SCALE_BYTE_WRAPS"),
        comment="nothing but zeros: byte 127",
    )
    yield from _column_geometry(mode, asked)


def _column_geometry(mode: str, asked: Callable[..., dict[str, Any]]) -> Iterator[Draft]:
    """Scale bytes at both ends, groups, experts, tails."""
    yield Draft(
        stack(blocks((EVERY, 3)), blocks((EVERY, 5)), blocks((EVERY, 0))),
        asked(),
        flags=("RECIPE_SCALE_BYTE_WRAPS",) if mode == "max" else (),
        comment="bytes below 6: clamped at 0",
    )
    yield Draft(
        stack(blocks((EVERY, 254)), blocks((EVERY, 248)), blocks((EVERY, 240))), asked(), comment="bytes up to 254"
    )
    yield Draft(
        stack(blocks((EVERY, 120), (TOP, 131)), blocks((TOP, 126), (EVERY, 119))),
        asked(),
        flags=("SCALE_OF_NEIGHBOUR", "RECIPE_SIGN_LOST"),
        comment="two 32-column groups with other maxima",
    )
    yield Draft(
        _ladder([110 + 7 * (r % 5) for r in range(sum(RAGGED))]),
        asked(RAGGED),
        flags=("RAGGED_BLOCK_RESTART", "TAIL_OR_LATER_BATCH"),
        comment=f"experts of {RAGGED} rows: blocks restart",
    )
    yield Draft(
        _ladder([100 + r % 3 + (r >= 128) * 9 for r in range(131)]),
        asked(),
        flags=("TAIL_OR_LATER_BATCH",),
        comment="131 rows: the second 128-row block has three",
    )
    yield Draft(
        stack(blocks((TOP, 120)), blocks((EVERY, 110))),
        asked([2, 0, 0]),
        flags=(),
        comment="experts without rows at the end",
    )
    yield Draft(
        {"packed": np.zeros((0, 16), np.uint8), "scales": np.zeros((0, 1), np.uint8)},
        asked([0, 0]),
        clause="N0",
        comment="no rows at all",
    )


def _mxfp4_to_fp8_rows_columns(mode: str) -> Iterator[Draft]:
    """FP8 rows and FP8 columns of one input: distances in both directions, zeros, empty and NaN blocks, experts."""

    def asked(splits: list[int] | None = None) -> dict[str, Any]:
        return {"scale": mode, "splits": splits}

    yield Draft(
        _ladder([140, 138, *range(133, 116, -1)]),
        asked(),
        flags=("RECIPE_ZERO_FULL_SCALE",) if mode == "max" else (),
        comment="distances 2 to 23 down the rows, each row alone in its tile",
    )
    yield Draft(
        stack(*[blocks((EVERY, 140 - r), (EVERY, 120 + 2 * r), (TOP, 127), (EVERY, 133)) for r in range(8)]),
        asked(),
        flags=("RECIPE_ZERO_FULL_SCALE", "SHARED_SCALE_MODE"),
        comment="four blocks a row at distances that differ along the rows and down the columns",
    )
    yield Draft(
        stack(blocks((TOP, 120), ((0, 8), 200)), blocks((EVERY, 255), (EVERY, 110)), blocks((EVERY, 117), (TOP, 90))),
        asked(),
        flags=("EMPTY_BLOCK_JOINS_MAX", "NAN_BLOCK_JOINS_MAX", "E8M0_FF_NOT_NAN"),
        comment="an empty block of a large byte and a NaN block take no part in either layout",
    )
    yield Draft(
        _ladder([110 + 7 * (r % 5) for r in range(sum(RAGGED))]),
        asked(RAGGED),
        flags=(),
        comment=f"experts of {RAGGED} rows: column blocks restart, rows do not know of experts",
    )
    yield Draft(
        stack(*[blocks(((1, 9, 2, 3), 120 + 3 * r), ((1, 10), 118)) for r in range(4)]),
        asked([3, 1]),
        flags=("SHARED_SCALE_MODE",),
        comment="codes of 0.5 to 1.5 alone: the modes give other bytes, in rows as in columns",
    )


def _mxfp4_columns(mode: str) -> Iterator[Draft]:
    """MXFP4 columns: blocks of 32 rows x 1 column; ties arise when rows are re-scaled."""

    def asked(splits: list[int] | None = None) -> dict[str, Any]:
        return {"scale": mode, "splits": splits}

    yield Draft(
        _ladder([127, 126, 125, 124, 123, 127, 120, 119]),
        asked(),
        flags=("E2M1_TIES_UP", "E2M1_TIES_TO_ZERO", "SHARED_SCALE_MODE", "TRANSPOSE_MISSING", "NIBBLE_ORDER"),
        comment="rows at distances 0 to 8: halving makes ties",
    )
    yield Draft(
        stack(blocks((TOP, 127)), blocks(((0, 8), 200))),
        asked(),
        flags=("EMPTY_BLOCK_JOINS_MAX",) if mode == "max" else (),
        comment="a zero row of a large byte takes no part",
    )
    yield Draft(
        stack(blocks((TOP, 127)), blocks((EVERY, 255))),
        asked(),
        clause="N9",
        flags=("E8M0_FF_NOT_NAN",),
        comment="a NaN row makes every column block it touches a NaN block",
    )
    yield Draft(
        stack(blocks(((0, 8), 90)), blocks(((0,), 94))),
        asked(),
        flags=("ZERO_BLOCK_BYTE",),
        comment="nothing but zeros: byte 0",
    )
    yield Draft(
        stack(blocks((EVERY, 0)), blocks((EVERY, 1)), blocks((EVERY, 2)), blocks((TOP, 0))),
        asked(),
        comment="smallest bytes",
    )
    yield Draft(stack(blocks((EVERY, 254)), blocks((EVERY, 253))), asked(), comment="largest bytes")
    yield Draft(
        _ladder([118 + 2 * (r % 5) for r in range(sum(RAGGED))]),
        asked(RAGGED),
        flags=("RAGGED_BLOCK_RESTART", "TAIL_OR_LATER_BATCH"),
        comment=f"experts of {RAGGED} rows: blocks restart",
    )
    yield Draft(
        {"packed": np.zeros((0, 16), np.uint8), "scales": np.zeros((0, 1), np.uint8)},
        asked([0]),
        clause="N0",
        comment="no rows",
    )


def _fp8_columns(underflow: str) -> Iterator[Draft]:
    """FP8 columns from FP8 rows: every code at many distances, zero and NaN rows, experts."""

    def asked(splits: list[int] | None = None) -> dict[str, Any]:
        return {"underflow": underflow, "splits": splits}

    every = np.arange(256, dtype=np.uint8).reshape(1, 256)
    for first, last in ((0, 3), (4, 8), (9, 16), (17, 24)):
        rows = [octets([[0x7E] * 256]), *[every] * (last - first + 1)]
        scales = [[140, 140]] + [[140 - d, 140 - d] for d in range(first, last + 1)]
        flags = ("UNDERFLOW_KEEPS_MANTISSA", "UNDERFLOW_FLUSHED", "TRANSPOSE_MISSING")
        yield Draft(
            {"codes": np.concatenate(rows), "scales": octets(scales)},
            asked(),
            flags=flags,
            comment=f"every code at distances {first} to {last}",
        )
    yield from _fp8_specials(asked)


def _fp8_specials(asked: Callable[..., dict[str, Any]]) -> Iterator[Draft]:
    """Zero and NaN rows, short tiles, experts."""
    mixed = octets([[0x38, 0xB9, 0x7E, 0x01] * 8, [0, 0x80] * 16, [0x40] * 32, [0x7F, 0xFF, 0x38, 0] * 8])
    yield Draft(
        {"codes": mixed, "scales": octets([[120], [200], [118], [117]])},
        asked(),
        flags=("EMPTY_BLOCK_JOINS_MAX",),
        comment="a zero row of a larger byte takes no part; NaN codes do",
    )
    yield Draft(
        {"codes": mixed, "scales": octets([[120], [110], [255], [119]])},
        asked(),
        flags=("NAN_BLOCK_JOINS_MAX", "E8M0_FF_NOT_NAN"),
        comment="a row of byte 255 gives 0x7F and takes no part",
    )
    yield Draft(
        {"codes": octets([[0, 0x80] * 16] * 2), "scales": octets([[9], [250]])},
        asked(),
        flags=("TILE_ZERO_BYTE",),
        comment="nothing but zeros: byte 127",
    )
    yield Draft(
        {
            "codes": octets([[0x38 + k % 64 for k in range(160)], [0x30 + k % 70 for k in range(160)]]),
            "scales": octets([[120, 133], [125, 121]]),
        },
        asked(),
        flags=("SCALE_OF_NEIGHBOUR", "PAD_STRIDE"),
        comment="K = 160: the second tile is 32 columns wide",
    )
    tall = sum(RAGGED)
    ragged = octets([[(0x28 + 5 * r + 3 * k) % 127 for k in range(32)] for r in range(tall)])
    yield Draft(
        {"codes": ragged, "scales": octets([[110 + 9 * (r % 4)] for r in range(tall)])},
        asked(RAGGED),
        flags=("RAGGED_BLOCK_RESTART", "TAIL_OR_LATER_BATCH"),
        comment=f"experts of {RAGGED} rows: tiles restart",
    )
    yield Draft(
        {"codes": ragged[:7], "scales": octets([[110 + 9 * (r % 4)] for r in range(7)])},
        asked([3, 0, 4]),
        flags=("RAGGED_BLOCK_RESTART",),
        comment="odd experts of 3, 0 and 4 rows",
    )
    yield Draft(
        {"codes": np.zeros((0, 32), np.uint8), "scales": np.zeros((0, 1), np.uint8)},
        asked([0]),
        clause="N0",
        comment="no rows",
    )


def _signs_lost(mode: str) -> Iterator[Draft]:
    return mixed.mxfp4_moe(mode, ("RECIPE_SIGN_LOST",))


mxfp4_to_fp8_columns = each(MODES, _mxfp4_to_fp8_columns, _signs_lost)
mxfp4_to_fp8_rows_columns = each(MODES, _mxfp4_to_fp8_rows_columns)
mxfp4_columns = each(MODES, _mxfp4_columns, mixed.mxfp4_moe)
fp8_columns = each(("rne", "te"), _fp8_columns, mixed.fp8_moe)
