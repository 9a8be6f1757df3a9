"""What of the space of structure one subject answered on one variant, what it refused, and what it was never asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..cases.case import Case
from ..cases.structure.covering import Level, Row

SHOWN = 12
"""Levels of a factor that a report names one by one."""


@dataclass
class Coverage:
    """Counts of one subject on the structural cases of one variant.

    factors: factor -> level -> cases answered and refused. forms: refused form of a call -> the words to it.
    seconds: of its calls; cut: in words, that they were too many and the rest was not asked.
    rows, columns: the least and the most of the first matrix of the cases answered that have elements.
    """

    factors: dict[str, dict[Level, list[int]]] = field(default_factory=dict)
    cases: int = 0
    refused: int = 0
    illegal: int = 0
    forms: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    cut: str = ""
    rows: tuple[int, int] | None = None
    columns: tuple[int, int] | None = None

    def expect(self, rows: Iterable[Row]) -> None:
        """Note the levels that are to be asked."""
        for row in rows:
            for name, level in row.items():
                self.factors.setdefault(name, {}).setdefault(level, [0, 0])

    def add(self, row: Row, case: Case, answered: bool) -> None:
        """Count one case that was answered, right or wrong, or refused."""
        self.add_row(row, answered)
        matrix = next((array for array in case.inputs.values() if array.ndim == 2), None)
        if answered and matrix is not None and matrix.size:
            self.rows = _spanned(self.rows, matrix.shape[0])
            self.columns = _spanned(self.columns, matrix.shape[1] * (2 if "packed" in case.inputs else 1))

    def add_row(self, row: Row, answered: bool) -> None:
        """Count a row that was answered or refused, by its levels alone."""
        self.cases += answered
        self.refused += not answered
        factors, refused = self.factors, not answered
        for name, level in row.items():
            try:
                factors[name][level][refused] += 1
            except KeyError:  # an unexpected level: rare, and a row has some fifteen
                factors.setdefault(name, {}).setdefault(level, [0, 0])[refused] += 1

    def never(self) -> list[str]:
        """Return the levels, in words, that were neither answered nor refused."""
        return [f"{name} {level}" for name, levels in self.factors.items() for level, n in levels.items() if not any(n)]

    def serializable(self) -> dict[str, Any]:
        """Return the record of a report: counts, and a line a factor."""
        return {
            "cases": self.cases,
            "refused": self.refused,
            "illegal": self.illegal,
            "rows": list(self.rows or ()),
            "columns": list(self.columns or ()),
            "forms": dict(self.forms),
            "factors": [_line(name, levels) for name, levels in self.factors.items()],
        }


def _spanned(span: tuple[int, int] | None, value: int) -> tuple[int, int]:
    return (value, value) if span is None else (min(span[0], value), max(span[1], value))


def _line(name: str, levels: Mapping[Level, list[int]]) -> dict[str, Any]:
    """Return a line of the table of factors: how many levels there are, were answered, only refused, never asked."""
    refused = [str(level) for level, (answered, no) in levels.items() if no and not answered]
    never = [str(level) for level, counts in levels.items() if not any(counts)]
    return {
        "factor": name,
        "levels": len(levels),
        "answered": sum(answered > 0 for answered, _ in levels.values()),
        "refused": refused[:SHOWN],
        "never": never[:SHOWN],
    }
