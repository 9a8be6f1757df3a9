"""Reproduce a contract breach: for each finding, the calls that can trigger it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from refnum.errors import RefnumError

from ..cases.case import Case
from ..cases.findings import Finding, Shown, found_by
from ..cases.levels import Outcome
from ..cases.operation import OPERATIONS, call_golden, run_golden
from ..cases.same_bytes import same
from ..cases.structure.cutting import ANOTHER_VARIANT, BEHIND
from ..cases.structure.turns import another, others_of
from ..subjects.calls.at_once import call_at_once, call_beside, call_on_two_streams
from ..subjects.calls.call import POISONS, Called, call, has_out, into_guarded, other_data
from ..subjects.calls.forced_paths import call_with_array_splits, on_way, takes_arrays
from ..subjects.calls.in_turn import hold_results, replay_in_place
from ..subjects.calls.moved import (
    alike,
    beside_each_other,
    call_on_columns_in_turn,
    call_on_one_array,
    call_on_same_array,
    in_turn_with_each_other,
)
from ..subjects.calls.streams import STREAMED, on_side_stream, under_graph, with_late_splits
from ..subjects.subject import Subject
from .compare import compare
from .elsewhere import MOVED
from .judge import call_behind
from .probes import GRAPH, IN_PLACE, PROBES
from .repeats import REPEATS
from .structural import after_refusals, behind

VARIANTS = 32
"""Calls of other variants behind which a case is called again: each value of a parameter, twice where it may be so."""
NAMED = found_by(Shown.CALL)
"""Breaches that a call itself names, whichever probe makes it: on a way, into `out`, in other storage, the second time.
"""


def again(finding: str) -> Callable[[Subject, Case, float], tuple[Case, Called]]:
    """Return what shows a breach once more, with the case that its call answers; a plain call for other names.

    Where several calls may have made it, they are made in turn up to the first that shows it; else the first is shown.
    """
    if finding in NAMED:
        return lambda subject, case, seconds: _first(finding, _every, subject, case, seconds)
    if finding in _IN_TURN:
        return lambda subject, case, seconds: _first(finding, _IN_TURN[finding], subject, case, seconds)
    for storage in MOVED:
        if finding == storage.finding:
            return lambda subject, case, seconds: (case, storage.call(subject, case, seconds))
    return _SECOND.get(finding, _plain)


def _plain(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    return case, call(subject, case, seconds)


def _first(finding: str, calls: Calls, subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    """Return the first call that has the breach by name, or differs from the golden bytes; else the first of all."""
    golden, first = run_golden(case), None
    for called in calls(subject, case, seconds):
        first = first or called
        if finding in NAMED:
            if called.finding == finding:
                return case, called
        elif called.outcome is Outcome.PASS and compare(case, golden, called.results).level:
            return case, called
    return (case, first) if first else _plain(subject, case, seconds)


def _second_in_place(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    second_case, _, second = replay_in_place(subject, case, seconds)
    return second_case, second


def _held(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    second_case, called = _second_in_place(subject, case, seconds)
    if called.finding != Finding.HELD:
        second_case, _, called = hold_results(subject, case, seconds)
    return second_case, called


def _second_of_graph(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    second_case, _, second = under_graph(subject, case, seconds)
    return second_case, second


def _repeated(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    for _ in range(REPEATS):
        yield call(subject, case, seconds)


def _ways(subject: Subject, operation: str) -> list[Subject]:
    return [on_way(subject, operation, way) for way in subject.forced_paths.get(operation, {})]


def _on_ways(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    for large in _ways(subject, case.operation):
        yield call(large, case, seconds)
        yield from _guarded(large, case, seconds)


def _guarded(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    if has_out(subject, case.operation):
        yield into_guarded(subject, case, call_golden(case), POISONS[0], seconds)


def _into_out(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    for one in (subject, *_ways(subject, case.operation)):
        yield from _guarded(one, case, seconds)


def _by_array(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    if _has_array(subject, case):
        yield call_with_array_splits(subject, case, seconds)


def _late(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    yield on_side_stream(subject, case, seconds)
    if _has_array(subject, case):
        yield with_late_splits(subject, case, seconds)


def _has_array(subject: Subject, case: Case) -> bool:
    return takes_arrays(subject, case.operation) and case.params.get("splits") is not None


def _one_array(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    names = alike(case)
    if beside_each_other(case):
        yield call_on_one_array(subject, case, seconds)
    if len(in_turn_with_each_other(case)) > 1:
        yield call_on_columns_in_turn(subject, case, seconds)
    if all(same(case.inputs[names[0]], case.inputs[name]) for name in names):
        yield call_on_same_array(subject, case, seconds)


def _behind(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    """Call behind all that the parts of a field are called behind, and behind other variants on data of its shapes."""
    for calls in BEHIND:
        for turn in range(VARIANTS if calls == ANOTHER_VARIANT else 1):
            yield behind(subject, case, calls, turn, seconds)
    row = OPERATIONS[case.operation]
    named = {name: level for name, level in case.params.items() if name in {*row.params, *row.layouts}}
    for profile, params in others_of(case.operation, case.profile, named):
        before = other_data(replace(case, profile=profile, params={**case.params, **params}))
        with suppress(RefnumError):  # not every variant takes these inputs
            run_golden(before)
            yield call_behind(subject, before, seconds, case)


def _every(subject: Subject, case: Case, seconds: float) -> Iterator[Called]:
    """Make every call that answers this case and that a probe judges, the last of several too."""
    applies = {probe.name: probe.applies(subject, case.operation) for probe in PROBES}
    yield call(subject, case, seconds)
    yield from _guarded(subject, case, seconds)
    yield from _on_ways(subject, case, seconds)
    yield from _by_array(subject, case, seconds)
    for storage in MOVED:
        if applies[storage.name]:
            yield storage.call(subject, case, seconds)
    if applies[IN_PLACE]:
        yield from _last(replay_in_place(subject, other_data(case), seconds))
    if applies[GRAPH]:
        yield under_graph(subject, case, seconds)[1]
        yield from _last(under_graph(subject, other_data(case), seconds))
    yield from _repeated(subject, case, seconds)


def _last(calls: tuple[Case, Called, Called]) -> Iterator[Called]:
    """Yield the second of two calls, whose data is the other of the first's, if it was made."""
    _, first, second = calls
    if second is not first:
        yield second


