"""How far an unfinished proof has come: one small file, replaced whole, keyed by everything the result depends on."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...reports.files import write_json

SCHEMA = "refnum.proof-state/1"
EVERY = 5.0
"""Seconds between two writes."""


def state_key(*facts: Any) -> str:
    """SHA-256 over JSON values: of the proof, its domain, the model, the subject and the rules of digest and layout."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass
class State:
    """Digests of the chunks done, always a prefix of all, and the sums over them.

    resumed: how often a later process went on. seconds: time at work, pauses left out.
    """

    path: Path | None
    key: str
    chunks: list[str] = field(default_factory=list)
    members: int = 0
    elements: int = 0
    compared: int = 0
    seconds: float = 0.0
    resumed: int = 0

    def __post_init__(self) -> None:
        self._since = self._written = time.monotonic()

    @classmethod
    def load(cls, path: Path | None, key: str) -> State:
        """Return the state of a file made under the same key, else an empty one; a damaged file counts as none."""
        fresh = cls(path, key)
        if path is None:
            return fresh
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["schema"] != SCHEMA or kept["key"] != key:
                return fresh
            numbers = {name: int(kept[name]) for name in ("members", "elements", "compared", "resumed")}
            numbers["resumed"] += 1
            return cls(path, key, [str(text) for text in kept["chunks"]], seconds=float(kept["seconds"]), **numbers)
        except (OSError, ValueError, KeyError, TypeError):
            return fresh

    def note(self, digest: str, members: int, elements: int, compared: int) -> None:
        """Count one more chunk; written down at most every EVERY seconds."""
        self.chunks.append(digest)
        self.members += members
        self.elements += elements
        self.compared += compared
        now = time.monotonic()
        self.seconds += now - self._since
        self._since = now
        if now - self._written >= EVERY:
            self.write()

    def write(self) -> None:
        """Write the file whole or not at all."""
        self._written = time.monotonic()
        if self.path is not None:
            names = ("key", "members", "elements", "compared", "seconds", "resumed", "chunks")
            write_json(self.path, {"schema": SCHEMA, **{name: getattr(self, name) for name in names}})

    def forget(self) -> None:
        """Take the file away: the proof is finished."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
