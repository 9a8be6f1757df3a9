"""What a report says, as rows without colour or layout: the terminal, HTML and Markdown show the same facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cases.levels import BAD, CLASSES, NOT_JUDGED, Outcome
from . import covered

Report = Mapping[str, Any]
Result = Mapping[str, Any]

WRONG = frozenset(outcome.value for outcome in BAD)
ERRORS = frozenset({"fault", "timeout", "compile-error"})
UNJUDGED = ("unsupported", "not-run", "not-verified")
_ORDER = (*BAD, Outcome.NOT_VERIFIED, Outcome.NOT_RUN, Outcome.UNSUPPORTED, Outcome.PASS)


@dataclass(frozen=True)
class Verdict:
    """The results of one subject, operation and profile as one line.

    outcome: the worst of those that were judged. variants: how many, or how many of each outcome. proved: members of
    domains that were tried completely.
    """

    subject: str
    operation: str
    profile: str
    outcome: str
    level: str
    variants: str
    cases: int
    elements: int
    proved: int
    seconds: float
    results: tuple[Result, ...]


def worst(outcomes: Iterable[str]) -> str:
    """Return the worst of some outcomes."""
    found = set(outcomes)
    return next((outcome.value for outcome in _ORDER if outcome.value in found), Outcome.NOT_VERIFIED.value)


def verdicts(report: Report) -> list[Verdict]:
    """Return one line a subject, operation and profile, in the report's order."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in report["results"]:
        groups.setdefault((result["subject"], result["operation"], result["profile"]), []).append(result)
    return [_verdict(key, results) for key, results in groups.items()]


def _verdict(key: tuple[str, str, str], results: Sequence[Result]) -> Verdict:
    judged = [result for result in results if result["outcome"] != "unsupported"] or results
    return Verdict(
        *key,
        outcome=worst(result["outcome"] for result in judged),
        level=max((r["level"]["reached"] or "" for r in results), key=lambda name: (name == "none", name)),
        variants=_variants(results),
        cases=sum(r["cases"] for r in results),
        elements=sum(r["compared"] for r in results),
        proved=sum(d["points"] for r in results for d in r["domains"] if d["verdict"] == "proved"),
        seconds=sum(r["seconds"] for r in results),
        results=tuple(results),
    )


def _variants(results: Sequence[Result]) -> str:
    counts = Counter(result["outcome"] for result in results)
    return str(len(results)) if len(counts) == 1 else " ".join(f"{n} {name}" for name, n in sorted(counts.items()))


def unverified(report: Report) -> list[tuple[str, str, str]]:
    """Return (what, who, why) for everything that was not verified; equal lines are one, with their number."""
    lines = Counter(_unverified(report))
    return [
        (what, who, words + (f" ({count} variants)" if count > 1 else ""))
        for (what, who, words), count in lines.items()
    ]


def _unverified(report: Report) -> Iterator[tuple[str, str, str]]:
    for result in report["results"]:
        who = f"{result['subject']} {result['operation']}"
        if result["outcome"] in UNJUDGED:
            yield result["outcome"], who, result["words"]
        elif result["refused"]:
            yield "refused", who, result["refusal"]
        if left := result.get("not_asked"):
            yield "not asked", f"{result['subject']} {result['variant']}", left.removeprefix("not asked, ")
        if result.get("outside", {}).get("cases"):
            yield "for information", who, result["outside"]["words"]
    for subject, name, operations, words in _refused_probes(report["results"]):
        yield "refused", f"{subject}, {name}, in {operations}", f"for example: {words}"
    for subject, form, operations, words in covered.forms(report["results"]):
        yield "refused", f"{subject}, {form}, in {operations}", f"for example: {words}"
    for row in report["data"]:
        if row["outcome"] in UNJUDGED:
            yield row["outcome"], f"{row['subject']} {row['tensor']}", row["words"]
    for subject in report["header"]["subjects"]:
        if not subject["available"]:
            yield "unavailable", subject["name"], subject["reason"]
        if subject.get("describe", {}).get(NOT_JUDGED):
            yield NOT_JUDGED, subject["name"], f"no operation is named so: {subject['describe'][NOT_JUDGED]}"
    for broken in report["header"]["broken_subjects"]:
        yield "broken", broken["name"], broken["reason"]


def _refused_probes(results: Sequence[Result]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (subject, probe, the operations that refuse it, the first reason)."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for result in results:
        for name, words in result["probes"].items():
            if words:
                found.setdefault((result["subject"], name), {}).setdefault(result["operation"], words)
    for (subject, name), reasons in found.items():
        yield subject, name, ", ".join(reasons), next(iter(reasons.values()))


def class_rows(report: Report) -> list[tuple[Result, list[str]]]:
    """Return (result, one cell an input class) of every quantiser that is not right at every byte (N17)."""
    return [
        (result, [_class_cell(result["classes"].get(letter)) for letter in CLASSES])
        for result in report["results"]
        if any(entry["wrong"] for entry in result["classes"].values())
    ]


def _class_cell(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "-"
    return f"{entry['level']} {entry['wrong']:,}/{entry['blocks']:,}" if entry["wrong"] else "L0"


CLASS_WORDS = {"F": "finite", "T": "tiny", "H": "huge", "Z": "zero", "I": "Inf", "N": "NaN"}
"""Class letter (N17) -> word."""


def difference_words(entry: Mapping[str, Any]) -> str:
    """Return a kind of difference in words: class of input, output, and way."""
    return f"{CLASS_WORDS[entry['class']]} {entry['output']}: {entry['way']}"


def difference_rows(report: Report) -> list[tuple[Result, Mapping[str, Any], str]]:
    """Return (result, kind of difference, how many cases are shown of it) of everything wrong."""
    return [
        (result, entry, str(_pages_of(result, entry)) if result["failures"] else "-")
        for result in [*report["results"], *report["data"]]
        if result["outcome"] in WRONG
        for entry in result.get("differences", ())
    ]


def _pages_of(result: Result, entry: Mapping[str, Any]) -> int:
    kind = difference_words(entry)
    kinds = [record["difference"] for record in result["failures"] if record.get("difference")]
    return sum(difference_words(one) == kind for one in kinds)


def failures(report: Report) -> list[tuple[Result, Mapping[str, Any]]]:
    """Return (result, failing case) of everything wrong, the made-small ones first."""
    found = [
        (result, record)
        for result in [*report["results"], *report["data"]]
        if result["outcome"] in WRONG
        for record in result["failures"]
    ]
    return sorted(found, key=lambda pair: not pair[1]["shrunk"])


def unshown(report: Report) -> int:
    """Return the number of differences that have no page: of a variant only so many are shown, the worst."""
    return sum(result.get("unshown", 0) for result in [*report["results"], *report["data"]])


def likely(record: Mapping[str, Any]) -> str:
    """Return the likeliest known bug of a failing case, or what it broke."""
    return next((bug["id"] for bug in record["bug_classes"]), record["finding"].upper().replace("-", "_") or "UNKNOWN")
