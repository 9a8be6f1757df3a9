"""The matrix as a document: JSON with a schema, and Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ...reports.environment import environment
from ...subjects.peers import all_differences
from ...subjects.peers.torch_peer import base_name
from . import cells
from .run import Matrix

SCHEMA = "refnum.matrix/1"
EXIT_AGREED, EXIT_LOUD, EXIT_NOTHING = 0, 1, 3


def document(matrix: Matrix, seconds: float) -> dict[str, Any]:
    """Return the JSON document. `exit` is 1 for a cell that is new or vanished, 3 when nothing ran."""
    states = Counter(cell["state"] for cell in matrix.cells)
    loud = sum(states[state] for state in cells.LOUD)
    status = EXIT_NOTHING if not matrix.cells else EXIT_LOUD if loud else EXIT_AGREED
    return {"schema": SCHEMA, "environment": environment(), "subjects": matrix.subjects, "skipped": matrix.skipped,
            "cells": matrix.cells,
            "footer": {"seconds": round(seconds, 1), "states": dict(states), "exit": status}}  # fmt: skip


def variant_name(cell: Mapping[str, Any]) -> str:
    """Return an operation with the parameters that tell its variants apart."""
    params = [str(value) for name, value in cell["params"].items() if name != "tile"]
    return f"{cell['operation']}({', '.join(params)})" if params else cell["operation"]


def first_words(cell: Mapping[str, Any]) -> str:
    """Return the first difference of a cell in words: the input's elements that are not zero, and both results."""
    first = cell["first"]
    if not first:
        return ""
    given = "; ".join(f"{name} " + (", ".join(f"[{at}]={bits}" for at, bits in places) or "all 0")
                      for name, places in first["inputs"].items())  # fmt: skip
    if "golden" not in first:
        return given
    return f"{given} -> {first['output']}[{first['index']}] {first['golden']}, peer {first['peer']}"


def by_class(cell: Mapping[str, Any]) -> str:
    """Return how many rows of each input class differ, `F 12/400`, classes without a difference left out."""
    return " ".join(f"{letter} {wrong}/{total}" for letter, (wrong, total) in cell["classes"].items() if wrong)


def claimed(matrix_cells: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the cells of the profile that each peer claims."""
    return [cell for cell in matrix_cells if cell["claimed"]]


def entries_of(cell: Mapping[str, Any]) -> list[Any]:
    """Return the known differences that speak of a cell's peer and variant."""
    names = (cell["subject"], base_name(cell["subject"]))
    return [entry for entry in all_differences() if entry.subject in names
            and entry.covers(cell["operation"], cell["params"], cell["profile"])]  # fmt: skip


def markdown(found: Mapping[str, Any]) -> str:
    """Return the page: who ran, the claimed cells, the matrix of peers and profiles, and who was skipped."""
    parts = ["## Peers", "", *_table(("peer", "arrays", "claims", "versions"), _subjects(found)), "",
             "## Against the claimed profile", "", *_table(
                 ("peer", "operation", "profile", "verdict", "level", "differs", "known as", "first difference"),
                 (_claimed_row(cell) for cell in claimed(found["cells"])))]  # fmt: skip
    for operation in sorted({cell["operation"] for cell in found["cells"] if cell["profile"]}):
        parts += ["", f"## {operation} against every profile", "", *_grid(found["cells"], operation)]
    parts += ["", "## Skipped", "", *_table(("peer", "operation", "reason"), _skipped(found["skipped"]))]
    return "\n".join(parts) + "\n"


def _subjects(found: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for entry in found["subjects"]:
        versions = ", ".join(f"{name} {value}" for name, value in entry["described"].items())
        yield entry["name"], entry["arrays"], ", ".join(entry["claims"]) or "-", versions


def _claimed_row(cell: Mapping[str, Any]) -> tuple[str, ...]:
    special = {cells.DOCUMENTED: "differs as documented", cells.NEW: f"**new: {cell['unknown']} rows**",
               cells.VANISHED: f"**vanished: {', '.join(cell['gone'])}**"}  # fmt: skip
    words = f"; {cell['words']}" if cell["words"] else ""
    verdict = special.get(cell["state"], cell["state"])
    return (cell["subject"], f"`{variant_name(cell)}`", cell["profile"] or "-", verdict + words, cell["level"],
            by_class(cell) or "-", ", ".join(cell["known"]) or "-", first_words(cell) or "-")  # fmt: skip


def mark(cell: Mapping[str, Any]) -> str:
    """Return a cell in one word for the grid: `=`, `=L1`, or the finite rows that differ in percent."""
    if cell["state"] == cells.REFUSED:
        return "refused"
    if not cell["differing"]:
        return "="
    if cell["level"] != "none":
        return f"={cell['level']}"
    wrong, total = cell["classes"].get("F", [0, 0])
    return (
        f"{100 * wrong / total:.3g}%" if wrong else f"ends: {' '.join(k for k, v in cell['classes'].items() if v[0])}"
    )


def _grid(matrix_cells: Iterable[Mapping[str, Any]], operation: str) -> list[str]:
    chosen = [cell for cell in matrix_cells if cell["operation"] == operation and cell["profile"]]
    columns = [name for name in dict.fromkeys(cell["profile"] for cell in chosen) if "+" not in name]
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for cell in chosen:
        text = f"**{mark(cell)}**" if cell["claimed"] else mark(cell)
        rows.setdefault((cell["subject"], variant_name(cell)), {})[cell["profile"]] = text
    lines = []
    for (subject, variant), row in rows.items():
        own = "; ".join(text for name, text in row.items() if name not in columns) or "-"
        lines.append((subject, f"`{variant}`", *(row.get(name, "-") for name in columns), own))
    return _table(("peer", "variant", *columns, "its own"), lines)


def _skipped(skipped: Iterable[Mapping[str, str]]) -> Iterable[tuple[str, ...]]:
    for entry in skipped:
        yield entry["subject"], entry["operation"] or "all", entry["reason"]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [" | ".join(head), "|".join("---" for _ in head)]
    lines += [" | ".join(text.replace("|", "\\|").replace("\n", " ") for text in row) for row in rows]
    return [f"| {line} |" if index != 1 else f"|{line}|" for index, line in enumerate(lines)]
