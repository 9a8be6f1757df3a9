"""A breach shown once more: for each finding the call that made it, which a replay repeats."""

from __future__ import annotations

from collections.abc import Callable

from ..case import Case
from ..compare import compare
from ..operation import call_golden, run_golden
from ..subject import Subject
from ..verdict import Outcome
from .call import POISONS, Called, call, has_out, into_guarded, replay_in_place
from .probes import MOVED, REPEATS
from .streams import under_graph
from .ways import call_on_way, call_with_array_splits, has_ways, takes_arrays


def again(finding: str) -> Callable[[Subject, Case, float], tuple[Case, Called]]:
    """Return the call that shows a breach once more, with the case that it answers; a plain call for other names."""
    for storage in MOVED:
        if finding == storage.finding:
            return lambda subject, case, seconds: (case, storage.call(subject, case, seconds))
    return _AGAIN.get(finding, _plain)


def _plain(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    return case, call(subject, case, seconds)


def _second_in_place(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    second_case, _, second = replay_in_place(subject, case, seconds)
    return second_case, second


def _second_of_graph(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    second_case, _, second = under_graph(subject, case, seconds)
    return second_case, second


def _into_out(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    if not has_out(subject, case.operation):
        return _plain(subject, case, seconds)
    return case, into_guarded(subject, case, call_golden(case), POISONS[0], seconds)


def _odd_one(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    """Return the first call that differs from the golden bytes, or the last one."""
    golden = run_golden(case)
    for _ in range(REPEATS):
        called = call(subject, case, seconds)
        if called.outcome is Outcome.PASS and compare(case, golden, called.results).level:
            break
    return case, called


def _on_ways(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    """Return the first call on a way that differs from the golden bytes, or the last one."""
    if not has_ways(subject, case.operation):
        return _plain(subject, case, seconds)
    golden = run_golden(case)
    for way in subject.ways[case.operation]:
        called = call_on_way(subject, case, way, seconds)
        if called.outcome is Outcome.PASS and compare(case, golden, called.results).level:
            break
    return case, called


def _by_array(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    if not takes_arrays(subject, case.operation):
        return _plain(subject, case, seconds)
    return case, call_with_array_splits(subject, case, seconds)


_AGAIN: dict[str, Callable[[Subject, Case, float], tuple[Case, Called]]] = {
    "stale-output": _second_in_place,
    "earlier-result-changed": _second_in_place,
    "guard-overwritten": _into_out,
    "output-not-written": _into_out,
    "not-deterministic": _odd_one,
    "graph-replay-stale": _second_of_graph,
    "way-by-size": _on_ways,
    "splits-as-array": _by_array,
}
SECOND_CASE = frozenset({"stale-output", "earlier-result-changed", "graph-replay-stale"})
"""Breaches whose call answers other data than the case's."""
DIFFERENT_BYTES = frozenset({*_AGAIN, *(storage.finding for storage in MOVED)}) - {
    "earlier-result-changed",
    "guard-overwritten",
}
"""Breaches that show as bytes that differ; the call itself names the others."""
