"""Covering arrays: every level once, and every pair of levels of two factors in some row.

The pairs come from the `covertable` library, in an order that depends on the levels alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

Level = str | int
Row = dict[str, Level]
Table = Mapping[str, tuple[Level, ...]]
"""Factor -> its levels."""
Fits = Callable[[Row], bool]
"""Whether a row can be asked: levels that exclude each other, or a case that would be too large, do not fit."""


def shape_of(row: Mapping[str, Level]) -> tuple[int, int]:
    """Return rows and columns of a row's matrix."""
    if "form shape" in row:
        rows, columns = str(row["form shape"]).split("x")
        return int(rows), int(columns)
    return int(row["rows"]), int(row["columns"])


def singles(table: Table, fits: Fits, base: Row) -> list[Row]:
    """Return rows in which every level of every factor stands at least once, each beside changing others.

    A level that does not fit with its turn is asked in `base`, a row of ordinary levels.
    """
    longest = max((len(levels) for levels in table.values()), default=0)
    rows = [
        {name: levels[turn] if turn < len(levels) else levels[turn * _stride(len(levels)) % len(levels)]
         for name, levels in table.items()}
        for turn in range(longest)
    ]  # fmt: skip
    return completed([row for row in rows if fits(row)], table, fits, base)


def completed(rows: list[Row], table: Table, fits: Fits, base: Row) -> list[Row]:
    """Return rows with more of them, so that every level stands in one: in `base`, or beside the least levels."""
    kept = list(rows)
    least = {name: min(levels) if isinstance(levels[0], int) else base[name] for name, levels in table.items()}
    tight = [base, {**base, **{name: least[name] for name in table if name in ("columns", "rows")}}, {**base, **least}]
    tight += [{**tight[1], "rows of an expert": 1, "experts": 300}] if "experts" in table else []
    for name, levels in table.items():
        seen = {row[name] for row in kept}
        for level in (level for level in levels if level not in seen):
            kept += [row for row in ({**one, name: level} for one in tight) if fits(row)][:1]
    return kept


def _stride(count: int) -> int:
    """Return a step that meets every one of `count` levels."""
    return next((step for step in (7, 5, 3, 2) if count % step), 1)


def pairs(table: Table, fits: Fits, base: Row) -> list[Row]:
    """Return rows in which every pair of levels of two factors stands that fits, with others or in `base`."""
    if len(table) < 2:
        return singles(table, fits, base)
    kept = [row for row in _array(tuple((name, tuple(levels)) for name, levels in table.items())) if fits(row)]
    seen = {pair for row in kept for pair in _pairs_of(row)}
    for one, other in itertools.combinations(table, 2):
        for a, b in itertools.product(table[one], table[other]):
            row: Row = {**base, one: a, other: b}
            if ((one, a), (other, b)) not in seen and fits(row):
                kept.append(row)
                seen.update(_pairs_of(row))
    return completed(kept, table, fits, base)


@functools.lru_cache(maxsize=64)
def _array(table: tuple[tuple[str, tuple[Level, ...]], ...]) -> tuple[Row, ...]:
    """Return the library's array of strength 2, factors in the order of the table."""
    from covertable import make

    rows = make({name: list(levels) for name, levels in table}, strength=2)
    return tuple({name: row[name] for name, _ in table} for row in rows)


def _pairs_of(row: Row) -> list[tuple[tuple[str, Level], tuple[str, Level]]]:
    return list(itertools.combinations(row.items(), 2))
