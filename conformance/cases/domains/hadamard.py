"""Domains of rotations (N22): every 16-bit number alone in its group, and pairs of significands at every distance.

Alone, a number shows what is a quarter of it at each of 16 places, rounded. Two numbers show their sum and their
difference, rounded, in the order `exact`: which lanes they stand in moves from pair to pair. Sums of more terms are
sampled.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import FP32, Format

from ..corners.nvfp4 import one
from ..draw.bits import as_float, word
from ..recipes.distributions import target_of
from .domain import Chunk, Domain, in_rows
from .nvfp4 import TENSOR

DISTANCES = 10
"""Binades by which the second number of a pair lies lower: beyond nine, its bits are below half a last place."""


def _laid(blocks: np.ndarray, axis: int, filler: int = 0) -> np.ndarray:
    return in_rows(blocks, 1024, filler) if axis else np.ascontiguousarray(blocks.T)


def _inputs(blocks: np.ndarray, fmt: Format, operation: str, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    x = as_float(_laid((blocks if fmt is FP32 else blocks >> np.uint32(16)).astype(word(fmt)), params["axis"]), fmt)
    return {"x": x} if operation == "hadamard16" else {"x": x, "tensor_amax": one(TENSOR)}


def _alone(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    fmt = target_of(operation, params).input

    def make() -> Iterator[Chunk]:
        number = np.arange(1 << 16)
        blocks, held = np.zeros((1 << 16, 16), np.uint32), np.full((1 << 16, 16), -1, np.int64)
        blocks[number, number % 16] = number.astype(np.uint32) << np.uint32(16)
        held[number, number % 16] = number
        yield Chunk(_inputs(blocks, fmt, operation, params), lambda: _laid(held, params["axis"], -1))

    how = "a number in a lane that rotates, among zeros"
    return Domain("every number alone in its group", operation, profile, params, 1 << 16, how, make)


def _pairs(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    fmt = target_of(operation, params).input

    def make() -> Iterator[Chunk]:
        number = np.arange(1 << 14)
        high, low = (number >> 7).astype(np.uint32) << np.uint32(16), (number & 127).astype(np.uint32) << np.uint32(16)
        for distance in range(DISTANCES):
            blocks, held = np.zeros((1 << 14, 16), np.uint32), np.full((1 << 14, 16), -1, np.int64)
            first = (number + distance) % 16
            second = (first + 1 + number // 16 % 15) % 16
            blocks[number, first] = np.uint32(128 << 23) | high
            blocks[number, second] = np.uint32(128 - distance << 23) | low
            held[number, first] = number + (distance << 14)
            members = functools.partial(_laid, held, params["axis"], -1)
            yield Chunk(_inputs(blocks, fmt, operation, params), members)

    how = "two significands of 8 bits in lanes that move, the second 0 to 9 binades lower, among zeros"
    return Domain("every pair of significands", operation, profile, params, DISTANCES << 14, how, make)


def hadamard16(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Numbers alone; pairs in the order `exact`."""
    yield _alone(operation, profile, params)
    if params["order"] == "exact":
        yield _pairs(operation, profile, params)


hadamard_quantize_nvfp4 = hadamard16
