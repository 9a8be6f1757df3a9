"""A report as SARIF 2.1.0, for code scanning.

GitHub takes at most 25,000 results and 10 MB a file. The limit in bytes is kept without counting on compression.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from refnum import __version__

from . import facts
from .printable import printable
from .text import headline, page_text

MOST_RESULTS = 25_000
MOST_BYTES = 10_000_000
MOST_PAGES = 200
"""Results that hold the whole page of their case; the others hold its headline, so that more of them fit."""
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOM = 200_000
"""Bytes left for the frame: tool, rules and notifications."""
_NOWHERE = "refnum-subject"


def sarif(document: Mapping[str, Any], results: int = MOST_RESULTS, size: int = MOST_BYTES) -> str:
    """Return SARIF of at most `results` results and `size` bytes, those with a page first.

    One result a failing case, or a subject and variant that failed without one. Results that do not fit are counted
    in a notification of the run. `partialFingerprints` hold subject, variant and what is wrong, and not the numbers
    of the case: the same mistake keeps its fingerprint when other inputs show it.
    """
    document = printable(document)
    rules: dict[str, dict[str, Any]] = {}
    sources = {entry["name"]: entry.get("source", {}) for entry in document["header"]["subjects"]}
    kept: list[dict[str, Any]] = []
    found = _found(document)
    used = 0
    for row, record in found:
        entry = _result(row, record, sources.get(row["subject"], {}), whole=len(kept) < MOST_PAGES)
        used += len(json.dumps(entry).encode()) + 2
        if len(kept) == results or used > size - min(_ROOM, size // 2):
            break
        rules.setdefault(entry["ruleId"], _rule(entry["ruleId"], record))
        kept.append(entry)
    order = {name: number for number, name in enumerate(rules)}
    for entry in kept:
        entry["ruleIndex"] = order[entry["ruleId"]]
    return json.dumps(_frame(document, list(rules.values()), kept, len(found) - len(kept))) + "\n"


def _found(document: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    bare = [
        (row, None)
        for row in [*document["results"], *document["data"]]
        if row["outcome"] in facts.WRONG and not row["failures"]
    ]
    return [*facts.failures(document), *bare]


def _frame(
    document: Mapping[str, Any], rules: list[dict[str, Any]], results: list[dict[str, Any]], left: int
) -> dict[str, Any]:
    notes = [_note("error", line) for line in document["harness"][:100]]
    notes += [_note("note", f"{what}: {who}: {words}") for what, who, words in facts.unverified(document)[:100]]
    if left:
        notes.insert(0, _note("warning", f"{left} more results do not fit into this file; see the report."))
    invocation = {
        "executionSuccessful": document["footer"]["status"] == "complete" and not document["harness"],
        "exitCode": document["footer"]["exit"],
        "startTimeUtc": document["header"]["started"],
        "toolExecutionNotifications": notes,
    }
    driver = {
        "name": "refnum",
        "semanticVersion": __version__,
        "rules": rules,
        "properties": {"model": document["header"]["environment"]["model_digest"]},
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"refnum/{document['header']['level']}/"},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {"verdict": document["footer"]["verdict"], "level": document["header"]["level"]},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _note(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": text[:1000]}}


def _rule(name: str, record: Mapping[str, Any] | None) -> dict[str, Any]:
    bug = next((bug for bug in record["bug_classes"] if bug["id"] == name), None) if record else None
    words = bug["words"] if bug else "The bytes are not those of the golden model."
    return {
        "id": name,
        "shortDescription": {"text": words[:1000]},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["conformance"], "precision": "very-high"},
    }


def _result(
    row: Mapping[str, Any], record: Mapping[str, Any] | None, sources: Mapping[str, Any], whole: bool
) -> dict[str, Any]:
    operation = row["variant"].partition("[")[0]
    rule = facts.likely(record) if record else row["outcome"].upper().replace("-", "_")
    words = headline(record) if record else row["words"]
    text = f"{row['subject']} differs on {row['variant']}: {words}" if record else f"{row['subject']}: {words}"
    page = page_text(row, record).strip() if whole and record and record["shrunk"] else ""
    source = sources.get(operation, {})
    location: dict[str, Any] = {"artifactLocation": {"uri": source.get("file", _NOWHERE)}}
    location["region"] = {"startLine": source.get("line", 1)}
    return {
        "ruleId": rule,
        "level": "error",
        "message": {"text": "\n".join(filter(None, (text, page)))[:4000]},
        "locations": [
            {
                "physicalLocation": location,
                "logicalLocations": [{"fullyQualifiedName": f"{row['subject']}.{operation}", "kind": "function"}],
            }
        ],
        "partialFingerprints": {"refnumMismatch/v2": fingerprint(row, record)},
    }


def fingerprint(row: Mapping[str, Any], record: Mapping[str, Any] | None) -> str:
    """Return 32 hex digits of what is wrong with whom: not of the case that shows it."""
    what = [record["finding"], record["fails"], facts.likely(record)] if record else []
    if record and record.get("difference"):
        what.append(facts.difference_words(record["difference"]))
    words = [row["subject"], row["variant"], row.get("tensor", ""), row["outcome"], *what]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
