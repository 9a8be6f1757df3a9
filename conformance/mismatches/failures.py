"""From a failing case to what is shown and kept: confirm, shrink, diagnose, write the replay file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from refnum.errors import RefnumError

from ..cases.case import Case, plain, variant
from ..cases.contracts import outside
from ..cases.findings import FINDINGS, Problem
from ..cases.levels import Outcome
from ..cases.operation import run_golden
from ..subjects.calls.call import Called
from ..subjects.subject import Subject
from ..verdicts.compare import Comparison, compare
from ..verdicts.reproduce import DIFFERENT_BYTES, SECOND_CASE, again
from ..verdicts.tally import Failure, Tally
from . import replay
from .diagnose import diagnose, laid_out, named, of_scales
from .grid import grid_of
from .page import page
from .shrink import shrink

REPEATS = 3
MOST_SHRUNK = 12
RANKED_BY = 6
"""Failures by which bug classes that explain one of them are put in order."""
QUICK = 1 << 16
"""Elements of the largest case that is diagnosed before it is shrunk."""


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
    return comparison.level >= failure.level


def _guessed(failure: Failure) -> list[dict[str, Any]]:
    """Return the bug classes of another failure of the same variant, as it was met."""
    if not failure.observed or failure.case.elements > QUICK:
        return []
    level = 0 if failure.finding else max(failure.level - 1, 0)
    return diagnose(failure.case, run_golden(failure.case), failure.observed, level)


def _quick(failures: Sequence[Failure]) -> list[tuple[Case, dict[str, Any]]]:
    return [(one.case, one.observed) for one in failures if one.observed and one.case.elements <= QUICK]


def commonest(failures: Sequence[Failure]) -> list[str]:
    """Return the bug classes that explain the most of some failures, in the order in which they were first named."""
    guesses = [found for found in map(_guessed, failures) if named(found)] or [of_scales(_quick(failures))]
    times = Counter(name for found in guesses for name in dict.fromkeys(entry["id"] for entry in found))
    most = max(times.values(), default=0)
    return [name for name, count in times.items() if count == most]


def ranked(classes: list[dict[str, Any]], failures: Sequence[Failure]) -> list[dict[str, Any]]:
    """Return bug classes with those first that explain the most of the smallest failures, else in their own order."""
    if len(classes) < 2:
        return classes
    asked = sorted(failures, key=lambda failure: failure.case.elements)[:RANKED_BY]
    times = Counter(name for one in asked for name in {entry["id"] for entry in _guessed(one)})
    return sorted(classes, key=lambda entry: -times[entry["id"]])


class Presenter:
    """Turns tallies into results, with a bounded number of shrunk counterexamples a subject and operation."""

    def __init__(self, plan: Any, folder: Callable[[], Any] | None = None) -> None:
        self.plan = plan
        self.folder = folder or replay.folder
        self.given: Counter[tuple[str, str]] = Counter()
        self.known: set[tuple[str, str, str]] = set()
        self.told: set[tuple[str, str]] = set()

    def result(self, subject: Subject, tally: Tally, quick: bool = False) -> dict[str, Any]:
        """Return the result record of a tally; quick: do not shrink (the user is waiting for the end)."""
        outcome = tally.close()
        records = [
            self.record(subject, failure, self._deserves(subject, failure) and not quick, tally.failures)
            for failure in self._worth_showing(tally)
        ]
        if outcome is Outcome.MISMATCH and records and all(record["reproduced"] == "0 of 3" for record in records):
            tally.outcome, tally.words = Outcome.FLAKY, "failed once, then never again on the same case"
        return {**tally.serializable(), "failures": records}

    def tell(self, subject: Subject, tally: Tally, say: Callable[[str], None]) -> None:
        """Say in a line that a subject's vectors are wrong, and what like; once for an operation."""
        key = subject.name, tally.operation
        if not tally.wrong or key in self.told:
            return
        self.told.add(key)
        where = variant(tally.operation, tally.profile, tally.params)
        said = tally.faults[0][1] if tally.faults else tally.failures[0].words if tally.out else ""
        like = commonest(tally.failures)
        words = f"{tally.failing} of {tally.vectors} frozen vectors differ{', like ' * bool(like)}{' or '.join(like)}"
        say(f"{subject.name} is wrong on {where}: {said or words}")

    def _deserves(self, subject: Subject, failure: Failure) -> bool:
        """Whether to spend time on shrinking: the first failures of an operation, and each new bug class after."""
        key = (subject.name, failure.case.operation)
        classes = [failure.finding]
        if failure.observed and failure.case.elements <= QUICK:
            level = 0 if failure.finding else max(failure.level - 1, 0)
            found = diagnose(failure.case, run_golden(failure.case), failure.observed, level)
            classes += [entry["id"] for entry in found]
        new = {(*key, name) for name in classes if name} - self.known
        self.known |= new
        self.given[key] += 1
        return self.given[key] <= self.plan.shown or (bool(new) and self.given[key] <= MOST_SHRUNK)

    def _worth_showing(self, tally: Tally) -> list[Failure]:
        """Return each breach once, then the smallest case that fails the level next to the one reached."""
        chosen: dict[tuple[str, int], Failure] = {}
        for failure in sorted(tally.failures, key=lambda failure: (not failure.finding, failure.case.elements)):
            if failure.finding or failure.level == tally.reached:
                chosen.setdefault((failure.finding, failure.level), failure)
        return list(chosen.values())[: self.plan.shown]

    def _save(self, document: dict[str, Any]) -> tuple[Any, str]:
        """Write a replay file; what cannot be written is said in the report and does not stop the run."""
        if not self.plan.save:
            return None, ""
        try:
            return replay.save(document, self.folder()), ""
        except RefnumError as error:
            return None, f"no replay file: {error}"

    def record(
        self, subject: Subject, failure: Failure, shrunk: bool = True, alike: Sequence[Failure] = ()
    ) -> dict[str, Any]:
        """Return the record of one failure; shrunk only if it can be shown again. alike: others, for its picture."""
        original = failure.case
        shown = sum(shows(subject, original, failure, self.plan.seconds) for _ in range(REPEATS))
        case = original
        if shown == REPEATS and shrunk:
            case = shrink(original, lambda smaller: shows(subject, smaller, failure, self.plan.seconds))
        golden = run_golden(case)
        called, comparison = observe_again(subject, case, failure.finding, self.plan.seconds)
        of_case = failure.finding not in SECOND_CASE  # those show a second call with other data
        observed = comparison.observed if of_case else {}
        level = 0 if failure.finding else max(failure.level - 1, 0)
        details = page(case, golden, observed, level) if observed else {}
        larger = (original, failure.observed) if failure.observed else None
        classes = (
            diagnose(case, golden, observed, level, larger) if observed else laid_out(case, comparison.problem.words)
        )
        if not named(classes):
            classes = next(filter(named, map(_guessed, alike)), classes)
        if not named(classes):
            classes = of_scales(_quick(alike)) or classes
        classes = ranked(classes, alike)
        if failure.finding:
            classes = [{"id": failure.finding.upper().replace("-", "_"), "words": failure.words}, *classes]
        document = replay.document(case, golden, observed, subject=subject, failure=failure, original=original)
        path, unsaved = self._save(document)
        return {
            "id": document["id"],
            "fails": f"L{max(failure.level - 1, 0)}",
            "finding": failure.finding,
            "words": "; ".join(filter(None, (failure.words or called.words, unsaved))),
            "bug_classes": classes,
            "label": original.label,
            "shrunk": shrunk and shown == REPEATS,
            "shrunk_from": _size(original),
            "case": _size(case),
            "params": plain(case.params),
            "reproduced": f"{shown} of {REPEATS}",
            "page": details,
            "grid": grid_of([(case, observed), *_sighted(failure, alike)], level) if shrunk and observed else {},
            "replay": None if path is None else str(path),
            "command": None if path is None else replay.command(path, subject),
        }


def _sighted(failure: Failure, alike: Sequence[Failure]) -> list[tuple[Case, dict[str, Any]]]:
    """Return the cases, as they were found, of a failure and of the others that fail its level, with what came back."""
    others = [other for other in alike if other is not failure]
    same = [other for other in (failure, *others) if (other.level, other.finding) == (failure.level, failure.finding)]
    return [(other.case, other.observed) for other in same if other.observed]


def _size(case: Case) -> str:
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in case.inputs.items())
    return f"{shapes}; {case.elements} elements"
