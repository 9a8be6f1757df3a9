"""A report as Markdown, for the page of a run on GitHub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import facts
from .printable import printable
from .text import one_line, page_text

LIMIT = 1024 * 1024
"""Bytes of a step summary: GitHub drops a longer one as a whole."""
MARGIN = 4096
"""Bytes that are left for what other commands of the step write."""


def markdown(document: Mapping[str, Any], limit: int = LIMIT - MARGIN) -> str:
    """Return Markdown of at most `limit` bytes: verdict, table of what is not a pass, pages as far as they fit.

    The table has at most half of the room, so that there is always a page of a mismatch. What is left out is counted.
    """
    document = printable(document)
    head = f"## refnum: {document['footer']['verdict']}\n\n"
    errors = "".join(f"- **harness**: {_cell(line)}\n" for line in document["harness"][:20])
    text = _cut(head + errors, limit)
    rows = _table(document)
    text += _fitting(rows, len(rows), (limit - _size(text)) // 2, "rows")
    cases = [(result, record) for result, record in facts.failures(document) if record["shrunk"] or not record["page"]]
    return text + _fitting(_pages(cases), len(cases), limit - _size(text), "mismatches")


def _size(text: str) -> int:
    return len(text.encode())


def _cut(text: str, limit: int) -> str:
    return text.encode()[:limit].decode(errors="ignore")


def _table(document: Mapping[str, Any]) -> list[str]:
    rest = [row for row in [*document["results"], *document["data"]] if row["outcome"] != "pass"]
    if not rest:
        return []
    rest.sort(key=lambda row: row["outcome"] not in facts.WRONG)
    lines = []
    for row in rest:
        name = row["variant"] + (f" {row['tensor']}" if "tensor" in row else "")
        why = "; ".join(filter(None, (one_line(row), row.get("not_asked"))))
        lines.append("| " + " | ".join(map(_cell, (row["subject"], name, row["outcome"], why))) + " |\n")
    return ["| subject | variant | outcome | why |\n|---|---|---|---|\n" + lines[0], *lines[1:]]


def _pages(cases: list[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Iterator[str]:
    for result, record in cases:
        page = page_text(result, record).rstrip().replace("```", "'''")
        yield f"\n```text{page}\n```\n"


def _fitting(blocks: Iterable[str], count: int, limit: int, what: str) -> str:
    """Join `count` blocks up to a limit in bytes, and count those that are left out."""
    text: list[str] = []
    used = 0
    for number, block in enumerate(blocks):
        left = count - number
        if used + _size(block) + _size(_note(left - 1, what)) > limit:
            note = _note(left, what)
            return "".join(text) + (note if used + _size(note) <= limit else "")
        text.append(block)
        used += _size(block)
    return "".join(text)


def _note(left: int, what: str) -> str:
    return f"\n{left} more {what} do not fit here; see the report file.\n" if left else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
