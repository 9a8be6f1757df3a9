"""A report for other readers: JUnit XML for continuous integration, Markdown for a step summary."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any
from xml.etree import ElementTree

from rich.console import Console

from . import show
from .verdict import BAD

SUMMARY_BYTES = 1_000_000
"""A step summary above 1024 KiB is dropped as a whole, so less than that is written."""

_WRONG = {outcome.value for outcome in BAD}
_ERRORS = {"fault", "timeout", "compile-error"}


def junit(document: Mapping[str, Any]) -> str:
    """Return JUnit XML: one testcase a subject and variant; what is not verified is skipped, with its reason."""
    results = document["results"]
    root = ElementTree.Element("testsuites", name="refnum")
    for subject in dict.fromkeys(result["subject"] for result in results):
        mine = [result for result in results if result["subject"] == subject]
        counts = {
            "tests": len(mine),
            "failures": sum(r["outcome"] in _WRONG - _ERRORS for r in mine),
            "errors": sum(r["outcome"] in _ERRORS for r in mine),
            "skipped": sum(r["outcome"] not in _WRONG and r["outcome"] != "pass" for r in mine),
        }
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            {
                "name": subject,
                **{k: str(v) for k, v in counts.items()},
                "timestamp": document["header"]["started"].rstrip("Z"),
            },
        )
        for result in mine:
            _testcase(suite, result)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _testcase(suite: ElementTree.Element, result: Mapping[str, Any]) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {
            "classname": f"{result['subject']}.{result['operation']}",
            "name": result["variant"],
            "time": f"{result['seconds']:.3f}",
        },
    )
    properties = ElementTree.SubElement(case, "properties")
    for name in ("evidence", "compared", "cases"):
        ElementTree.SubElement(properties, "property", {"name": name, "value": str(result[name])})
    if result["outcome"] == "pass":
        return
    kind = "error" if result["outcome"] in _ERRORS else "failure" if result["outcome"] in _WRONG else "skipped"
    detail = ElementTree.SubElement(case, kind, {"message": result["words"], "type": result["outcome"]})
    detail.text = "".join(page_text(result, record) for record in result["failures"])


def page_text(result: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Return the page of one failing case as plain text."""
    stream = StringIO()
    show.failure(Console(file=stream, width=show.PLAIN_WIDTH, color_system=None, highlight=False), result, record)
    return stream.getvalue()


def markdown(document: Mapping[str, Any], limit: int = SUMMARY_BYTES) -> str:
    """Return Markdown: the verdict, the table of what is not a pass, and pages as long as they fit in `limit` bytes."""
    results = document["results"]
    lines = [f"## refnum: {document['footer']['verdict']}", ""]
    rest = [result for result in results if result["outcome"] != "pass"]
    if rest:
        lines += ["| subject | variant | outcome | why |", "|---|---|---|---|"]
        for result in rest:
            cells = (result["subject"], result["variant"], result["outcome"], result["words"])
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > limit:
        text = f"{lines[0]}\n\n{len(rest)} results are not a pass; the table is too long for this page.\n"
    pages = [page_text(result, record) for result in rest for record in result["failures"] if record["shrunk"]]
    for number, page in enumerate(pages):
        block = f"\n```text{page.rstrip()}\n```\n"
        note = f"\n{len(pages) - number} more mismatches do not fit here; see the report file.\n"
        if len((text + block + note).encode()) > limit:
            return text + note
        text += block
    return text


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
