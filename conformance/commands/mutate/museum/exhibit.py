"""One real bug, made again in our kernels as an exact edit."""

from __future__ import annotations

from dataclasses import dataclass

from refnum.errors import RefnumError

from ..operators import Mutant
from ..source import Lines


class ExhibitError(RefnumError):
    """An exhibit no longer fits the sources: its old text is not there exactly once."""


@dataclass(frozen=True)
class Exhibit:
    """A bug that was released or merged somewhere, as old text -> new text in one of our sources.

    classes: ids of vectors/notes.json, any of which is a right guess; none where the emulated machine itself says what
    is wrong (a race, an address). seen: where it happened, `owner/repo#n`.
    rows: rows of the catalogue in `rows.py`. operation: the one on which it is looked for first.
    build: `host`, or `emulated` for what only whole kernels have.
    """

    name: str
    file: str
    old: str
    new: str
    classes: tuple[str, ...]
    seen: tuple[str, ...]
    rows: tuple[str, ...]
    operation: str
    build: str = "host"

    def mutant(self, text: str) -> Mutant:
        """Return it as a change of its file's text. Raises ExhibitError unless the old text is there exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ExhibitError(f"{self.name}: its old text is {count} times in {self.file}; it must be there once")
        start = text.index(self.old)
        end, line = start + len(self.old), Lines(text).number(start)
        return Mutant(self.file, line, "museum", 1, start, end, self.old, self.new, exhibit=self.name)


def exhibit(
    name: str, file: str, old: str, new: str, classes: str, seen: str, rows: str, operation: str, build: str = "host"
) -> Exhibit:
    """Return an Exhibit from words separated by blanks."""
    return Exhibit(
        name, file, old, new, tuple(classes.split()), tuple(seen.split()), tuple(rows.split()), operation, build
    )
