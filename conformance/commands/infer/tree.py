"""The tree in which a call adds runs of terms, by probes as FPRev's (arXiv:2411.00442), where no named order fits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

STEP = 32
"""Terms of the shortest run that is looked at: what one step adds has no order."""
MOST_CALLS = 96
"""Calls for a sum of runs one after another; longer runs are looked at where a call has too few rows for it."""
TINY, LARGE, MINUS = 0x01, 0x7E, 0xFE
"""E4M3 codes of 2**-9, 448 and -448."""
Probe = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A call: codes `a` [M, K] and `b` [N, K] -> the first column of the results as float64, [M]."""


@dataclass
class Node:
    """A sum: its first run of terms, to which the sums of `added` are added in turn."""

    first: int = 0
    added: list[Node] = field(default_factory=list)

    @property
    def shape(self) -> str:
        """How it is made, whatever its first run."""
        return f"({''.join(one.shape for one in self.added)})"

    def words(self, unit: int) -> str:
        """Return it in words: terms `0-127` one run after another, and sums that are alike as `3 like (128-255)`."""
        found: list[str] = []
        last = self.first
        for leaf, many in itertools.groupby(self.added, lambda one: not one.added):
            if leaf:
                runs = [one.first for one in many]
                if not found and runs == list(range(last + 1, last + 1 + len(runs))):
                    last = runs[-1]
                else:
                    found += [_terms(run, run, unit) for run in runs]
                continue
            for _, alike in itertools.groupby(many, lambda one: one.shape):
                sums = list(alike)
                found.append(f"{len(sums)} like " * (len(sums) > 1) + f"({sums[0].words(unit)})")
        return " + ".join([_terms(self.first, last, unit), *found])


def _terms(first: int, last: int, unit: int) -> str:
    return f"{first * unit}-{(last + 1) * unit - 1}"


def unit_for(m: int, k: int) -> int:
    """Return the terms of a run: the fewest, 32 times a power of two, that take no more than `MOST_CALLS` calls."""
    unit = STEP
    while k % (2 * unit) == 0 and k // unit > MOST_CALLS * m:
        unit *= 2
    return unit


def summation_tree(probe: Probe, shape: tuple[int, int, int]) -> tuple[Node, int] | None:
    """Return the tree of a call and the terms of its runs; None where what is seen is no tree of two-term sums.

    Each run has one product, 2**-18. In two runs it is 200704 and its negative instead; every other one is lost that
    is added while only one of the large ones is in the sum. So what is lost counts the runs below the node at which the
    two meet.
    """
    m, n, k = shape
    unit = unit_for(m, k)
    count = k // unit
    root = Node()
    todo = [(root, list(range(count)))]
    while todo:
        pairs = [(runs[0], other) for _, runs in todo for other in runs[1:]]
        lost = iter(_lost(probe, pairs, (m, n, k), unit))
        after = []
        for node, runs in todo:
            node.first = runs[0]
            met: dict[int, list[int]] = {}
            for run in runs[1:]:
                met.setdefault(next(lost), []).append(run)
            below = 1
            for size, some in sorted(met.items()):
                below += len(some)
                if size != below - 2:
                    return None
                node.added.append(Node(some[0]))
                if len(some) > 1:
                    after.append((node.added[-1], some))
        todo = after
    return root, unit


def _lost(probe: Probe, pairs: Sequence[tuple[int, int]], shape: tuple[int, int, int], unit: int) -> list[int]:
    """Return how many products are lost for each pair of runs that hold the large ones; a row of a call each."""
    m, n, k = shape
    found: list[int] = []
    b = np.zeros((n, k), np.uint8)
    b[:, ::unit], b[:, 1::unit] = TINY, LARGE
    for start in range(0, len(pairs), m):
        some = pairs[start : start + m]
        a = np.zeros((m, k), np.uint8)
        a[:, ::unit] = TINY
        for row, pair in enumerate(some):
            for run, code in zip(pair, (LARGE, MINUS), strict=True):
                a[row, run * unit], a[row, run * unit + 1] = 0, code
        kept = probe(a, b)[: len(some)] * 2**18
        found += [round(k // unit - 2 - one) for one in kept.tolist()]
    return found
