"""Verdicts kept in a file, so that a run that is cut off goes on where it was."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from .operators import Mutant
from .verdict import ENUMERATED, SURVIVED, Verdict
from .workshop import Workshop

KEPT = ("status", "how", "operation", "case", "vectors", "only", "built", "judged")
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


class Ledger:
    """Verdicts in a file, a line each, appended as they come.

    A verdict is known again while the mutant, all that it is built from and how it is built are the same. Questions are
    no part of that: what was killed stays killed, and a survivor is asked again. What a proof of a small function says
    holds for every subject that has the function, as long as the proof asks the same.
    """

    def __init__(self, path: Path, asked: Callable[[Mutant, str], str] = lambda mutant, text: "") -> None:
        """Read a file of verdicts, if it exists. asked: (mutant, text of its file) -> digest of what a proof asks."""
        self.path, self._asked = path, asked
        lines = path.read_text().splitlines() if path.exists() else []
        self._rows = {row["key"]: row for row in map(_row, lines) if row}

    def known(self, workshop: Workshop, mutant: Mutant) -> Verdict | None:
        """Return the verdict on a mutant if it was judged before."""
        row = self._rows.get(_key(workshop, mutant))
        if row is None or row["status"] == SURVIVED:
            return None
        stale = row["status"] == ENUMERATED and row.get("proof") != self._proof_key(workshop, mutant)
        return None if stale else _verdict(mutant, row)

    def proof(self, workshop: Workshop, mutant: Mutant) -> Verdict | None:
        """Return the proof that a mutant's function is the same, if there is one for today's text of it."""
        row = self._rows.get(self._proof_key(workshop, mutant))
        return None if row is None else _verdict(mutant, row)

    def write(self, workshop: Workshop, verdict: Verdict) -> None:
        """Append a verdict, and a proof under a key of its own too."""
        rows = [{"key": _key(workshop, verdict.mutant), **verdict.to_json()}]
        if verdict.status == ENUMERATED:
            proof = self._proof_key(workshop, verdict.mutant)
            rows = [{**rows[0], "proof": proof}, {**rows[0], "key": proof}]
        with self.path.open("a") as stream:
            stream.write("".join(json.dumps(row) + "\n" for row in rows))

    def _proof_key(self, workshop: Workshop, mutant: Mutant) -> str:
        texts = workshop.texts
        asked = self._asked(mutant, texts[mutant.file])
        return _hashed(asked, digest_of(texts, included(texts, [mutant.file])), mutant)


def included(texts: Mapping[str, str], files: Iterable[str]) -> tuple[str, ...]:
    """Return the names of some sources and of all that they include, sorted."""
    found: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file in texts and file not in found:
            found.add(file)
            waiting += _INCLUDE.findall(texts[file])
    return tuple(sorted(found))


def digest_of(texts: Mapping[str, str], files: Iterable[str], *more: str) -> str:
    """Return a SHA-256 of some of the texts, under their names, and of more words."""
    parts = [*(f"{file}\0{texts[file]}" for file in files), *more]
    return hashlib.sha256("\0\0".join(parts).encode()).hexdigest()


def _row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:  # the line at which the run was cut off
        return {}
    return row if isinstance(row, dict) else {}


def _verdict(mutant: Mutant, row: Mapping[str, Any]) -> Verdict:
    lists: dict[str, Any] = {name: tuple(row[name]) for name in ("guesses", "changed")}
    values: dict[str, Any] = {name: row[name] for name in KEPT}
    return Verdict(mutant, **values, **lists)


def _key(workshop: Workshop, mutant: Mutant) -> str:
    return _hashed(workshop.name, workshop.digest(mutant.file), mutant)


def _hashed(what: str, digest: str, mutant: Mutant) -> str:
    text = f"{what}\0{digest}\0{mutant.file}\0{mutant.start}\0{mutant.end}\0{mutant.new}"
    return hashlib.sha256(text.encode()).hexdigest()
