"""Changes that no question can show, each with its reason: a literal table that a workshop brings.

Some changes only choose the slower of two ways to the same bits, or read and write what nothing depends on. Where no
enumeration can say so, a row does, in words. It speaks of survivors alone, so a change that some question sees stays
killed; and of exact text, so it falls silent when the line becomes another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from .operators import Mutant
from .verdict import REASONED, SURVIVED, Verdict


@dataclass(frozen=True)
class Reason:
    """Why changes of a text are without effect.

    file: a name or pattern. text: a part of a line, as it is. becomes: what changes make of that part.
    """

    file: str
    text: str
    becomes: tuple[str, ...]
    because: str

    def covers(self, mutant: Mutant, source: str) -> bool:
        """Whether a mutant of a source makes of such a text, in its line, one of what it may become."""
        if not mutant.line or not fnmatchcase(mutant.file, self.file):
            return False
        start, end = source.rfind("\n", 0, mutant.start) + 1, source.find("\n", mutant.end)
        line, changed = source[start:end], source[start : mutant.start] + mutant.new + source[mutant.end : end]
        return any(
            line[:place] + other + line[place + len(self.text) :] == changed
            for place in _places(line, self.text)
            for other in self.becomes
        )


def _places(line: str, text: str) -> Iterator[int]:
    place = line.find(text)
    while place >= 0:
        yield place
        place = line.find(text, place + 1)


def reasons_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Reason, ...]:
    """Return the reasons of a workshop's table: rows of `file`, `text`, `becomes` (a list) and `because`."""
    return tuple(Reason(row["file"], row["text"], tuple(row["becomes"]), row["because"]) for row in rows)


def accepted(verdicts: Sequence[Verdict], reasons: Sequence[Reason], texts: Mapping[str, str]) -> list[Verdict]:
    """Return the verdicts, survivors that a reason covers with that reason."""

    def one(verdict: Verdict) -> Verdict:
        if verdict.status != SURVIVED:
            return verdict
        mutant = verdict.mutant
        found = next((reason for reason in reasons if reason.covers(mutant, texts[mutant.file])), None)
        return replace(verdict, status=REASONED, how=found.because) if found else verdict

    return [one(verdict) for verdict in verdicts]
