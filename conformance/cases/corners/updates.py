"""Corners of optimiser steps (N27): numbers of every kind beside each other under scalars of every kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..draw.factors import TABLES, factors, positive

Corner = tuple[str, dict[str, np.ndarray]]
NAMES = ("gradient", "weight", "m", "v")
SHAPES = ((0, 5), (5, 0), (1, 1), (3, 7), (1, 4099), (33, 64))
KINDS = np.array([0, 1, 0x007FFFFF, 0x00800000, 0x1F800001, 0x3A83126F, 0x3F7FFFFF, 0x3F800000, 0x40490FDB, 0x5F7FFFFF,
                  0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001], np.uint32)  # fmt: skip
"""float32 magnitudes of every kind."""

ZEROS = {
    "adam_apply": (0.75, 0, 1, 1, -0.0, 1, 1, 1),
    "spam_apply": (-0.0, 0, 1, 1, -0.0, 1, 1, 1),
    "stable_spam_apply": (0.75, -0.0, 3, np.nan, 5, 0, 1, 1, -0.0, 1, 1, 1),
}
"""Scalars, in the order of `draw.factors`, of which a threshold and a weight of squares are -0 and a norm is NaN."""

DECAY = {"adam_apply": 0, "spam_apply": 7, "stable_spam_apply": 0}
"""Place of the decay among the scalars."""
EPS = {"adam_apply": 6, "spam_apply": 5, "stable_spam_apply": 10}
"""Place of eps among the scalars."""


def content(shape: tuple[int, int], seed: int) -> np.ndarray:
    """float32 of a shape, neighbours of which differ in every part."""
    place = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape) + np.uint32(977 * seed)
    mixed = place * np.uint32(2654435761) ^ (place >> np.uint32(5)) * np.uint32(40503)
    return (mixed & np.uint32(0x807FFFFF) | (np.uint32(118) + mixed % np.uint32(17)) << np.uint32(23)).view(np.float32)


def step(shape: tuple[int, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays of a step of a shape; averages of squares are no negative numbers."""
    found = {name: content(shape, seed + place) for place, name in enumerate(NAMES)}
    return {**found, "v": positive(found["v"])}


def still(operation: str) -> dict[str, np.ndarray]:
    """A step whose results are its inputs bit for bit, which a kernel must not hand back: no gradient, no decay."""
    zeros = np.zeros((3, 9), np.float32)
    scalars = factors(operation, 0).copy()
    scalars[DECAY[operation]] = 0 if operation == "spam_apply" else 1
    return {"gradient": zeros, "weight": content((3, 9), 11), "m": zeros.copy(), "v": zeros.copy(), "factors": scalars}


def kinds() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Each two of the four arrays hold all pairs of numbers; the other two hold ordinary ones."""
    signed = np.concatenate([KINDS, KINDS | np.uint32(1 << 31)])
    grid = np.meshgrid(signed, signed, indexing="ij")
    for number, pair in enumerate(itertools.combinations(NAMES, 2)):
        ordinary = step(grid[0].shape, number)
        yield (
            " and ".join(pair),
            {**ordinary, **{n: np.ascontiguousarray(g).view(np.float32) for n, g in zip(pair, grid, strict=True)}},
        )


def _corners(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    rows = range(len(TABLES[operation]))
    zeros = np.array(ZEROS[operation], np.float32)
    zeros[np.isnan(zeros)] = KINDS[-1:].view(np.float32)
    for label, arrays in kinds():
        for row in rows:
            yield f"{label} of every kind, scalars {row}", {**arrays, "factors": factors(operation, row)}
        yield f"{label} of every kind, some scalars -0", {**arrays, "factors": zeros.copy()}
        bare = zeros.copy()
        bare[EPS[operation]] = -0.0
        yield f"{label} of every kind, some scalars and eps -0", {**arrays, "factors": bare}
    yield "a step that changes nothing", still(operation)
    for number, shape in enumerate(SHAPES):
        yield f"shape {shape[0]}x{shape[1]}", {**step(shape, 5), "factors": factors(operation, number)}
    if operation == "stable_spam_apply":
        for label, norm in (("the least norm", 2.0**-149), ("a norm below zero", -3.0), ("a norm that is NaN", np.nan)):
            scalars = factors(operation, 0)
            scalars[3] = norm
            yield label, {**step((3, 9), 7), "factors": scalars}
    for scalar in KINDS:
        for sign in (0, 1 << 31):
            alike = np.full(len(factors(operation, 0)), scalar | np.uint32(sign), np.uint32).view(np.float32)
            yield f"scalars 0x{int(scalar) | sign:08X}", {**step((3, 9), 7), "factors": alike}


adam_apply = spam_apply = stable_spam_apply = _corners
