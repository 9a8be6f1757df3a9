"""Rows of each expert and row maps from levels: where the longest expert lies, who is empty, how tokens are taken."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .covering import Level

OTHERS_FEW, OTHERS_MANY = (1, 33, 2, 130, 5, 64, 3), (1, 2, 1, 3)
"""Rows of the experts behind the longest: of up to 33 experts, and of more."""


def filled(experts: int, empty: str) -> list[int]:
    """Return the experts that have rows."""
    middle = experts // 2
    gone: dict[str, set[int]] = {
        "none": set(),
        "first": {0},
        "last": {experts - 1},
        "middle": {middle},
        "two in a row": {middle, middle + 1},
        "three first": {0, 1, 2},
        "33 in a row": set(range(1, 34)),
        "every other": set(range(0, experts, 2)),
        "all but one": set(range(experts)) - {middle},
        "130 first": set(range(130)),
        "130 last": set(range(experts - 130, experts)),
        "all": set(range(experts)),
    }
    return [expert for expert in range(experts) if expert not in gone[empty]]


def splits(row: Mapping[str, Level], even: bool) -> list[int] | None:
    """Return the rows of each expert, or None where the levels exclude each other.

    even: every count is made even, since two rows share a byte.
    """
    experts, length, before = int(row["experts"]), int(row["rows of an expert"]), int(row["rows before it"])
    empty = str(row["empty experts"])
    needed = {"33 in a row": 35, "130 first": 131, "130 last": 131, "two in a row": 3, "three first": 4}
    if experts < needed.get(empty, 1):
        return None
    full = filled(experts, empty)
    if len(full) < 1 + (before > 0):
        return [0] * experts if empty == "all" or not full else None
    counts = [0] * experts
    others = OTHERS_FEW if experts <= 33 else OTHERS_MANY
    for place, expert in enumerate(full):
        counts[expert] = others[place % len(others)]
    if before:
        counts[full[0]] = before
    counts[full[1 if before else 0]] = length
    return [count + count % 2 for count in counts] if even else counts


def row_map(taken: str, tokens: int, count: int) -> np.ndarray:
    """Return the tokens of `count` routed rows, i32."""
    number = np.arange(count, dtype=np.int64)
    scattered = (number * 7919 + 13) % tokens
    found = {
        "in order": number % tokens,
        "scattered": scattered,
        "backwards": (tokens - 1 - number) % tokens,
        "last alone": np.full(count, tokens - 1),
        "first alone": np.zeros(count),
        "eight each": number // 8 % tokens,
        "33 of one": np.where(number < 33, tokens // 2, scattered),
        "few of many": number * 7919 % max(1, tokens // 7),
    }[taken]
    return found.astype(np.int32)
