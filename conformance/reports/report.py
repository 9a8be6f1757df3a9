"""The report of a run: a header, one result a subject and variant, and a footer. JSON, with a schema.

The exceptions below are what a valid report is. A report is checked when it is written and when it is read.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refnum.errors import FileError

from ..cases.levels import Outcome
from . import covered, facts, files
from .environment import environment

VERSION = 1
COMPLETE, PARTIAL = "complete", "partial"

APART = 20
"""Times as long as the report so far took to write that it is not written again."""

EXIT_VERIFIED, EXIT_MISMATCH, EXIT_USAGE, EXIT_NOTHING = 0, 1, 2, 3


class InvalidReport(FileError):
    """A report contradicts itself."""


class MissingFooter(InvalidReport):
    """A report without a footer: the run died and there might be results missing."""


class DuplicateResult(InvalidReport):
    """Two results for one subject and variant."""


class NothingCompared(InvalidReport):
    """A result is a pass although not one element was compared."""


class TotalsDiffer(InvalidReport):
    """The footer's totals are not the sums of the results."""


class VerdictDiffers(InvalidReport):
    """The footer's exit status or verdict is not what follows from the results."""


class MissingFailure(InvalidReport):
    """A result is a mismatch but shows no failing case."""


class UnexpectedFailure(InvalidReport):
    """A result is a pass but shows a failing case."""


class ProofWithoutCases(InvalidReport):
    """A domain is called proved although fewer points were compared than it has."""


@dataclass
class Report:
    """Header, results and footer of one run, under construction."""

    header: dict[str, Any]
    results: list[dict[str, Any]] = field(default_factory=list)
    harness: list[str] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    controls: dict[str, Any] = field(default_factory=dict)
    status: str = PARTIAL
    started: float = field(default_factory=time.monotonic)

    def document(self) -> dict[str, Any]:
        """Return the whole report as JSON values, footer last; what is not finished says `partial`."""
        return {
            "schema": f"refnum.report/{VERSION}",
            "header": self.header,
            "controls": self.controls,
            "results": self.results,
            "data": self.data,
            "harness": self.harness,
            "footer": self.footer(),
        }

    def footer(self) -> dict[str, Any]:
        """Return status, totals, exit status and the verdict in words."""
        code = self.exit_status()
        return {
            "status": self.status,
            "totals": totals(self.results),
            "seconds": round(time.monotonic() - self.started, 3),
            "exit": code,
            "verdict": self.verdict(code),
        }

    def wrong(self) -> bool:
        """Whether a subject was found wrong, rather than the harness."""
        return any(row["outcome"] in facts.WRONG for row in (*self.results, *self.data))

    def exit_status(self) -> int:
        """Return 0 all verified, 1 something is wrong, 3 nothing verified (also a run that was cut short clean)."""
        outcomes = Counter(result["outcome"] for result in self.results)
        if self.wrong() or self.harness:
            return EXIT_MISMATCH
        compared = sum(result["compared"] for result in self.results) + sum(row["compared"] for row in self.data)
        if not compared or outcomes[Outcome.NOT_VERIFIED.value] or outcomes[Outcome.NOT_RUN.value]:
            return EXIT_NOTHING
        return EXIT_VERIFIED if self.status == COMPLETE else EXIT_NOTHING

    def verdict(self, code: int) -> str:
        """Return the one line that a reader may quote, with the level of the run in it."""
        total = totals(self.results)
        level = self.header["level"]
        counts = f"{total['variants']:,} variants, {total['cases']:,} cases, {total['compared']:,} elements compared"
        if self.data:
            names = {row["tensor"] for row in self.data if row["compared"]}
            compared = sum(row["compared"] for row in self.data)
            counts = f"{len(names):,} tensors, {len(self.data):,} results, {compared:,} elements compared"
        if total["outcomes"].get("unsupported"):
            counts += f", {total['outcomes']['unsupported']:,} variants unsupported"
        refused = sum(result["refused"] for result in self.results if result["outcome"] != Outcome.UNSUPPORTED)
        if refused:
            counts += f", {refused:,} cases refused"
        counts = _singular(", ".join([counts, *covered.extent(self.results)]))
        if self.status == PARTIAL:
            counts = f"run cut short: {counts}"
        where = "on this data" if self.data else f"at level {level}"
        if code == EXIT_MISMATCH:
            return f"{'WRONG' if self.wrong() else 'NOT VERIFIED, the harness failed,'} {where} ({counts})"
        if code == EXIT_NOTHING:
            return f"NOT VERIFIED {where} ({counts})"
        if level == "smoke" and not self.data:
            return f"no mismatch in a smoke run, which is not a verification ({counts})"
        agreement = covered.worst_level(self.results)
        level = "" if agreement == "L0" else f" to {agreement} only"
        return f"verified{level}{covered.contract(self.results)} {where} ({counts})"


