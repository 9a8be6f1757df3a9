"""The bug classes of `vectors/notes.json`, with the vectors that hunt each of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from value_tables import Table

VECTORS = Path(__file__).resolve().parents[2] / "vectors"


@cache
def notes() -> dict[str, dict[str, Any]]:
    """Return note id -> note, in the order of the file; empty while there is no file."""
    path = VECTORS / "notes.json"
    return json.loads(path.read_text(encoding="utf-8"))["notes"] if path.exists() else {}


@cache
def hunted() -> dict[str, Counter[str]]:
    """Return note id -> how many vectors of each operation carry it."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(VECTORS.glob("*/*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("schema") != "refnum.vectors/1":
            continue
        for group in document["groups"]:
            for entry in group["vectors"]:
                for flag in entry["flags"]:
                    found.setdefault(flag, Counter())[document["operation"]] += 1
    return found


def by_class() -> dict[str, list[str]]:
    """Return bug class -> ids of its notes, both in the order of the file."""
    groups: dict[str, list[str]] = {}
    for name, note in notes().items():
        groups.setdefault(note["bugClass"], []).append(name)
    return groups


def overview() -> Table:
    """One line a class: its notes, and how often vectors are flagged with one of them."""
    rows = []
    for group, names in by_class().items():
        count = sum(sum(hunted().get(name, Counter()).values()) for name in names)
        rows.append([group, ", ".join(f"#{name}" for name in names), f"{count:,}"])
    return Table(["class", "notes", "flags on vectors"], rows)


def sections(docname: str, inline: Callable[[str, str], list[nodes.Node]]) -> list[nodes.Node]:
    """Return a section a class, with one a note in it."""
    out: list[nodes.Node] = []
    for group, names in by_class().items():
        section = nodes.section(ids=[group.replace(" ", "-")], names=[group])
        section += nodes.title("", group[0].upper() + group[1:])
        section += [_note(name, notes()[name], docname, inline) for name in names]
        out.append(section)
    return out


def _note(name: str, note: dict[str, Any], docname: str, inline: Callable[[str, str], list[nodes.Node]]) -> nodes.Node:
    section = nodes.section(ids=[name], names=[name.lower()])
    section += nodes.title("", name)
    for text in (note["description"], f"Effect: {note['effect']}"):
        section += nodes.paragraph("", "", *inline(text, docname))
    section += nodes.paragraph("", "", *inline(f"Clause {note['clause']}. {_vectors(name)}", docname))
    section += _links(note["links"])
    return section


def _vectors(name: str) -> str:
    counts = hunted().get(name)
    if not counts:
        return "No vector carries it yet."
    listed = ", ".join(f"@{operation} {count:,}" for operation, count in sorted(counts.items()))
    return f"Vectors: {listed}."


def _links(links: list[dict[str, str]]) -> nodes.paragraph:
    if not links:
        return nodes.paragraph("", "A seeded defect: no public report of it is known to us.")
    paragraph = nodes.paragraph("", "Seen in: ")
    for number, link in enumerate(links):
        paragraph += nodes.Text(", " if number else "")
        paragraph += nodes.reference("", link["ref"], refuri=link["url"], internal=False)
    paragraph += nodes.Text(".")
    return paragraph


def frozen() -> Table:
    """Every operation that has vectors: profiles, vectors, and how many distinct notes they carry."""
    rows = []
    for folder in sorted(path for path in VECTORS.iterdir() if path.is_dir()):
        documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
        documents = [document for document in documents if document.get("schema") == "refnum.vectors/1"]
        if not documents:
            continue
        entries = [e for document in documents for group in document["groups"] for e in group["vectors"]]
        flags = {flag for entry in entries for flag in entry["flags"]}
        names = ", ".join(f"`{document['profile']['name']}`" for document in documents)
        rows.append([f"@{folder.name}", documents[0]["clause"], names, f"{len(entries):,}", str(len(flags))])
    return Table(["operation", "clause", "profiles", "vectors", "bug classes"], rows)
