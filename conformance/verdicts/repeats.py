"""Repeated calls on the same inputs: whether a subject is deterministic, and what rate of flips its calls exclude."""

from __future__ import annotations

from collections.abc import Iterable

from ..cases.same_bytes import same
from ..subjects.calls.call import Called, raw

REPEATS = 10
"""Calls by which a plain call is repeated before anything else is blamed for wrong bytes."""


def same_results(one: Called, other: Called) -> bool:
    """Whether two calls gave the same bytes, right or wrong."""
    pairs = zip(one.results, other.results, strict=False)
    return len(one.results) == len(other.results) and all(same(raw(a), raw(b)) for a, b in pairs)


def odd_ones(calls: Iterable[Called]) -> int:
    """Return how many of some calls on the same inputs gave other bytes than most of them."""
    groups: list[list[Called]] = []
    for called in calls:
        alike = next((group for group in groups if same_results(group[0], called)), None)
        if alike is None:
            groups.append([called])
        else:
            alike.append(called)
    return sum(map(len, groups)) - max(map(len, groups), default=0)


def excluded(calls: int) -> int:
    """Return n where so many calls without a flip exclude at 95 % that more than one call in n flips; 0 for none.

    A rate r goes unseen in n calls with probability (1 - r)^n <= e^(-r n), which is below 5 % from r = 3/n on; and
    1 / (n // 3) is at least 3/n.
    """
    return calls // 3
