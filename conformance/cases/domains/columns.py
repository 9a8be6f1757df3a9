"""Domains of the conversions of rows to columns (N9, N10); why they prove one, see `recast`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles

from ..operation import OPERATIONS
from .domain import Chunk, Domain
from .recast import allowed, beside, maxima, mxfp4_to_fp8

CODES256 = np.arange(256)


def mxfp4_columns(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """The same down the rows: one pinned row and 127 (FP8 target) or 31 (FP4 target) rows of other bytes.

    A NaN row makes whole 32x1 blocks NaN for the FP4 target, so byte 255 is left out there (corners have it).
    """
    rule = str(params["scale"])
    row = OPERATIONS[operation]
    tall, bytes_ = row.tall, 256 - row.even_rows
    code, _ = maxima(rule)
    size = int(np.count_nonzero(allowed(rule, bytes_)))

    def make() -> Iterator[Chunk]:
        for start in range(0, code.size, 128):
            yield _column_tiles(rule, tall, bytes_, start, min(start + 128, code.size))

    yield Domain(
        "every maximum, every byte and code beside it, down the rows",
        operation,
        profile,
        params,
        size,
        f"blocks of one pinned row and {tall - 1} others, each with all 16 codes that fit, twice",
        make,
    )


mxfp4_to_fp8_columns = mxfp4_columns


def mxfp4_to_fp8_rows_columns(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """The domains along the rows, then those down the rows."""
    yield from mxfp4_to_fp8(operation, profile, params)
    yield from mxfp4_columns(operation, profile, params)


def _column_tiles(rule: str, tall: int, bytes_: int, start: int, stop: int) -> Chunk:
    code, byte = (part[start:stop] for part in maxima(rule))
    others, number = beside(rule, bytes_, start, stop)
    count, tiles = stop - start, -(-bytes_ // (tall - 1))
    rows = np.zeros((count, tiles * (tall - 1), 32), np.uint8)
    rows[:, :bytes_] = np.concatenate([others, others[:, :, ::-1]], axis=2)
    scales = np.zeros((count, tiles * (tall - 1)), np.uint8)
    scales[:, :bytes_] = np.arange(bytes_)
    pinned = np.broadcast_to(code[:, None, None, None], (count, tiles, 1, 32)).astype(np.uint8)
    codes = np.concatenate([pinned, rows.reshape(count, tiles, tall - 1, 32)], axis=2)
    levels = np.concatenate([np.broadcast_to(byte[:, None, None], (count, tiles, 1)),
                             scales.reshape(count, tiles, tall - 1)], axis=2)  # fmt: skip
    turn = 5 * np.arange(count)[:, None, None] + np.arange(tiles)[None, :, None]
    order = (np.arange(tall)[None, None, :] - turn) % tall

    def held() -> np.ndarray:
        members = np.full((count, tiles * (tall - 1), 32), -1, np.int64)
        members[:, :bytes_, :16] = number
        parts = [np.full((count, tiles, 1, 32), -1), members.reshape(count, tiles, tall - 1, 32)]
        whole = np.concatenate(parts, axis=2)
        return np.take_along_axis(whole, order[..., None], axis=2).reshape(-1, 32)

    codes = np.take_along_axis(codes, order[..., None], axis=2).reshape(-1, 32)
    levels = np.take_along_axis(levels, order, axis=2).reshape(-1, 1)
    return Chunk({"packed": pack_nibbles(codes), "scales": levels.astype(np.uint8)}, held)


def fp8_columns(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """(largest byte s, row byte, code): row bytes up to s with all codes, above s with zeros, 255 with all codes.

    (32,640 + 255) * 256 + 32,385 * 2 = 8,485,890.
    """
    row, top = np.meshgrid(np.arange(256), np.arange(255))
    whole = (row <= top) | (row == 255)
    sizes = np.where(whole, 256, 2).sum(axis=1)
    first = np.concatenate([[0], np.cumsum(sizes)])

    def make() -> Iterator[Chunk]:
        for start in range(0, 255, 16):
            stop = min(start + 16, 255)
            yield _fp8_column_tiles(whole[start:stop], np.arange(start, stop), first[start:stop])

    yield Domain(
        "every largest byte, every row byte and code beside it",
        operation,
        profile,
        params,
        int(first[-1]),
        "128-row tiles of one pinned row and 127 others, each with all 256 codes over two column tiles",
        make,
    )


def _fp8_column_tiles(whole: np.ndarray, top: np.ndarray, first: np.ndarray) -> Chunk:
    """Rows [tops, 3 tiles, 128, 256]: a pinned row of ones under byte `top`, then 127 of the 256 row bytes."""
    count, tiles = top.size, 3
    fits = whole[:, :, None] | (CODES256 & 0x7F == 0)
    rows = np.zeros((count, tiles * 127, 256), np.uint8)
    rows[:, :256] = np.where(fits, CODES256, 0)
    scales = np.zeros((count, tiles * 127), np.uint8)
    scales[:, :256] = np.arange(256)
    pinned = np.full((count, tiles, 1, 256), 0x38, np.uint8)
    codes = np.concatenate([pinned, rows.reshape(count, tiles, 127, 256)], axis=2)
    levels = np.concatenate([np.broadcast_to(top[:, None, None], (count, tiles, 1)),
                             scales.reshape(count, tiles, 127)], axis=2)  # fmt: skip

    def held() -> np.ndarray:
        number = np.cumsum(fits.reshape(count, -1), axis=1).reshape(fits.shape) - 1 + first[:, None, None]
        members = np.full((count, tiles * 127, 256), -1, np.int64)
        members[:, :256] = np.where(fits, number, -1)
        others = members.reshape(count, tiles, 127, 256)
        return np.concatenate([np.full((count, tiles, 1, 256), -1), others], axis=2).reshape(-1, 256)

    both = np.repeat(levels.reshape(-1, 1), 2, axis=1).astype(np.uint8)
    return Chunk({"codes": codes.reshape(-1, 256), "scales": both}, held)
