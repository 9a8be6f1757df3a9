"""Every mutant of a source text: the operators of the table at every place that they match."""

from __future__ import annotations

from dataclasses import dataclass

from .operator_kinds import Operator
from .operator_table import OPERATORS
from .source import Lines, masked, regions

__all__ = ["OPERATORS", "Mutant", "Operator", "mutants_of"]


@dataclass(frozen=True)
class Mutant:
    """One change of one file. n: its number among those of its operator on its line. side: `device` or `host` where
    the text is compiled for one alone. exhibit: the name in the museum, or empty."""

    file: str
    line: int
    operator: str
    n: int
    start: int
    end: int
    old: str
    new: str
    side: str = ""
    exhibit: str = ""

    @property
    def id(self) -> str:
        """Its name: the museum's, or file, line, operator and number."""
        return self.exhibit or f"{self.file}:{self.line} {self.operator} {self.n}"

    def applied(self, text: str) -> str:
        """Return the file's text with the change made."""
        return text[: self.start] + self.new + text[self.end :]


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Return every mutant of a source file, in the order of its text."""
    seen, lines, sides = (
        {"all": text, "loops": masked(text, loops=True), "code": masked(text)},
        Lines(text),
        regions(text),
    )
    found: dict[tuple[int, int, str], tuple[str, str]] = {}
    for operator in OPERATORS:
        for match in operator.pattern.finditer(seen[operator.where]):
            for new in operator.of(match):
                found.setdefault((match.start(), match.end(), new), (operator.name, match.group(0)))
    numbers: dict[tuple[int, str], int] = {}
    made = []
    for (start, end, new), (name, old) in sorted(found.items()):
        line = lines.number(start)
        numbers[line, name] = n = numbers.get((line, name), 0) + 1
        side = next((side for first, last, side in sides if first <= start < last), "")
        made.append(Mutant(file, line, name, n, start, end, old, new, side))
    return made
