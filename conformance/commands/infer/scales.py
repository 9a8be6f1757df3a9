"""Scales that a profile does not give, as a table: by how many powers of two they are off, and where."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from refnum.formats import E8M0

NAN = int(E8M0.nan_code or 0)


@dataclass(frozen=True)
class WrongScales:
    """Scales that are off in the same way.

    off: the kernel's byte less the right one, or in words where one of them is NaN. blocks: how many. least, most: the
    least and the greatest byte that is right there. example: a right byte and the kernel's.
    """

    off: str
    blocks: int
    least: int
    most: int
    example: tuple[int, int]


def wrong_scales(pairs: Counter[int]) -> list[WrongScales]:
    """Return what is wrong with scales, the most frequent first; pairs: right * 256 + the kernel's -> how often."""
    groups: dict[str, list[tuple[int, int, int]]] = {}
    for pair, blocks in pairs.most_common():
        right, given = divmod(pair, 256)
        if right != given:
            groups.setdefault(_off(right, given), []).append((right, given, blocks))
    found = [
        WrongScales(off, sum(row[2] for row in rows), min(rows)[0], max(rows)[0], rows[0][:2])
        for off, rows in groups.items()
    ]
    return sorted(found, key=lambda one: -one.blocks)


def _off(right: int, given: int) -> str:
    if NAN in (right, given):
        return "NaN, not a number" if given == NAN else "a number, not NaN"
    return f"{given - right:+d}"
