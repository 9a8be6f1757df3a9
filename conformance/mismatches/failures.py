"""From a failing case to what is shown and kept: confirm, shrink, diagnose, write the replay file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from refnum.errors import RefnumError

from ..cases.case import Case, plain, variant
from ..cases.contracts import outside
from ..cases.findings import FINDINGS, Problem
from ..cases.levels import NO_LEVEL, Outcome, failed_level, failed_name
from ..cases.operation import OPERATIONS, run_golden
from ..subjects.calls.call import Called
from ..subjects.subject import Subject
from ..verdicts.compare import Comparison, compare
from ..verdicts.reproduce import DIFFERENT_BYTES, SECOND_CASE, again
from ..verdicts.tally import Failure, Tally
from . import replay
from .diagnose import Seen, hints, laid_out
from .faults import Fault, faults_of
from .grid import grid
from .hints import SAME_VALUES, given, hints_for, likely, likely_of, points_to, seen_of
from .other_profile import advice, value_advice
from .page import page
from .products import order_advice, product_page
from .shrink import shrink

REPEATS = 3
MOST_SHRUNK = 12
MOST_PAGES = 8
"""Kinds of difference of one variant that are shown, the worst; the rest is counted."""


def observe_again(subject: Subject, case: Case, finding: str, seconds: float = 60.0) -> tuple[Called, Comparison]:
    """Call once more in the way that shows a finding and return the call and its comparison."""
    case, called = again(finding)(subject, case, seconds)
    golden = run_golden(case)
    if called.outcome not in (Outcome.PASS, Outcome.MISMATCH):
        return called, Comparison(problem=Problem(called.outcome.value, called.words))
    return called, compare(case, golden, called.results)


def shows(subject: Subject, case: Case, failure: Failure, seconds: float = 60.0) -> bool:
    """Whether a case shows the same failure: the same breach, or bytes that differ at the same level."""
    if outside(case, subject.inputs):
        return False
    called, comparison = observe_again(subject, case, failure.finding, seconds)
    if failure.finding in DIFFERENT_BYTES:
        return called.outcome is Outcome.PASS and comparison.level > 0
    if failure.finding in FINDINGS:
        return comparison.problem.finding == failure.finding and called.outcome is Outcome.PASS
    if failure.finding:
        return called.finding == failure.finding
    if called.outcome is not Outcome.PASS or comparison.problem:
        return False
    return comparison.level >= failure.level and (failure.kind is None or failure.kind in comparison.kinds)


class Presenter:
    """Turns tallies into results, with a bounded number of shrunk counterexamples a subject and operation."""

    def __init__(self, plan: Any, folder: Callable[[], Any] | None = None) -> None:
        self.plan = plan
        self.folder = folder or replay.folder
        self.given: Counter[tuple[str, str]] = Counter()
        self.known: set[tuple[str, str, str]] = set()
        self.told: set[tuple[str, str]] = set()
        self.hinted: dict[tuple[str, str, str], set[str]] = {}

    def result(self, subject: Subject, tally: Tally, quick: bool = False) -> dict[str, Any]:
        """Return the result record of a tally; quick: do not shrink (the user is waiting for the end)."""
        tally.close()
        chosen = worth_showing(tally) if self.plan.shown else []
        records = [
            self.record(subject, failure, self._deserves(subject, failure) and not quick, alike, tally.failures)
            for failure, alike in chosen[:MOST_PAGES]
        ]
        if tally.outcome is Outcome.MISMATCH:
            _count_flips(tally, records)
        if self.plan.shown:
            records += [self._unanswered(subject, fault) for fault in faults_of(tally)]
        return {**tally.serializable(), "failures": records, "unshown": max(0, len(chosen) - MOST_PAGES)}

    def tell(self, subject: Subject, tally: Tally, say: Callable[[str], None]) -> None:
        """Say in a line that a subject's vectors are wrong, and what like; once for an operation."""
        key = subject.name, tally.operation
        if not tally.wrong or key in self.told:
            return
        self.told.add(key)
        where = variant(tally.operation, tally.profile, tally.params)
        said = tally.faults[0][1] if tally.faults else tally.failures[0].words if tally.out else ""
        like = likely(tally.failures)
        words = f"{tally.failing} of {tally.vectors} frozen vectors differ{', like ' * bool(like)}{' or '.join(like)}"
        say(f"{subject.name} is wrong on {where}: {said or words}")

    def _deserves(self, subject: Subject, failure: Failure) -> bool:
        """Whether to spend time on shrinking: the first failures of an operation, and each new bug class after."""
        key = (subject.name, failure.case.operation)
        classes = [failure.finding or str(failure.kind or ""), *likely_of(failure)]
        new = {(*key, name) for name in classes if name} - self.known
        self.known |= new
        self.given[key] += 1
        return self.given[key] <= self.plan.shown or (bool(new) and self.given[key] <= MOST_SHRUNK)

    def _unanswered(self, subject: Subject, fault: Fault) -> dict[str, Any]:
        """Return the record of calls without a result, or of an illegal one with: there is nothing to compare."""
        case = fault.case
        failure = Failure(case, NO_LEVEL, fault.words, fault.finding)
        golden = fault.expected()
        document = replay.document(case, golden, {}, subject=subject, failure=failure)
        path, unsaved = self._save(document) if golden else (None, "")
        return {
            **self._told(failure, document, path, subject),
            "words": "; ".join(filter(None, (fault.words, unsaved))),
            "bug_classes": [_breach(fault.finding, fault.words)],
            "shrunk": False,
            "case": _size(case),
            "reproduced": f"{fault.times} of {fault.times}",
            "page": {},
            "grid": {},
        }

    def _told(self, failure: Failure, document: dict[str, Any], path: Any, subject: Subject) -> dict[str, Any]:
        """Return what records of all kinds of failures have in common."""
        return {
            "id": document["id"],
            "fails": failed_name(failure.level, failure.case.operation),
            "finding": failure.finding,
            "label": failure.case.label,
            "shrunk_from": _size(failure.case),
            "params": plain(failure.case.params),
            "replay": None if path is None else str(path),
            "command": None if path is None else replay.command(path, subject),
        }

    def _save(self, document: dict[str, Any]) -> tuple[Any, str]:
        """Write a replay file; what cannot be written is said in the report and does not stop the run."""
        if not self.plan.save:
            return None, ""
        try:
            return replay.save(document, self.folder()), ""
        except RefnumError as error:
            return None, f"no replay file: {error}"

    def _hints(self, subject: Subject, failure: Failure, kept: Sequence[Seen], new: bool) -> list[dict[str, Any]]:
        """Return the hints of a page; of a kind of difference that had them before, without further calls."""
        key = (subject.name, failure.case.operation, failure.finding or str(failure.kind))
        if not new and key in self.hinted:
            return [entry for entry in hints(kept) if entry["id"] in self.hinted[key]]
        found = hints_for(subject, kept, self.plan.seconds, self.plan.cases)
        self.hinted.setdefault(key, set()).update(entry["id"] for entry in found)
        return found

    def record(
        self,
        subject: Subject,
        failure: Failure,
        shrunk: bool = True,
        alike: Sequence[Failure] = (),
        others: Sequence[Failure] = (),
    ) -> dict[str, Any]:
        """Return the record of one failure; shrunk only if it can be shown again.

        alike: failures of the same kind, which a hint must explain too. others: all of the variant's that were kept,
        which another profile must explain too.
        """
        original = failure.case
        first = observe_again(subject, original, failure.finding, self.plan.seconds)[1]
        if failure.kind is not None and first.level:  # alone, its case may fail a lower level than the whole variant
            failure = replace(failure, level=min(failure.level, first.level))
        shown = sum(shows(subject, original, failure, self.plan.seconds) for _ in range(REPEATS))
        case = original
        if shown == REPEATS and shrunk:
            case = shrink(original, lambda smaller: shows(subject, smaller, failure, self.plan.seconds))
        golden = run_golden(case)
        called, comparison = observe_again(subject, case, failure.finding, self.plan.seconds)
        of_case = failure.finding not in SECOND_CASE  # those show a second call with other data
        observed = comparison.observed if of_case else {}
        reached = min(failure.level, comparison.level) if OPERATIONS[case.operation].bounded else failure.level
        level = 0 if failure.finding else failed_level(reached, case.operation)
        details = page(case, golden, observed, level, failure.kind) if observed else {}
        kept = [Seen(case, observed, min(level, SAME_VALUES)), *seen_of(_alike(failure, alike))] if observed else []
        details = product_page(case, details, partial(given, subject, self.plan.seconds))
        classes = self._hints(subject, failure, kept, shrunk) if kept else laid_out(case, comparison.problem.words)
        seen = [*kept[:1], *seen_of(others or alike)]
        tried = "" if failure.finding else advice(subject, seen) or order_advice(kept) or value_advice(subject, seen)
        if failure.finding:
            classes = [_breach(failure.finding, failure.words), *classes]
        document = replay.document(case, golden, observed, subject=subject, failure=failure, original=original)
        path, unsaved = self._save(document)
        return {
            **self._told(failure, document, path, subject),
            "fails": failed_name(failure.level if failure.finding else reached, case.operation),
            "words": "; ".join(filter(None, (failure.words or called.words, tried, unsaved))),
            "bug_classes": classes,
            "shrunk": shrunk and shown == REPEATS,
            "case": _size(case),
            "params": plain(case.params),
            "reproduced": f"{shown} of {REPEATS}",
            "page": details,
            "difference": _difference(failure, comparison),
            "grid": grid(case, golden, observed, level) if shrunk and observed else {},
        }


