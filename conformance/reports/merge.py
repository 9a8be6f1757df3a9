"""Several reports as one: shards of one job that ran on several machines or one subject after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import report as reports
from .report import COMPLETE, InvalidReport


class PartialReport(InvalidReport):
    """A report of a run that was cut short: what is missing cannot be known."""


class UnlikeReports(InvalidReport):
    """Reports of runs that did not do the same."""


def facts_of_run(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two runs must have in common for their results to mean the same."""
    header = document["header"]
    return {
        "level": header["level"],
        "seed": header["seed"],
        "number of examples": header.get("examples"),
        "golden model": header["environment"]["model_digest"],
        "kind of input": "tensors" if document["data"] else "made",
    }


def refuse_unlike(
    documents: Sequence[Mapping[str, Any]], names: Sequence[str], ignore: frozenset[str] = frozenset()
) -> None:
    """Raise PartialReport or UnlikeReports, naming the reports and what sets them apart."""
    for document, name in zip(documents, names, strict=True):
        if document["footer"]["status"] != COMPLETE:
            raise PartialReport(f"{name} is the report of a run that was cut short; run it again to its end.")
    first = facts_of_run(documents[0])
    for document, name in zip(documents[1:], names[1:], strict=True):
        for fact, value in facts_of_run(document).items():
            if value != first[fact] and fact not in ignore:
                raise UnlikeReports(
                    f"{names[0]} and {name} differ in their {fact}: {first[fact]} and {value}; "
                    f"only runs that did the same can be put together."
                )


def merge(documents: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return one report of several complete ones; the header says of each who, where and when.

    Raises PartialReport for a run that was cut short, UnlikeReports for another level, seed, number of examples,
    golden model or kind of input, or for a subject that describes itself in two ways, and DuplicateResult for one
    variant of a subject in two reports: which of them counts cannot be known.
    """
    refuse_unlike(documents, names)
    joined = reports.Report(_header(documents, names), status=COMPLETE)
    for document in documents:
        joined.results += document["results"]
        joined.harness += document["harness"]
        joined.data += document["data"]
        joined.controls = joined.controls or document["controls"]
    whole = joined.document()
    whole["footer"]["seconds"] = round(sum(document["footer"]["seconds"] for document in documents), 3)
    _refuse_same_tensor(joined.data)
    reports.check(whole, "the merged report")
    return whole


def _header(documents: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    headers = [document["header"] for document in documents]
    kept = ("argv", "started", "environment")
    return {
        **headers[0],
        "argv": [],
        "started": min(header["started"] for header in headers),
        "environment": _common([header["environment"] for header in headers]),
        "subjects": _subjects(headers, names),
        "broken_subjects": _each_once(entry for header in headers for entry in header["broken_subjects"]),
        "merged": [
            {"file": name, **{key: header[key] for key in kept}} for header, name in zip(headers, names, strict=True)
        ],
    }


def _subjects(headers: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return every subject once; one that is missing in a place but was judged in another counts as available."""
    known: dict[str, tuple[dict[str, Any], str]] = {}
    for header, origin in zip(headers, names, strict=True):
        for entry in header["subjects"]:
            before, where = known.get(entry["name"], (None, ""))
            if before is not None and before["available"] and entry["available"] and before != entry:
                raise UnlikeReports(
                    f"The subject {entry['name']} is not the same in {where} and {origin}; judge one state of it."
                )
            if before is None or entry["available"]:
                known[entry["name"]] = entry, origin
    return [entry for entry, _ in known.values()]


def _common(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all environments share; where they differ, the header's `merged` says how."""
    first = environments[0]
    return {
        "model_digest": first["model_digest"],
        **{
            part: {
                key: value
                for key, value in first.get(part, {}).items()
                if all(other.get(part, {}).get(key) == value for other in environments)
            }
            for part in ("versions", "variables")
        },
    }


def _each_once(entries: Any) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for entry in entries:
        if entry not in kept:
            kept.append(entry)
    return kept


def _refuse_same_tensor(rows: Sequence[Mapping[str, Any]]) -> None:
    seen = set()
    for row in rows:
        key = row["tensor"], row["subject"], row["variant"]
        if key in seen:
            raise reports.DuplicateResult(
                f"The merged report has two results for {key[1]} on {key[2]} of the tensor {key[0]}."
            )
        seen.add(key)
