"""The kernels as mutation testing sees them: sources that may be changed, questions beside those of the operations."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def rows_of(table: str, key: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a table that has a file for each family.

    Args:
        table: the folder of its files, `domains` or `no_effect`; `shared.toml` comes first.
        key: the name of its rows.

    Returns:
        (what the files say beside the rows, all rows).
    """
    folder = Path(__file__).parent / table
    paths = sorted(folder.glob("*.toml"), key=lambda path: (path.stem != "shared", path.stem))
    told: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for path in paths:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        rows += read.pop(key)
        told |= read
    return told, rows
