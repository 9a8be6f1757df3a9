"""Judge one subject on one case: the smallest step of a run. `calling.probes` judges the calling contract."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .calling.call import Called, call
from .case import Case
from .compare import Comparison, compare
from .subject import Subject
from .tally import Failure, Tally
from .verdict import NO_LEVEL, Outcome


def judge(subject: Subject, case: Case, golden: Mapping[str, np.ndarray], tally: Tally, seconds: float) -> bool | None:
    """Call a subject on a case, compare, and count; return whether it held at its claim, None if not compared."""
    called = call(subject, case, seconds)
    return record(called, case, golden, tally)


def record(called: Called, case: Case, golden: Mapping[str, np.ndarray], tally: Tally) -> bool | None:
    """Count one call's result in a tally; return whether it held at the claimed level, None if not compared."""
    if called.outcome is Outcome.UNSUPPORTED:
        tally.unsupported[called.words] += 1
        tally.refusals.refuse(case, called.words, called.declared)
        return None
    if called.outcome is not Outcome.PASS and not called.finding:
        tally.faults.append((called.outcome, called.words, case))
        return None
    tally.refusals.answer(case)
    comparison = compare(case, golden, called.results)
    count(comparison, case, tally)
    if called.finding:
        tally.fail(Failure(case, NO_LEVEL, called.words, called.finding, comparison.observed))
        return False
    return comparison.level <= tally.claimed


def count(comparison: Comparison, case: Case, tally: Tally) -> None:
    """Add a comparison to a tally, and the case to its failures unless every byte is right."""
    tally.compared += comparison.compared
    tally.reached = max(tally.reached, comparison.level)
    tally.add_classes(comparison.classes)
    if comparison.level:
        words, finding = comparison.problem.words, comparison.problem.finding
        tally.fail(Failure(case, comparison.level, words, finding, comparison.observed))
