"""Domains of what is done about oscillating weights (N24): every 16-bit number, and every small count and period.

A period, and whether a weight is set back, is a function of two numbers; a step is one of two numbers, a count and a
period, and of whether all gradients are finite; a weight near its bin's edge is one of itself, its code and its scales.
Which channels are chosen is one of all norms of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles

from ..corners.nvfp4 import narrowed
from ..corners.oscillation import counted, distances
from ..draw.bits import as_float
from ..recipes.distributions import target_of
from .domain import Chunk, Domain, sequence

SHAPE = (64, 1024)
NUMBERS = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).reshape(SHAPE)
"""Every 16-bit number as float32 patterns."""


def _distances(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every 16-bit number as either distance."""
    for place, name in enumerate(("dist_w", "dist_q")):

        def make(place: int = place, name: str = name) -> Iterator[Chunk]:
            yield Chunk({**distances(SHAPE, place), name: NUMBERS.view(np.float32)}, sequence(0, SHAPE))

        how = "patterns in order, beside positive numbers of 17 binades"
        yield Domain(f"every 16-bit number as {name}", operation, profile, params, NUMBERS.size, how, make)


def ramping_step(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every 16-bit number as the sum, every finite one as the gradient, every count below 256 beside periods to 256."""
    finite = np.where(NUMBERS & np.uint32(0x7F800000) < np.uint32(0x7F800000), NUMBERS, np.uint32(0))
    for name, numbers in (("total", NUMBERS), ("grad", finite)):

        def make(name: str = name, numbers: np.ndarray = numbers) -> Iterator[Chunk]:
            yield Chunk({**counted(SHAPE, 1), name: numbers.view(np.float32)}, sequence(0, SHAPE))

        what = "every 16-bit number" if name == "total" else "every finite 16-bit number"
        how = "patterns in order, beside numbers of 17 binades; 0 where one is not finite" if name == "grad" else (
            "patterns in order, beside numbers of 17 binades")  # fmt: skip
        yield Domain(f"{what} as {name}", operation, profile, params, NUMBERS.size, how, make)

    def counts() -> Iterator[Chunk]:
        count, period = np.meshgrid(np.arange(256, dtype=np.int32), np.arange(1, 257, dtype=np.int32), indexing="ij")
        yield Chunk({**counted(count.shape, 2), "count": count, "period": period}, sequence(0, count.shape))

    how = "counts down the rows, periods along them, beside numbers of 17 binades"
    yield Domain("every count and period of a byte", operation, profile, params, 1 << 16, how, counts)


def osci_reset(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every 16-bit number under the scale 1, with every code."""
    fmt, shape = target_of(operation, params).input, (1 << 13, 128)

    def make() -> Iterator[Chunk]:
        place = np.arange(1 << 20, dtype=np.uint32).reshape(shape)
        w = as_float(narrowed(place >> np.uint32(4) << np.uint32(16), fmt), fmt)
        packed = pack_nibbles((place & np.uint32(15)).astype(np.uint8))
        scales, outer = np.full((shape[0], 8), 0x38, np.uint8), np.ones((shape[0], 1), np.float32)
        yield Chunk({"w": w, "packed": packed, "scales": scales, "outer": outer}, sequence(0, shape))

    how = "patterns in order, the sixteen codes of each beside each other, both scales 1"
    yield Domain("every 16-bit number with every code", operation, profile, params, 1 << 20, how, make)


def out_control(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every 16-bit number among its neighbours, and among numbers of every size."""
    for name, laid in (("neighbours", NUMBERS), ("numbers of every size", NUMBERS.reshape(SHAPE[::-1]).T)):

        def make(laid: np.ndarray = laid) -> Iterator[Chunk]:
            members = (laid >> np.uint32(16)).astype(np.int64)
            yield Chunk({"norms": np.ascontiguousarray(laid).view(np.float32)}, lambda: members)

        how = f"patterns in order {'along' if laid is NUMBERS else 'down'} the rows of 1,024"
        yield Domain(f"every 16-bit number among {name}", operation, profile, params, NUMBERS.size, how, make)


q_ramping = osci_reset_by_distance = _distances
