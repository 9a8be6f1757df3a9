"""Which scale covers which element: the block geometries of the outputs, as pure index arithmetic."""

from __future__ import annotations

import numpy as np

from refnum.errors import ArgumentError

from .case import Case

BLOCKS: dict[str, int] = {"row32": 32, "row128": 128, "column32": 32, "column128": 128}
"""Geometry -> elements of the last axis, in one row, that one scale covers."""


def block_shape(geometry: str, case: Case) -> tuple[int, int]:
    """Return (rows, elements along the last axis) of a block; `tile` is the case's own parameter."""
    if geometry == "tile":
        rows, columns = case.params["tile"]
        return int(rows), int(columns)
    if geometry == "down32":
        return 32, 1
    if geometry not in BLOCKS:
        raise ArgumentError(f"Unknown block geometry {geometry!r}; choose from {', '.join(BLOCKS)}, down32 or tile.")
    return 1, BLOCKS[geometry]


def splits_of(case: Case, rows: int) -> list[int]:
    """Return the rows of each expert; without `splits` all rows are one."""
    splits = case.params.get("splits")
    return [rows] if splits is None else [int(count) for count in splits]


def spread(geometry: str, case: Case, scales: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the scale byte of every element.

    scales: u8 as the operation returns it. shape: of the unpacked codes, [rows, elements]. Result: u8 [shape].
    Column outputs hold codes [K, M] and scales [blocks, K], where blocks restart at every split (N9).
    """
    rows, last = block_shape(geometry, case)
    if not geometry.startswith("column"):
        wide = np.repeat(np.repeat(scales, rows, axis=0), last, axis=1)
        return wide[: shape[0], : shape[1]]
    return np.ascontiguousarray(scales[column_block(case, last, shape[1])].T)


def column_block(case: Case, last: int, total: int) -> np.ndarray:
    """Return for every input row (column of a column output) the index of its block: i64 [total]."""
    parts, first = [], 0
    for count in splits_of(case, total):
        parts.append(first + np.arange(count) // last)
        first += -(-count // last)
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def blocks_hit(geometry: str, case: Case, wrong: np.ndarray) -> np.ndarray:
    """Reduce wrong elements, bool [rows, elements], to wrong blocks: bool in the shape of the row-wise scales."""
    rows, last = block_shape(geometry, case)
    height, width = -(-wrong.shape[0] // rows), -(-wrong.shape[1] // last)
    padded = np.zeros((height * rows, width * last), bool)
    padded[: wrong.shape[0], : wrong.shape[1]] = wrong
    return np.asarray(padded.reshape(height, rows, width, last).any(axis=(1, 3)))
