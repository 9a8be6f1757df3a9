"""Parts of a report as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

from . import facts, terminal


def page_text(result: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Return the page of one failing case as plain text."""
    stream = StringIO()
    terminal.failure(terminal.plain_console(stream), result, record)
    return stream.getvalue()


def one_line(row: Mapping[str, Any]) -> str:
    """Return what is wrong with a result in one line: the likeliest bug class or finding, and the smallest input.

    A result without a failing case says its own words.
    """
    found = sorted(row["failures"], key=lambda record: not record["shrunk"]) if row["outcome"] in facts.WRONG else []
    if not found:
        return str(row["words"])
    first = found[0]
    name = "" if facts.likely(first) == "UNKNOWN" else f"{facts.likely(first)}: "
    size = "" if first["page"] and first["page"]["input"] else f" ({first['case']})"
    more = f"; {len(found) - 1} more failing cases" if len(found) > 1 else ""
    return f"{name}{headline(first)}{size}{more}".replace("\n", " ")


def headline(record: Mapping[str, Any]) -> str:
    """Return one sentence: what came back in place of what, where, for which input."""
    page = record["page"]
    if not page:
        return record["words"] or record["finding"] or f"shown in {record['reproduced']} runs"
    inputs = ", ".join(f"{entry['name']} = {entry['value']} ({entry['bits']})" for entry in page["input"])
    expected, observed = page["expected"], page["observed"]
    given = f" for {inputs}" if inputs else ""
    scale = page["scale"]
    if expected["bits"] == observed["bits"] and scale and scale["expected"] != scale["observed"]:
        return f"{page['place']}: scale {scale['observed']} where {scale['expected']} is right{given}"
    return (
        f"{page['place']} of {page['output']}: {observed['value']} ({observed['bits']}) where "
        f"{expected['value']} ({expected['bits']}) is right{given}"
    )
