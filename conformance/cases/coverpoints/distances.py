"""Coverpoints of the conversions between FP8 and MXFP4: distances between scales, empty and NaN blocks, padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.arrays import unpack_nibbles

from ..case import Case
from ..geometry import column_block
from ..operation import OPERATIONS
from .point import Counts, Golden, Group, histogram

DISTANCES = tuple(range(41))
_ABSENT = -1


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    what = "row" if OPERATIONS[operation].ragged else "block"
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
    if OPERATIONS[operation].main == "codes":
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
    tall = OPERATIONS[case.operation].tall
    if not tall:
        wide = -(-columns // 4)
        tile = np.arange(rows)[:, None] * wide + np.arange(columns)[None, :] // 4
    else:
        tile = column_block(case, tall, rows)[:, None] * columns + np.arange(columns)[None, :]
    return scales, empty, tile, zeros


def _count(case: Case, golden: Golden) -> Counts:
    if not case.inputs["scales"].size:
        return {}
    operation = OPERATIONS[case.operation]
    what = "row" if operation.ragged else "block"
    byte, empty, tile, zeros = _tiles(case)
    count = int(tile.max()) + 1
    nan = byte == 255
    part = np.where(empty | nan, _ABSENT, byte)
    largest = np.full(count, _ABSENT)
    np.maximum.at(largest, tile.reshape(-1), part.reshape(-1))
    members = np.bincount(tile.reshape(-1), minlength=count)
    beside = largest[tile]
    distance = (beside - part)[part != _ABSENT]
    whole = operation.tall or 4
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
    return found | (_fp8(case, beside - part, part != _ABSENT) if operation.main == "codes" else {})


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


DISTANCE = Group("distances", _names, _count)