Calls = Callable[[Subject, Case, float], Iterator[Called]]
_IN_TURN: dict[str, Calls] = {
    Finding.NOT_WRITTEN: _into_out,
    Finding.OUT_WRONG: _into_out,
    Finding.NOT_DETERMINISTIC: _repeated,
    Finding.WAY_BY_SIZE: _on_ways,
    Finding.SPLITS_AS_ARRAY: _by_array,
    Finding.STREAM: _late,
    Finding.AFTER_REFUSAL: after_refusals,
    Finding.AFTER_ANOTHER: _behind,
    Finding.ONE_ARRAY: _one_array,
}


def _together(subject: Subject, case: Case, seconds: float) -> tuple[Case, Called]:
    for together in (call_at_once, *([call_on_two_streams] if subject.arrays in STREAMED else [])):
        other, first, second = together(subject, case, seconds)
        if first.finding or second.finding:
            return (case, first) if first.finding else (other, second)
    _, first, second = call_beside(subject, case, seconds)
    return (case, first) if first.finding else (another(case, subject.refuses), second)


_SECOND: dict[str, Callable[[Subject, Case, float], tuple[Case, Called]]] = {
    Finding.STALE: _second_in_place,
    Finding.HELD: _held,
    Finding.IN_STORAGE: _second_in_place,
    Finding.GRAPH: _second_of_graph,
    Finding.NOT_THREAD_SAFE: _together,
}
SECOND_CASE = frozenset(_SECOND)
"""Breaches whose call answers other data than the case's."""
DIFFERENT_BYTES = found_by(Shown.BYTES, Shown.LATER_BYTES)
"""Breaches that show as bytes that differ; the call itself names the others."""