def header(
    level: str,
    seed: int,
    argv: Sequence[str],
    subjects: Sequence[Mapping[str, Any]],
    broken: Sequence[tuple[str, str]],
    **more: Any,
) -> dict[str, Any]:
    """Return the header of a report: what ran, where, with which flags, and who was judged."""
    return {
        "level": level,
        "seed": seed,
        "argv": list(argv),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "environment": environment(),
        "subjects": list(subjects),
        "broken_subjects": [{"name": name, "reason": why} for name, why in broken],
        **more,
    }


def totals(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of the footer."""
    outcomes = Counter(result["outcome"] for result in results)
    return {
        "variants": len(results),
        "cases": sum(result["cases"] for result in results),
        "compared": sum(result["compared"] for result in results),
        "outcomes": dict(sorted(outcomes.items())),
    }


def concluded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return totals, exit status and verdict as they follow from a document's results and its status."""
    parts = {name: document[name] for name in ("header", "results", "harness", "data")}
    footer = Report(**parts, status=document["footer"]["status"]).footer()
    return {name: footer[name] for name in ("totals", "exit", "verdict")}


def check(document: Mapping[str, Any], origin: str) -> None:
    """Raise the named error of the first way in which a document is no valid report."""
    if isinstance(document, Mapping) and "footer" not in document:
        raise MissingFooter(f"{origin} has no footer: the run died and results may be missing.")
    files.check(document, "report", origin)
    seen: set[tuple[str, str]] = set()
    for result in document["results"]:
        key = (result["subject"], result["variant"])
        if key in seen:
            raise DuplicateResult(f"{origin} has two results for {key[0]} on {key[1]}.")
        seen.add(key)
        _check_result(result, origin)
    follows, footer = concluded(document), document["footer"]
    if follows["totals"] != footer["totals"]:
        raise TotalsDiffer(f"{origin}: the footer's totals are not the sums of the results.")
    if follows["exit"] != footer["exit"] or not _follows(footer["verdict"], follows["verdict"]):
        raise VerdictDiffers(
            f"{origin} says {footer['verdict']!r} and exit status {footer['exit']}; from its results follow "
            f"{follows['verdict']!r} and {follows['exit']}."
        )


def _singular(counts: str) -> str:
    """Return counts in words with the noun of each one in the singular."""
    return re.sub(r"(?<![\d,])1 (variant|case|element|tensor|result)s\b", r"1 \1", counts)


def _follows(said: str, verdict: str) -> bool:
    """Whether a verdict says what another one does, and counts nothing else; another version may count less.

    Verdicts of an earlier version have no separators of thousands, and `1 variants`.
    """
    (words, _, counts), (own, _, known) = _singular(said).partition(" ("), verdict.partition(" (")
    theirs, ours = ({one.replace(",", "") for one in text.removesuffix(")").split(", ")} for text in (counts, known))
    return words == own and theirs <= ours


def _check_result(result: Mapping[str, Any], origin: str) -> None:
    where = f"{origin}: {result['subject']} on {result['variant']}"
    if result["outcome"] == Outcome.PASS and not result["compared"]:
        raise NothingCompared(f"{where} is a pass with nothing compared.")
    if result["outcome"] == Outcome.MISMATCH and not result["failures"]:
        raise MissingFailure(f"{where} is a mismatch without a failing case.")
    beyond = [f for f in result["failures"] if f["finding"] or f["fails"] >= result["level"]["claimed"]]
    if result["outcome"] == Outcome.PASS and beyond:
        raise UnexpectedFailure(f"{where} is a pass with a failing case.")
    for domain in result["domains"]:
        if domain["verdict"] == "proved" and domain["points"] != domain["size"]:
            raise ProofWithoutCases(
                f"{where}: {domain['name']} is called proved with {domain['points']} of {domain['size']} points."
            )


def write(report: Report, path: Path) -> None:
    """Check a report and write it, whole or not at all."""
    document = report.document()
    check(document, str(path))
    files.write_json(path, document)


def checkpoint(path: Path) -> Callable[[Report], None]:
    """Return a function that writes the report so far, marked partial; FileError now if the path cannot be written.

    It does nothing for `APART` times as long as it took: to write a long report after every variant takes minutes.
    """
    files.write_text(path, "")
    path.unlink()
    due = -math.inf

    def write(report: Report) -> None:
        nonlocal due
        start = time.monotonic()
        if start >= due:
            files.write_json(path, report.document())
            now = time.monotonic()
            due = now + APART * (now - start)

    return write


def load(path: Path) -> dict[str, Any]:
    """Return a report from a file; FileError or a named InvalidReport says what is wrong with it."""
    raw = files.parse(path)
    if isinstance(raw, dict) and str(raw.get("schema", "")).startswith("refnum.report/") and "footer" not in raw:
        raise MissingFooter(f"{path} has no footer: the run died and results may be missing.")
    document = files.read_json(path, "report", VERSION)
    with files.understood(path):
        check(document, str(path))
    return document
