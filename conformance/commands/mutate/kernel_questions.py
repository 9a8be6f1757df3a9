"""What whole kernels are asked: cases with their golden outputs, in the order in which wrong kernels show soon.

Small cases of every variant come first, then large ones, then the probes of the calling contract, which cost many calls
each. Probes are tried under one profile of each kind of rounding: others run the same code with other arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

import refnum

from ...cases.case import Case
from ...cases.corners import corner_cases
from ...cases.operation import run_golden
from ...cases.recipes import sampled_cases
from ...vectors.frozen import frozen_cases
from ..check.engine import PROBES
from . import corpus

SMALL = 1 << 14
"""Elements of cases that are asked before all others."""

Key = tuple[str, str, dict[str, Any]]
"""A variant: operation, profile, parameters."""


@dataclass(frozen=True)
class VariantQuestion:
    """One case with its golden outputs. variant: its number in the operation. probed: whether it is not the plain call
    that is judged, but the calling contract."""

    variant: int
    key: Key
    case: Case
    golden: Mapping[str, np.ndarray]
    place: str
    probed: bool = False

    @property
    def label(self) -> str:
        """What it is, in a line."""
        return f"{self.place}{', probed' * self.probed}: {self.case.label or self.case}"

    @property
    def turn(self) -> tuple[int, int, str]:
        """When it is asked: the order of what this returns."""
        size = self.case.elements
        return 2 if self.probed else int(size > SMALL), size, self.place


_made: dict[tuple[str, tuple[str, ...], int], tuple[VariantQuestion, ...]] = {}


def make(operations: Iterable[str], profiles: tuple[str, ...], largest: int, pool: Executor) -> None:
    """Make the questions on operations, each variant in a process of its own; `questions` has them from then on."""
    tasks = {
        operation: [pool.submit(_of_variant, *numbered, largest) for numbered in _numbered(operation, profiles)]
        for operation in operations
        if (operation, profiles, largest) not in _made
    }
    for operation, parts in tasks.items():
        _made[operation, profiles, largest] = _in_order(part.result() for part in parts)


def questions(operation: str, profiles: tuple[str, ...], largest: int) -> tuple[VariantQuestion, ...]:
    """Return what is asked of an operation under profiles, cases of up to so many elements."""
    key = operation, profiles, largest
    if key not in _made:
        _made[key] = _in_order(_of_variant(*numbered, largest) for numbered in _numbered(operation, profiles))
    return _made[key]


def _numbered(operation: str, profiles: tuple[str, ...]) -> list[tuple[int, Key, bool]]:
    """Return (number, variant, whether it is probed) of an operation."""
    seen: set[str] = set()
    found = []
    for number, key in enumerate(corpus.variants(operation, profiles)):
        code = f"{refnum.get_profile(key[1]).rounding} {key[2]}"
        found.append((number, key, code not in seen))
        seen.add(code)
    return found


def _in_order(parts: Iterable[list[VariantQuestion]]) -> tuple[VariantQuestion, ...]:
    return tuple(sorted((one for part in parts for one in part), key=lambda one: one.turn))


def _of_variant(number: int, key: Key, probing: bool, largest: int) -> list[VariantQuestion]:
    """Return what is asked of one variant: corners, the first of them with probes too, frozen vectors, samples."""
    corners = [case for case in corner_cases(*key) if case.elements <= largest]
    sampled = [case for case in sampled_cases(*key, corpus.SEED, corpus.SAMPLED) if case.elements <= largest]
    places = {"corner": corners, "vector": [case for case, _ in frozen_cases(*key)], "sampled": sampled}
    found = [
        VariantQuestion(number, key, case, run_golden(case), place) for place, cases in places.items() for case in cases
    ]
    filled = [one for one in found[: len(corners)] if one.case.elements] if probing else []
    return [*found, *(VariantQuestion(number, key, one.case, one.golden, one.place, True) for one in filled[:PROBES])]
