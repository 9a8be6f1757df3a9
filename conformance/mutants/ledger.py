"""Verdicts kept in a file, so that a run that is cut off goes on where it was."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .operators import Mutant
from .verdict import SURVIVED, Verdict

if TYPE_CHECKING:
    from typing import Protocol

    class Shop(Protocol):
        """What a ledger asks of a shop: whose sources, and their texts."""

        workshop: Any

        def text(self, file: str) -> str:
            """Return a source as it was when the shop was opened."""


KEPT = ("status", "how", "operation", "case", "vectors", "only", "built", "judged")


class Ledger:
    """Verdicts in a file, a line each, appended as they come.

    A verdict is known again while its file's text and the mutant are the same. A survivor is judged again: there may be
    new questions.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._rows = {row["key"]: row for row in map(_row, lines) if row}

    def known(self, shop: Shop, mutant: Mutant) -> Verdict | None:
        """Return the verdict on a mutant if it was judged before."""
        row = self._rows.get(_key(shop, mutant))
        if row is None or row["status"] == SURVIVED:
            return None
        lists: dict[str, Any] = {name: tuple(row[name]) for name in ("guesses", "changed")}
        values: dict[str, Any] = {name: row[name] for name in KEPT}
        return Verdict(mutant, **values, **lists)

    def write(self, shop: Shop, verdict: Verdict) -> None:
        """Append a verdict."""
        row = {"key": _key(shop, verdict.mutant), **verdict.to_json()}
        with self.path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")


def _row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:  # the line at which the run was cut off
        return {}
    return row if isinstance(row, dict) else {}


def _key(shop: Shop, mutant: Mutant) -> str:
    text = f"{shop.workshop.name}\0{shop.text(mutant.file)}\0{mutant.start}\0{mutant.end}\0{mutant.new}"
    return hashlib.sha256(text.encode()).hexdigest()
