"""Domains of the direct conversions between FP8 and MXFP4 (N7, N8), and what those of the columns share.

Why they prove a conversion: every output byte is a function of the participating maximum of its tile, and
every output code a function of (own code, own byte, output byte). So a tile with one pinned maximum and one
other block holds everything that can happen to that block; tiles differ only in what the maximum is. A pin
stands for all tiles with that maximum. Places of the maximum and raggedness belong to the corner set.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles

from .domain import CHUNK, Chunk, Domain, arrangement

CODES16 = np.arange(16)


def fp8_to_mxfp4(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """(block maximum 0..127, code not above it, tile byte 0..255): 16,512 * 256 = 4,227,072.

    Maximum 127 is a NaN: all 256 codes stand beside it.
    """
    counts = [2 * (top + 1) for top in range(128)]
    first = np.concatenate([[0], np.cumsum(counts)])

    def make() -> Iterator[Chunk]:
        blocks, held = [], []
        for top, count in enumerate(counts):
            index = arrangement(count, 32)
            code = (index >> 1) | (index & 1) << 7
            blocks.append(np.where(index == -2, top, np.where(index == -1, 0, code)).astype(np.uint8))
            held.append(np.where(index < 0, -1, index + first[top]))
        row, number = np.concatenate(blocks), np.concatenate(held)
        missing = -len(row) % 4
        row = np.concatenate([row, np.zeros((missing, 32), np.uint8)]).reshape(-1)
        number = np.concatenate([number, np.full((missing, 32), -1)]).reshape(-1)
        step = max(1, CHUNK // row.size)
        for start in range(0, 256, step):
            byte = np.arange(start, min(start + step, 256))
            scales = np.repeat(byte[:, None], row.size // 128, axis=1).astype(np.uint8)
            yield Chunk({"codes": np.broadcast_to(row, (byte.size, row.size)).copy(), "scales": scales},
                        functools.partial(_by_row, number, byte, int(first[-1])))  # fmt: skip

    yield Domain(
        "every block maximum, every code below it, every tile byte",
        operation,
        profile,
        params,
        int(first[-1]) * 256,
        "blocks of a pinned maximum and 31 codes, four to a tile; one row a tile byte",
        make,
    )


def _by_row(number: np.ndarray, row: np.ndarray, count: int) -> np.ndarray:
    return np.where(number < 0, -1, number[None, :] + row[:, None] * count)


def maxima(rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (code, byte) of every maximum that the rule tells apart.

    `max` sees the largest byte only: 255 maxima. `amax` sees the largest value: 1 * 2**k and 1.5 * 2**k, each
    written once with the largest code: 515 (codes 6 and 7 under every byte, 1..5 under byte 0).
    """
    byte = np.arange(255)
    if rule == "max":
        return np.full(255, 7), byte
    return np.concatenate([np.arange(1, 6), np.repeat([6, 7], 255)]), np.concatenate([np.zeros(5, int), byte, byte])


def magnitude_key(code: np.ndarray, byte: np.ndarray) -> np.ndarray:
    """A number that orders non-zero E2M1 values under E8M0 bytes: twice the exponent plus the mantissa bit."""
    magnitude = code & 7
    return 2 * byte + np.where(magnitude == 1, -2, magnitude - 2)


@functools.lru_cache(maxsize=8)
def allowed(rule: str, bytes_: int) -> np.ndarray:
    """Bool [maxima, bytes_, 16]: which (byte, code) may stand beside each maximum and leave it the maximum.

    Zeros may stand under every byte: their block is empty. Byte 255 is NaN: its block takes no part.
    """
    code, byte = (part[:, None, None] for part in maxima(rule))
    own, other = CODES16[None, None, :], np.arange(bytes_)[None, :, None]
    if rule == "max":
        below = np.broadcast_to(other <= byte, (byte.size, bytes_, 16))
    else:
        below = magnitude_key(own, other) <= magnitude_key(code, byte)
    return below | (own & 7 == 0) | (other == 255)


def beside(rule: str, bytes_: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Return codes u8 and members i64, [maxima start..stop, bytes_, 16]; what is not allowed is a zero of its sign."""
    fits = allowed(rule, bytes_)
    first = int(np.count_nonzero(fits[:start]))
    fits = fits[start:stop]
    number = (np.cumsum(fits.reshape(-1)) - 1 + first).reshape(fits.shape)
    return np.where(fits, CODES16, CODES16 & 8).astype(np.uint8), np.where(fits, number, -1)


def mxfp4_to_fp8(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """(tile maximum, block byte 0..255, code): 591,090 under `max`, under `amax` as many as keep the maximum."""
    rule = str(params["scale"])
    code = maxima(rule)[0]
    size = int(np.count_nonzero(allowed(rule, 256)))

    def make() -> Iterator[Chunk]:
        for start in range(0, code.size, 128):
            stop = min(start + 128, code.size)
            yield _tiles(rule, start, stop)

    yield Domain(
        "every maximum, every byte and code beside it",
        operation,
        profile,
        params,
        size,
        "tiles of one pinned block and three others, each other block with all 16 codes that fit, twice",
        make,
    )


def _tiles(rule: str, start: int, stop: int) -> Chunk:
    """Tiles [maxima, 86, 4 blocks, 32]: a pinned block, whose place rotates, and three of the 256 bytes."""
    code, byte = (part[start:stop] for part in maxima(rule))
    others, number = beside(rule, 256, start, stop)
    count, tiles = stop - start, 86
    blocks = np.zeros((count, tiles * 3, 32), np.uint8)
    blocks[:, :256] = np.concatenate([others, others[:, :, ::-1]], axis=2)
    scales = np.zeros((count, tiles * 3), np.uint8)
    scales[:, :256] = np.arange(256)
    pinned = np.zeros((count, tiles, 1, 32), np.uint8)
    pinned[..., 9] = code[:, None, None]
    codes = np.concatenate([pinned, blocks.reshape(count, tiles, 3, 32)], axis=2)
    bytes_ = np.concatenate([np.broadcast_to(byte[:, None, None], (count, tiles, 1)),
                             scales.reshape(count, tiles, 3)], axis=2)  # fmt: skip
    order = (np.arange(4)[None, None, :] - np.arange(tiles)[None, :, None]) % 4

    def held() -> np.ndarray:
        members = np.full((count, tiles * 3, 32), -1, np.int64)
        members[:, :256, :16] = number
        four = np.concatenate([np.full((count, tiles, 1, 32), -1), members.reshape(count, tiles, 3, 32)], axis=2)
        return np.take_along_axis(four, order[..., None], axis=2).reshape(count, -1)

    codes = np.take_along_axis(codes, order[..., None], axis=2).reshape(count, -1)
    return Chunk({"packed": pack_nibbles(codes), "scales": np.take_along_axis(bytes_, order, axis=2).reshape(count, -1)
                  .astype(np.uint8)}, held)  # fmt: skip
