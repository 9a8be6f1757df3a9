"""Domains of TetraJet-v2 (N24): 16-bit numbers as maxima that decide an inner or an outer scale, and beside scales.

An inner scale is a function of its block's maximum and the outer scale, a code one of the element and both scales, and
of the noise of its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import Format

from ..corners.nvfp4 import narrowed
from ..corners.tetrajet_v2 import INNER, TOP, grouped
from ..draw.bits import as_float
from ..recipes.distributions import target_of
from .domain import Chunk, Domain, sequence

NUMBERS = np.arange(1, 0x7F80, dtype=np.uint32) << np.uint32(16)
"""Positive finite bfloat16 numbers as float32 patterns."""


def _chunk(blocks: np.ndarray, held: np.ndarray, fmt: Format) -> Iterator[Chunk]:
    """The chunk of blocks [n, 16] under the outer scale 1; held: member of each lane, -1 where there is none."""
    members = grouped(held + 1, 0) - 1
    yield Chunk({"x": as_float(narrowed(grouped(blocks), fmt), fmt)}, lambda: members)


def _inner(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    fmt, tops = target_of(operation, params).input, NUMBERS[NUMBERS <= TOP]

    def make() -> Iterator[Chunk]:
        blocks, held, place = np.zeros((len(tops), 16), np.uint32), np.full((len(tops), 16), -1), np.arange(len(tops))
        blocks[place, place % 16], held[place, place % 16] = tops, place
        blocks[place, (place + 5) % 16] = tops >> np.uint32(1) & np.uint32(0xFFFF0000) | np.uint32(1 << 31)
        yield from _chunk(blocks, held, fmt)

    how = "a maximum in a lane that rotates, half its bits negative five lanes on, zeros otherwise, beside a 2688"
    return Domain("every number as maximum of 16", operation, profile, params, len(tops), how, make)


def _outer(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    """Every number of the two lowest and the highest binade and of one around 2688, and five of each other binade."""
    fmt, field = target_of(operation, params).input, NUMBERS >> np.uint32(23)
    whole = np.isin(field, (0, 1, 138, 254)) | np.isin(NUMBERS >> np.uint32(16) & 127, (0, 1, 40, 64, 127))
    tops = NUMBERS[whole]

    def make() -> Iterator[Chunk]:
        rows: np.ndarray = np.zeros((-(-len(tops) // 8) * 8, 128), np.uint32)
        held, place = np.full(rows.shape, -1), np.arange(len(tops))
        rows[place, place * 37 % 128], held[place, place * 37 % 128] = tops, place
        for step, shift in enumerate((1, 2, 5, 9)):
            lower = np.maximum(tops.astype(np.int64) - (shift << 23), 0).astype(np.uint32)
            rows[place, (place * 37 + 21 * (step + 1)) % 128] = lower | np.uint32(step % 2 << 31)
        yield Chunk({"x": as_float(narrowed(rows.reshape(-1, 1024), fmt), fmt)}, lambda: held.reshape(-1, 1024))

    how = "a maximum in a lane that rotates, smaller numbers 21, 42, 63 and 84 lanes on, zeros otherwise"
    return Domain("numbers of every binade as maximum of 128", operation, profile, params, len(tops), how, make)


def _elements(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    """Beside the maximum of each inner scale, bfloat16 shares of it from 2^-5 of it on, those of 16 mantissas apart."""
    fmt = target_of(operation, params).input
    shares = (np.arange(0x3D00, 0x3F80, 2, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    size = len(INNER) * len(shares)

    def make() -> Iterator[Chunk]:
        tops = INNER.view(np.float32) * np.float32(6)
        members = tops[:, None] * np.resize(shares, (-(-len(shares) // 15) * 15,))
        signed = members.view(np.uint32) | (np.arange(members.shape[1], dtype=np.uint32) % 3 == 0).astype(
            np.uint32
        ) << np.uint32(31)
        blocks = np.concatenate(
            [np.repeat(tops.view(np.uint32), signed.shape[1] // 15)[:, None], signed.reshape(-1, 15)], axis=1
        )
        index = np.arange(members.shape[1]) + len(shares) * np.arange(len(INNER))[:, None]
        index[:, len(shares) :] = -1
        held = np.concatenate([np.full((len(blocks), 1), -1), index.reshape(-1, 15)], axis=1)
        yield from _chunk(blocks, held, fmt)

    how = "scales upward, the maximum of each in lane 0, shares of it upward in the others, one of three negative"
    return Domain("numbers beside every inner scale", operation, profile, params, size, how, make)


def quantize_tetrajet_v2(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Maxima of 16, maxima of 128, and elements."""
    yield _inner(operation, profile, params)
    yield _outer(operation, profile, params)
    yield _elements(operation, profile, params)


def dequantize_tetrajet_v2(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every code under every inner scale, under outer scales that are powers of two, round, or make results round."""
    outers = np.array([0x3F800000, 0x3F8CCCCD, 0x00400001, 0x7E000000, 0x3A000003, 0x33D6BF95], np.uint32)
    shape = (len(outers) * 4, 1024)

    def make() -> Iterator[Chunk]:
        codes: np.ndarray = np.tile(np.arange(16, dtype=np.uint8), (shape[0], shape[1] // 16))
        scales = np.resize(np.arange(256, dtype=np.uint8), (shape[0], shape[1] // 16))
        outer = np.repeat(outers, 4)[:, None] * np.ones((1, 8), np.uint32)
        inputs = {"packed": pack_nibbles(codes), "scales": scales, "outer": outer.astype(np.uint32).view(np.float32)}
        yield Chunk(inputs, sequence(0, shape))

    how = "a row of 64 inner scales, every code under each; each outer scale in four rows"
    yield Domain("every code and inner scale", operation, profile, params, shape[0] * shape[1], how, make)
