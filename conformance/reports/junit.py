"""A report as JUnit XML, for continuous integration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from .facts import ERRORS, WRONG
from .printable import printable
from .text import one_line, page_text


def junit(document: Mapping[str, Any]) -> str:
    """Return JUnit XML: one testcase a subject and variant (and tensor), one for each error of the harness itself.

    What is not verified is skipped, with its reason.
    """
    document = printable(document)
    rows = [*document["results"], *document["data"]]
    stamp = document["header"]["started"].rstrip("Z")
    root = ElementTree.Element("testsuites", name="refnum")
    for subject in dict.fromkeys(row["subject"] for row in rows):
        _suite(root, subject, stamp, [row for row in rows if row["subject"] == subject])
    if document["harness"]:
        count = str(len(document["harness"]))
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            {"name": "harness", "tests": count, "failures": "0", "errors": count, "skipped": "0", "timestamp": stamp},
        )
        for number, line in enumerate(document["harness"]):
            case = ElementTree.SubElement(suite, "testcase", {"classname": "refnum.harness", "name": str(number)})
            ElementTree.SubElement(case, "error", {"message": line, "type": "harness"})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, subject: str, stamp: str, rows: Sequence[Mapping[str, Any]]) -> None:
    counts = {
        "tests": len(rows),
        "failures": sum(_kind(row) == "failure" for row in rows),
        "errors": sum(_kind(row) == "error" for row in rows),
        "skipped": sum(_kind(row) == "skipped" for row in rows),
    }
    attributes = {"name": subject, **{k: str(v) for k, v in counts.items()}, "timestamp": stamp}
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    for row in rows:
        _testcase(suite, row)


def _kind(row: Mapping[str, Any]) -> str:
    outcome = row["outcome"]
    if outcome in WRONG:
        return "error" if outcome in ERRORS else "failure"
    return "" if outcome == "pass" else "skipped"


def _testcase(suite: ElementTree.Element, row: Mapping[str, Any]) -> None:
    tensor = f" {row['tensor']}" if "tensor" in row else ""
    attributes = {
        "classname": f"{row['subject']}.{row['variant'].partition('[')[0]}",
        "name": row["variant"] + tensor,
        "time": f"{row.get('seconds', 0):.3f}",
    }
    case = ElementTree.SubElement(suite, "testcase", attributes)
    properties = ElementTree.SubElement(case, "properties")
    for name in ("evidence", "compared", "cases"):
        if name in row:
            ElementTree.SubElement(properties, "property", {"name": name, "value": str(row[name])})
    if kind := _kind(row):
        detail = ElementTree.SubElement(case, kind, {"message": one_line(row), "type": row["outcome"]})
        left = [f"\n{row['not_asked']}\n"] if row.get("not_asked") else []
        detail.text = "".join([*(page_text(row, record) for record in row["failures"]), *left])
