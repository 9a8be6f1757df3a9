"""A report as one HTML file: no scripts, nothing fetched, light and dark as the reader's system says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from refnum.errors import UnsupportedError

from ..cases.levels import CLASSES
from . import facts
from .badge import digest
from .picture import picture
from .printable import printable
from .text import headline

MOST_PAGES, MOST_LINES = 200, 2000
"""Failing cases that are shown with all their bits, and those that get one line after them."""

_STATES = {0: "good", 1: "bad"}
_PARTS = {3: ("sign", "exponent", "fraction"), 2: ("sign", "exponent")}


def html(document: Mapping[str, Any], pages: int = MOST_PAGES, lines: int = MOST_LINES) -> str:
    """Return the page. Of many failing cases the first `pages` are shown whole, `lines` more in a line each.

    Raises UnsupportedError where the package jinja2 is missing, LookupError where the report lacks a part.
    """
    report = digest(document)
    document = printable(document)
    found = facts.failures(document)
    return _rendered(
        document=document,
        header=document["header"],
        banner=banner(document),
        footer=document["footer"],
        state=_STATES.get(document["footer"]["exit"], "unsure") if not _smoke(document) else "unsure",
        digest=report,
        verdicts=facts.verdicts(document),
        classes=facts.class_rows(document),
        letters=CLASSES,
        differences=facts.difference_rows(document),
        class_words=facts.CLASS_WORDS,
        unshown=facts.unshown(document),
        coverage=[_coverage(result) for result in document["results"] if result["compared"]],
        cases=[_case(*pair) for pair in found[:pages]],
        briefs=[_brief(*pair) for pair in found[pages : pages + lines]],
        left=max(0, len(found) - pages - lines),
        faults=[row for row in [*document["results"], *document["data"]] if row["outcome"] in facts.ERRORS],
        unverified=facts.unverified(document),
    )


def _rendered(**parts: Any) -> str:
    """Return the page of these parts; LookupError where the report lacks one that the page shows."""
    template = _template()
    from jinja2 import UndefinedError

    try:
        return str(template.render(**parts))
    except UndefinedError as error:
        raise LookupError(str(error)) from error


def banner(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the verdict, and its counts: of subjects and operations too, with thousands apart."""
    words, _, counts = document["footer"]["verdict"].partition(" (")
    rows = [*document["results"], *document["data"]]
    sizes = [
        f"{len(found):,} {name}{'s' * (len(found) != 1)}"
        for name, found in (
            ("subject", {row["subject"] for row in rows}),
            ("operation", {row["variant"].partition("[")[0] for row in rows}),
        )
    ]
    apart = re.sub(r"\b\d{4,}\b", lambda digits: f"{int(digits[0]):,}", counts.removesuffix(")"))
    return words, ", ".join(filter(None, (*sizes, apart)))


def _smoke(document: Mapping[str, Any]) -> bool:
    return document["header"]["level"] == "smoke" and document["footer"]["exit"] == 0 and not document["data"]


def _template() -> Any:
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise UnsupportedError("The HTML page needs the package jinja2; install it.") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("refnum.conformance.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thousands"] = "{:,}".format
    environment.filters["bits"] = bit_fields
    return environment.get_template("report.html.j2")


def bit_fields(text: str) -> list[tuple[str, str]]:
    """Return the fields of a code's bits as (name, bits); a code without fields is one of the name `bits`."""
    parts = text.split()
    if len(parts) == 2:  # without an exponent or without a fraction: which one is not said
        return [("sign", parts[0]), ("rest", parts[1])]
    return list(zip(_PARTS.get(len(parts), ("bits",) * len(parts)), parts, strict=True))


def _coverage(result: Mapping[str, Any]) -> dict[str, Any]:
    points = result.get("coverpoints")
    return {
        "subject": result["subject"],
        "variant": result["variant"],
        "evidence": result["evidence"],
        "domains": result["domains"],
        "holes": result["holes"],
        "hit": None if points is None else points - len(result["holes"]),
        "points": points,
    }


def _case(result: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    return {**_brief(result, record), "page": record["page"], "picture": picture(record.get("grid") or {})}


def _brief(result: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "result": result,
        "record": record,
        "headline": headline(record),
        "finding": record["finding"],
        "hints": [bug for bug in record["bug_classes"] if bug["words"] != record["words"]],
    }
