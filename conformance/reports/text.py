"""Parts of a report as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

from . import terminal


def page_text(result: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Return the page of one failing case as plain text."""
    stream = StringIO()
    terminal.failure(terminal.plain_console(stream), result, record)
    return stream.getvalue()


def headline(record: Mapping[str, Any]) -> str:
    """Return one sentence: what came back in place of what, where, for which input."""
    page = record["page"]
    if not page:
        return record["words"] or record["finding"]
    inputs = ", ".join(f"{entry['name']} = {entry['value']} ({entry['bits']})" for entry in page["input"])
    expected, observed = page["expected"], page["observed"]
    given = f" for {inputs}" if inputs else ""
    return (
        f"{page['place']} of {page['output']}: {observed['value']} ({observed['bits']}) where "
        f"{expected['value']} ({expected['bits']}) is right{given}"
    )
