"""What every element format has, as exact magnitudes: its values, its midpoints, and the notes that they hunt."""

from __future__ import annotations

import itertools
from fractions import Fraction

from refnum.formats import Format, magnitude_value

from ..draft import BLOCK, both_signs, power, rows_of


def values(fmt: Format) -> list[Fraction]:
    """Return every positive finite magnitude in ascending order."""
    return [magnitude_value(fmt, code) for code in range(1, fmt.max_code + 1)]


def midpoints(fmt: Format) -> list[Fraction]:
    """Return the midpoint of every two neighbours, zero included."""
    ladder = [Fraction(0), *values(fmt)]
    return [(a + b) / 2 for a, b in itertools.pairwise(ladder)]


def by_element(fmt: Format, e2m1: str, e4m3: str, other: str) -> str:
    """Return the note of that name for the element format."""
    return {"E2M1": e2m1, "E4M3": e4m3}.get(fmt.name, other)


def ties_up(fmt: Format) -> str:
    """Return the note for ties that go up."""
    return by_element(fmt, "E2M1_TIES_UP", "E4M3_TIES_UP", "ELEMENT_TIES_UP")


def pinned(
    fmt: Format, exponent: int, magnitudes: list[Fraction], nudge: int = 0, width: int = BLOCK
) -> list[list[int]]:
    """Return rows of float32 bits: lane 0 the largest value, then magnitude * 2**exponent in both signs.

    nudge: float32 steps added to every pattern but lane 0 (to stand just beside a midpoint).
    """
    lead = power(exponent, fmt.max_value)
    patterns = [power(exponent, m) + nudge for m in magnitudes]
    return rows_of(both_signs(patterns), lead, width)
