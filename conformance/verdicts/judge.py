"""Judge one subject on one case: the smallest step of a run. `probes` judges the calling contract."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from refnum.errors import RefnumError

from ..cases.case import Case
from ..cases.contracts import outside
from ..cases.findings import Finding
from ..cases.levels import NO_LEVEL, Outcome
from ..cases.operation import run_golden
from ..subjects.calls.call import Called, call
from ..subjects.subject import Subject
from .compare import Comparison, compare
from .refusals import on_same_shapes
from .repeats import odd_ones, same_results
from .tally import Failure, Tally

CHECKED = 64
"""Wrong calls of a variant that are made again at once: a wrong result that does not come back is a flip."""

Again = Callable[[Case], Called]
"""The call that is judged, made on another case."""


def judge(
    subject: Subject,
    case: Case,
    golden: Mapping[str, np.ndarray],
    tally: Tally,
    seconds: float,
    before: Case | None = None,
) -> bool | None:
    """Call a subject on a case, compare, and count; return whether it held at its claim, None if not compared.

    before: the case that it was called on last, as in `record`.
    """
    called = called_with_room(subject, case, seconds)
    again = partial(call, subject, seconds=seconds)
    return record(called, case, golden, tally, again, behind=behind_of(subject, before, seconds))


def behind_of(subject: Subject, before: Case | None, seconds: float) -> Again | None:
    """Return what makes a call right behind a call on another case, if there is one."""
    return None if before is None else partial(call_behind, subject, before, seconds)


def call_behind(subject: Subject, before: Case, seconds: float, case: Case) -> Called:
    """Call on a case right behind a call on another one."""
    call(subject, before, seconds)
    return call(subject, case, seconds)


def called_with_room(subject: Subject, case: Case, seconds: float) -> Called:
    """Call a subject; where memory is short, once more after everything that can be freed is free."""
    called = call(subject, case, seconds)
    if called.no_room:
        gc.collect()
        called = call(subject, case, seconds)
    return called


def record(
    called: Called,
    case: Case,
    golden: Mapping[str, np.ndarray],
    tally: Tally,
    again: Again | None = None,
    how: str = "",
    behind: Again | None = None,
) -> bool | None:
    """Count one call's result in a tally; return whether it held at the claimed level, None if not compared.

    again: makes the call once more, on these inputs, which tells whether a wrong result is determined, or on other data
    of the same shapes, which tells whether a refusal is by content. how: what the call differs by from a plain one.
    behind: makes it behind the call that went before it, where that one was another variant's.
    """
    if outside(case, tally.outside.contract):
        inform(called, case, golden, tally)
        return None
    if not taken(called, case, tally, again, how):
        return None
    comparison = compare(case, golden, called.results)
    tally.calls += 1
    if comparison.level and again is not None and not called.finding and flipped(called, case, tally, again, behind):
        tally.compared += comparison.compared
        return False
    count(comparison, case, tally)
    if called.finding:
        tally.fail(Failure(case, NO_LEVEL, called.words, called.finding, comparison.observed))
        return False
    return comparison.level <= tally.claimed


def taken(called: Called, case: Case, tally: Tally, again: Again | None, how: str) -> bool:
    """Whether a call has results to compare; a refusal or a fault is counted."""
    if called.outcome is Outcome.UNSUPPORTED:
        tally.unsupported[called.words] += 1
        if undeclared(called) and not how:
            tally.undeclared[called.words] += 1
        if called.no_room:
            tally.refusals.no_room(case)
        elif tally.refusals.refuse(case, called.words, how) and again is not None:
            _ask_again(again, case, tally, how)
        return False
    if not called.answered:
        tally.faults.append((called.outcome, called.words, case))
        return False
    tally.refusals.answer(case, how)
    return True


def undeclared(called: Called) -> bool:
    """Whether a call was refused by a line of the subject's own that nothing declares, with memory to spare."""
    return called.outcome is Outcome.UNSUPPORTED and not (called.declared or called.no_room)


def flipped(called: Called, case: Case, tally: Tally, again: Again, behind: Again | None = None) -> bool:
    """Whether a call gives other bytes when it is made again, which is counted; only so many are made again.

    behind: as in `record`. Bytes that come again behind the other call, and only there, are no flip.
    """
    if tally.checked >= CHECKED:
        return False
    tally.checked += 1
    calls = [called, again(case)]
    if not calls[1].answered:
        return False
    if not same_results(*calls):
        calls.append(again(case))  # which of the two is the odd one
        if behind is not None and same_results(*calls[1:]) and same_results(called, behind(case)):
            tally.calls += len(calls)
            tally.fail(Failure(case, NO_LEVEL, "right by itself, wrong behind another variant", Finding.AFTER_ANOTHER))
            return True
    flips = odd_ones(one for one in calls if one.answered)
    tally.repeat(case, len(calls) - 1, flips)
    return bool(flips)


def inform(called: Called, case: Case, golden: Mapping[str, np.ndarray], tally: Tally) -> None:
    """Count a call outside of the subject's contract; whatever became of it is no failure."""
    what = "refused" if called.outcome is Outcome.UNSUPPORTED else "failed"
    if called.answered:
        comparison = compare(case, golden, called.results)
        what = "held" if comparison.level <= tally.claimed and not called.finding else "differing"
    words = f" ({called.words})" if called.words else ""
    tally.outside.add(what, f"{outside(case, tally.outside.contract)} in {case.label or case}{words}")


def _ask_again(again: Again, case: Case, tally: Tally, how: str) -> None:
    """Judge the first call on other data of a refused case's shapes that is not refused too."""
    inside = (other for other in on_same_shapes(case) if not outside(other, tally.outside.contract))
    for other in inside:
        called = again(other)
        if called.no_room:
            tally.refusals.no_room(other)
        elif called.outcome is not Outcome.UNSUPPORTED:
            try:
                golden = run_golden(other)
            except RefnumError:  # no legal data, and what was answered says nothing
                continue
            record(called, other, golden, tally, how=how)
            return


def count(comparison: Comparison, case: Case, tally: Tally) -> None:
    """Add a comparison to a tally, and the case to its failures unless every byte is right."""
    tally.compared += comparison.compared
    tally.reached = max(tally.reached, comparison.level)
    tally.add_classes(comparison.classes)
    if comparison.level:
        words, finding = comparison.problem.words, comparison.problem.finding
        failure = Failure(case, comparison.level, words, finding, comparison.observed)
        tally.fail(failure)
        tally.add_kinds(failure, comparison.kinds)
