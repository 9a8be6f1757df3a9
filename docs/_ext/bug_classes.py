"""The bug classes of `vectors/notes.json`, as sections and as a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils import nodes
from value_tables import Table

NOTES = Path(__file__).resolve().parents[2] / "vectors" / "notes.json"


def notes() -> dict[str, dict[str, Any]]:
    """Return note id -> note, in the order of the file; empty while there is no file."""
    if not NOTES.exists():
        return {}
    loaded = json.loads(NOTES.read_text(encoding="utf-8"))
    entries = loaded.get("notes", loaded)
    if isinstance(entries, list):
        entries = {entry["id"]: entry for entry in entries}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def overview() -> Table:
    """One line a bug class."""
    return Table(["bug class"], [[f"`{name}`"] for name in notes()])


def sections(docname: str, inline: Callable[[str, str], list[nodes.Node]]) -> list[nodes.Node]:
    """Return a section a note."""
    return []