def worth_showing(tally: Tally) -> list[tuple[Failure, list[Failure]]]:
    """Return what deserves a page, worst first, each with the failures like it: every breach, every difference.

    A difference is a kind (class of input, output, way) beyond the claimed level, once for each known bug that examples
    of it point to. Where a subject holds at the level that it claims, one difference of the level below is shown.
    """
    shown: list[tuple[Failure, list[Failure]]] = []
    named_breaches: dict[str, list[Failure]] = {}
    for failure in sorted(tally.failures, key=lambda failure: failure.case.elements):
        if failure.finding:
            named_breaches.setdefault(failure.finding, []).append(failure)
    shown += [(alike[0], list(tally.failures)) for alike in named_breaches.values()]
    beyond = [kind for kind in tally.worst() if min(kind.level, tally.reached) > tally.claimed]
    for kind in beyond or tally.worst()[:1]:
        examples = tally.kinds[kind].failures(kind, tally.reached)
        shown += [(failure, tally.kinds[kind].plain(examples)) for failure in _each_bug(examples)]
    if not shown:  # bytes that differ in no way that has a name, such as those of a result that was never compared
        rest = sorted(tally.failures, key=lambda failure: (failure.level != tally.reached, failure.case.elements))
        shown += [(failure, list(tally.failures)) for failure in rest[:1]]
    return shown


