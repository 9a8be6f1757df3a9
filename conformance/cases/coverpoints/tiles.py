"""Coverpoints of the conversions between FP8 and MXFP4: distances between scales, empty and NaN blocks, padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.arrays import unpack_nibbles

from ..case import Case
from ..geometry import column_block
from .point import Counts, Golden, Group, histogram

DISTANCES = tuple(range(41))
ROWS = ("mxfp4_to_fp8",)
COLUMNS = ("mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns", "mxfp4_columns", "fp8_columns")
_ABSENT = -1


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    what = "row" if operation in COLUMNS else "block"
    names = {f"distance {d}": f"a {what} whose scale is 2**-{d} of the largest in its tile" for d in DISTANCES}
    names |= {
        "distance above 40": f"a {what} far below the largest",
        "zero element at distance 7 or more": "must stay a zero; the released kernel makes it -+448",
        f"empty {what} beside others": "takes no part in the scale",
        f"empty {what} under a larger byte": "takes no part in the scale, however large its byte",
        f"NaN {what} beside others": "byte 255 beside ordinary ones",
        "tile without a participant": "every one empty or NaN",
        "largest byte below 6": "where largest - 6 is clamped", "short tile": "fewer than four blocks or whole rows",
    }  # fmt: skip
    if operation == "fp8_columns":
        names |= {"NaN code": "counts as non-zero", "row of NaN codes only": "takes part in the scale",
                  "source subnormal shifted": "exponent field 0 at a distance",
                  "exponent that leaves the normal range": "`te` keeps the mantissa bits, `rne` rounds"}  # fmt: skip
        del names["largest byte below 6"]
    return names


def _tiles(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (byte i32, empty bool, tile i64, zeros bool), one item a block: its byte, whether all its codes are
    zero, the number of its tile, and whether it holds any zero element."""
    scales = case.inputs["scales"].astype(np.int32)
    rows, columns = scales.shape
    if "packed" in case.inputs:
        codes, block, mask = unpack_nibbles(case.inputs["packed"]), 32, 7
    else:
        codes, block, mask = case.inputs["codes"], 128, 0x7F
    missing = -codes.shape[1] % block
    magnitude = np.pad(codes & mask, ((0, 0), (0, missing)))
    real = np.pad(np.ones(codes.shape, bool), ((0, 0), (0, missing)))
    cut = (rows, columns, block)
    empty = (magnitude == 0).reshape(cut).all(axis=2)
    zeros = ((magnitude == 0) & real).reshape(cut).any(axis=2)
    if case.operation in ROWS:
        wide = -(-columns // 4)
        tile = np.arange(rows)[:, None] * wide + np.arange(columns)[None, :] // 4
    else:
        tall = 32 if case.operation == "mxfp4_columns" else 128
        tile = column_block(case, tall, rows)[:, None] * columns + np.arange(columns)[None, :]
    return scales, empty, tile, zeros


def _count(case: Case, golden: Golden) -> Counts:
    if not case.inputs["scales"].size:
        return {}
    what = "row" if case.operation in COLUMNS else "block"
    byte, empty, tile, zeros = _tiles(case)
    count = int(tile.max()) + 1
    nan = byte == 255
    part = np.where(empty | nan, _ABSENT, byte)
    largest = np.full(count, _ABSENT)
    np.maximum.at(largest, tile.reshape(-1), part.reshape(-1))
    members = np.bincount(tile.reshape(-1), minlength=count)
    beside = largest[tile]
    distance = (beside - part)[part != _ABSENT]
    whole = 4 if case.operation in ROWS else 32 if case.operation == "mxfp4_columns" else 128
    present = members > 0
    counts = {
        "distance above 40": distance > 40,
        "zero element at distance 7 or more": zeros & (part != _ABSENT) & (beside - part >= 7),
        f"empty {what} beside others": empty & ~nan & (beside != _ABSENT),
        f"empty {what} under a larger byte": empty & ~nan & (beside != _ABSENT) & (byte > beside),
        f"NaN {what} beside others": nan & (beside != _ABSENT),
        "tile without a participant": present & (largest == _ABSENT),
        "largest byte below 6": present & (largest >= 0) & (largest < 6),
        "short tile": present & (members < whole),
    }  # fmt: skip
    found = {name: int(np.count_nonzero(hit)) for name, hit in counts.items()}
    found |= histogram("distance", distance, DISTANCES)
    return found | (_fp8(case, beside - part, part != _ABSENT) if case.operation == "fp8_columns" else {})


def _fp8(case: Case, distance: np.ndarray, takes_part: np.ndarray) -> Counts:
    codes = case.inputs["codes"]
    far = np.repeat(np.where(takes_part, distance, 0), 128, axis=1)[:, : codes.shape[1]]
    magnitude = codes & 0x7F
    field = magnitude >> 3
    missing = -codes.shape[1] % 128
    only = np.pad((magnitude == 0x7F) | (magnitude == 0), ((0, 0), (0, missing)), constant_values=True)
    only = only.reshape(codes.shape[0], -1, 128).all(axis=2) & takes_part
    counts = {
        "NaN code": magnitude == 0x7F, "row of NaN codes only": only,
        "source subnormal shifted": (field == 0) & (magnitude != 0) & (far > 0),
        "exponent that leaves the normal range": (field > 0) & (field <= far),
    }  # fmt: skip
    return {name: int(np.count_nonzero(hit)) for name, hit in counts.items()}


def _direct_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return {
        "NaN code": "makes its block NaN", "negative NaN code": "0xFF", "tile byte 255": "makes its blocks NaN",
        "tile byte 0": "2**-127", "tile byte 254": "2**127", "zero block beside others": "in one tile",
        "zero block": "every code zero", "negative zero": "code 0x80", "subnormal block maximum": "codes 1..7 only",
        "largest code as maximum": "448", "short tile": "fewer than four blocks",
    }  # fmt: skip


def _direct(case: Case, golden: Golden) -> Counts:
    codes, scales = case.inputs["codes"], case.inputs["scales"]
    if not codes.size:
        return {}
    blocks = (codes & 0x7F).reshape(codes.shape[0], -1, 32).max(axis=2)
    missing = -blocks.shape[1] % 4
    tiles = np.pad(blocks, ((0, 0), (0, missing)), constant_values=255).reshape(codes.shape[0], -1, 4)
    zero = tiles == 0
    beside = zero.any(axis=2) & ((tiles > 0) & (tiles < 0x7F)).any(axis=2)
    counts = {
        "NaN code": codes & 0x7F == 0x7F, "negative NaN code": codes == 0xFF, "negative zero": codes == 0x80,
        "tile byte 255": scales == 255, "tile byte 0": scales == 0, "tile byte 254": scales == 254,
        "zero block": blocks == 0, "zero block beside others": beside, "largest code as maximum": blocks == 0x7E,
        "subnormal block maximum": (blocks > 0) & (blocks < 8),
        "short tile": np.full(len(codes) if missing else 0, True),
    }  # fmt: skip
    return {name: int(np.count_nonzero(hit)) for name, hit in counts.items()}


DISTANCE = Group("distances", frozenset((*ROWS, *COLUMNS)), _names, _count)
DIRECT = Group("direct quantisation", frozenset({"fp8_to_mxfp4"}), _direct_names, _direct)
