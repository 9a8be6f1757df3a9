"""Domains of optimiser steps (N27): every 16-bit number as each of the four arrays, beside ordinary ones.

A result is a function of one gradient, weight and pair of moments, and of the scalars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..corners.updates import NAMES, step
from ..draw.factors import factors
from .domain import Chunk, Domain, sequence

SHAPE = (64, 1024)


def _every(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    numbers = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).reshape(SHAPE).view(np.float32)
    for place, name in enumerate(NAMES):

        def make(place: int = place, name: str = name) -> Iterator[Chunk]:
            inputs = {**step(SHAPE, place), name: numbers, "factors": factors(operation, place)}
            yield Chunk(inputs, sequence(0, SHAPE))

        how = "patterns in order, beside numbers of 17 binades"
        yield Domain(f"every 16-bit number as {name}", operation, profile, params, numbers.size, how, make)


adam_apply = spam_apply = stable_spam_apply = _every
