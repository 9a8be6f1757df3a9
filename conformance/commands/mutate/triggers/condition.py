"""A condition over a call, and the dice that draw one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from .call import Call

Wants = Callable[[Random], Mapping[str, Any]]
Places = Callable[[Call], "np.ndarray | None"]


@dataclass(frozen=True)
class Condition:
    """A condition over the facts of a call.

    kind: its class in the score. words: the condition, for a reader. holds: whether a call meets it. wants: draws what
    a call that meets it has, by the fields of `witness.Wanted`. places: for a relation of values the (row, column) of
    the elements of the first input that meet it, i64 [n, 2]. alone: it is drawn with no other one: few calls meet it.
    """

    kind: str
    words: str
    holds: Callable[[Call], bool]
    wants: Wants
    places: Places | None = None
    alone: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """What of a call it is about."""
        return frozenset(self.wants(Random(0)))


@dataclass(frozen=True)
class Facts:
    """What an operation takes, found by calling its golden function: the smallest steps of columns and of rows.

    rows, columns: multiples of which they must be. parameters: its keywords with their choices, profiles and layouts.
    """

    rows: int
    columns: int
    parameters: Mapping[str, tuple[Any, ...]]


STEPS = (32, 48, 96, 100, 192, 384, 1000, 1536)
"""Sizes that constants of kernels are made of, beside powers of two: warps, tiles and grids of other shapes."""


def size(dice: Random, low: int, high: int) -> int:
    """Draw a size as kernels have them: log-uniform, most of them a power of two or a multiple of a step, +-1."""
    drawn = math.exp(dice.uniform(math.log(low), math.log(high)))
    roll = dice.random()
    if roll < 0.5:
        drawn = 2.0 ** round(math.log2(drawn)) + dice.choice((-1, 0, 0, 1))
    elif roll < 0.75:
        step = dice.choice([step for step in STEPS if step <= max(drawn, STEPS[0])])
        drawn = max(1, round(drawn / step)) * step + dice.choice((-1, 0, 0, 1))
    return max(low, min(high, round(drawn)))


def exact(dice: Random, low: int, high: int) -> int:
    """Draw one size: any below 64, or 2^k or 3 * 2^k, +-1: others a kernel has no reason to single out."""
    if dice.random() < 0.4 and low < 64:
        return dice.randint(low, min(64, high))
    drawn = (1 << dice.randint(0, high.bit_length())) * dice.choice((2, 2, 3)) // 2 + dice.choice((-1, 0, 0, 1))
    return max(low, min(high, drawn))


def residue(dice: Random, modulus: int) -> int:
    """Draw a remainder: most often one beside an end or the middle."""
    ends = (0, 1, 2, modulus // 2 - 1, modulus // 2, modulus // 2 + 1, modulus - 2, modulus - 1)
    return (dice.choice(ends) if dice.random() < 0.7 else dice.randrange(modulus)) % modulus
