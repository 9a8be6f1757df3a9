"""Steps of optimisers by the oracle, one number at a time (N27)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refnum.oracle import updates as oracle

from ..load import Vector


def _each(vector: Vector, one: Callable[..., tuple[int, int, int]], *more: Any) -> Any:
    """Weights and moments of a step that is a function of four numbers and the scalars, all as float32 bits."""
    bits = {name: array.view(np.uint32).tolist() for name, array in vector.inputs.items()}
    lines = zip(*(bits[name] for name in ("gradient", "weight", "m", "v")), strict=True)
    found = [[one(*four, bits["factors"], *more) for four in zip(*line, strict=True)] for line in lines]
    return tuple([[element[part] for element in line] for line in found] for part in range(3))


def adam_apply(vector: Vector) -> Any:
    """N27.2 by exact rationals."""
    return _each(vector, oracle.adam)


def spam_apply(vector: Vector) -> Any:
    """N27.3 by exact rationals."""
    return _each(vector, oracle.spam, *(vector.params[name] for name in ("clip", "reset", "decay")))


def stable_spam_apply(vector: Vector) -> Any:
    """N27.4 by exact rationals."""
    return _each(vector, oracle.stable_spam, vector.params["forget"])