def _each_bug(examples: Sequence[Failure]) -> list[Failure]:
    """Return the plainest example, and one more for each known bug that only other examples point to."""
    kept, known = [examples[0]], set(likely_of(examples[0]))
    for example in examples[1:] if known else ():
        found = set() if points_to(example, known) else set(likely_of(example))
        if found and not known & found:
            kept.append(example)
            known |= found
    return kept


def _difference(failure: Failure, comparison: Comparison) -> dict[str, Any] | None:
    """Return the kind of difference of a record, with the items that bear it in the case shown."""
    kind = failure.kind
    if kind is None:
        return None
    return {
        "class": kind.letter,
        "output": kind.output,
        "way": kind.way,
        "fails": failed_name(failure.level, failure.case.operation),
        "count": comparison.kinds.get(kind, 0),
    }


def _breach(finding: str, words: str) -> dict[str, Any]:
    """Return a finding in the place of a bug class."""
    return {"id": finding.upper().replace("-", "_"), "words": words, "note": None}


def _alike(failure: Failure, others: Sequence[Failure]) -> list[Failure]:
    """Return the failures of one page: those that fail the same level, or break the same rule of a call."""
    rest = [other for other in others if other is not failure]
    return [one for one in (failure, *rest) if (one.level, one.finding) == (failure.level, failure.finding)]


def _count_flips(tally: Tally, records: Sequence[dict[str, Any]]) -> None:
    """Count failures by plain calls that did not come back each time; with any, the outcome is flaky."""
    for record in records:
        shown = int(record["reproduced"].partition(" ")[0])
        if not record["finding"] and shown < REPEATS:
            tally.outcome = None
            tally.calls += REPEATS
            tally.repeated += REPEATS
            tally.flips += min(shown + 1, REPEATS - shown)
    tally.close()


def _size(case: Case) -> str:
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in case.inputs.items())
    return f"{shapes}; {case.elements} elements"
