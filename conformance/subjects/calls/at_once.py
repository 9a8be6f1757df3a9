"""Two calls at once: from two threads that give way to each other after every line, or on two streams of a device."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from refnum.errors import RefnumError

from ...cases.case import Case
from ...cases.findings import Finding
from ...cases.levels import Outcome
from ...cases.operation import golden_like
from ...cases.structure.turns import another
from ..arrays import share_memory, to_numpy
from ..subject import Subject, arguments_for, takes_out
from .call import (
    POISONS,
    Called,
    Laid,
    call,
    filled,
    given_back,
    lay_out,
    on_host,
    other_data,
    where_it_lives,
)
from .forms import Placed, as_out, form_of, out_in_form, scalars_in_form, turned
from .results import made_wrong
from .streams import here, in_turn, wait_for
from .threads import in_a_thread

CROWDS, QUEUED = ((0, 1), (0, 1, 1, 0), (0, 1, 1, 0)), 16
"""Whose data each thread has, round by round (two places to work in, taken in turn, are enough for two threads), and
calls that wait on each of two streams."""
THREADS, STREAMS = "another thread calls", "another stream is busy with a call"
"""What happens at the same time."""
INTERVAL = 1e-5
"""Seconds after which a thread gives way within a line."""
LINES = 1 << 12
"""Lines after which a thread gives way; so many are all of a launcher, and not all of a loop over every element."""

Call = Callable[[], Any]
Rounds = Callable[[Subject, tuple[Case, Case], float], Iterator[list[Any]]]
"""(subject, two cases, time limit) -> results of calls on both at once, or what each raised; so several times."""


@where_it_lives
def call_at_once(subject: Subject, case: Case, seconds: float = 60.0) -> tuple[Case, Called, Called]:
    """Call on a case and on other data of its shapes at the same time, some rounds.

    Returns (other case, call on the case, call on the other): of each the first that differs from a call alone, or the
    last. The calls alone come first; where one of them does not pass, these are returned: where the first does not, it
    is returned for both.
    """
    return _beside(subject, case, other_data(case), seconds)


@where_it_lives
def call_on_two_streams(subject: Subject, case: Case, seconds: float = 60.0) -> tuple[Case, Called, Called]:
    """Call as `call_at_once` does, from one thread on two streams of a device, on each many times in a row."""
    return _beside(subject, case, other_data(case), seconds, _queued, STREAMS)


@where_it_lives
def call_beside(subject: Subject, case: Case, seconds: float = 60.0) -> tuple[Case, Called, Called]:
    """Call as `call_at_once` does, on the case and on one of another variant and shape: `turns.another`."""
    return _beside(subject, case, another(case, subject.refuses), seconds)


def _beside(
    subject: Subject, case: Case, other: Case, seconds: float, rounds: Rounds | None = None, busy: str = THREADS
) -> tuple[Case, Called, Called]:
    """Call on two cases at the same time; see `call_at_once`. busy: what happens at the same time, in words."""
    alone = [_copied(call(subject, one, seconds)) for one in (case, other)]
    failed = [called for called in alone if called.outcome is not Outcome.PASS or called.finding]
    if failed:
        return other, alone[0], alone[0] if failed[0] is alone[0] else alone[1]
    found: list[Called] = list(alone)
    for lives in (rounds or _in_threads)(subject, (case, other), seconds):
        for place, results in enumerate(lives):
            if found[place] is alone[place] and not _same(results, alone[place]):
                found[place] = _different(results, busy)
    return other, found[0], found[1]


def call_from_another_thread(subject: Subject, case: Case, seconds: float) -> None:
    """Call from another thread, on this one's device; what comes of it is looked at elsewhere."""
    with suppress(RefnumError):  # which refuses the call before any line of its own runs
        keywords = scalars_in_form(case, arguments_for(subject, case, lay_out(subject, case)))
        job = here(subject.arrays, partial(subject.operations[case.operation], **keywords))
        in_a_thread(partial(_quietly, job))(seconds)
        wait_for(subject.arrays)


def _quietly(job: Call) -> None:
    with suppress(BaseException):
        job()


@where_it_lives
def call_twice_at_once(subject: Subject, case: Case, seconds: float = 60.0) -> tuple[Case, Called, Called]:
    """Call on a case in its form from two threads that start together; return the case and both calls.

    Results that lie in the same memory are a breach of the second one.
    """
    form, function = form_of(case), subject.operations[case.operation]
    if "out" in form and not takes_out(function, case.operation):
        refused = Called(outcome=Outcome.UNSUPPORTED, words="it takes no 'out'", declared=True)
        return case, refused, refused
    like = golden_like(case) if "out" in form else ()
    places = [out_in_form(case, like, subject.arrays, POISONS[0]) if like else [] for _ in range(2)]
    given = [lay_out(subject, case) for _ in range(2)]
    asked = [scalars_in_form(case, arguments_for(subject, case, laid)) for laid in given]
    more: list[dict[str, Any]] = [{"out": as_out(case, one)} if one else {} for one in places]
    calls = [partial(function, **one, **other) for one, other in zip(asked, more, strict=True)]
    lives = _at_the_same_time(subject, calls, seconds)
    first, second = (_looked_at(case, *one) for one in zip(given, lives, places, strict=True))
    if first.answered and second.answered and not like and _shared(first, second):
        words = "results of two calls at the same time lie in the same memory"
        second = Called(second.results, second.live, Outcome.MISMATCH, words, Finding.NOT_THREAD_SAFE)
    return case, first, second


def _looked_at(case: Case, given: Laid, live: Any, places: list[Placed]) -> Called:
    """Return a call by what came back, or was raised."""
    if isinstance(live, BaseException):
        return _failed(live)
    called = on_host(case, given, live)
    if called.outcome is not Outcome.PASS:
        return called
    if places:
        return filled(called, places)
    finding, words = made_wrong(live, turned(case)) or ("", "")
    return Called(called.results, live, Outcome.MISMATCH, words, finding) if finding else called


def _shared(first: Called, second: Called) -> bool:
    return any(share_memory(one, other) for one in first.live for other in second.live)


def _failed(error: BaseException) -> Called:
    """Return the call that raised an error, or gave no answer in time, beside another."""
    outcome = Outcome.TIMEOUT if isinstance(error, LateError) else Outcome.FAULT
    return Called(outcome=outcome, words=f"{type(error).__name__}: {error} when another thread calls too"[:300])


class LateError(TimeoutError):
    """A call gave no answer in time."""


def _copied(called: Called) -> Called:
    """Return a call with copies of its results: later calls may fill the same buffers, which another probe asks."""
    return replace(called, results=tuple(part.copy() for part in called.results))


def _different(results: Any, busy: str) -> Called:
    words = f"right alone, wrong when {busy} at the same time"
    if isinstance(results, LateError):
        return _failed(results)
    if isinstance(results, BaseException):
        words = f"right alone; {type(results).__name__}: {results} when {busy} at the same time"
        return Called(outcome=Outcome.MISMATCH, words=words[:300], finding=Finding.NOT_THREAD_SAFE)
    return Called(results, results, Outcome.MISMATCH, words, Finding.NOT_THREAD_SAFE)


def _same(results: Any, alone: Called) -> bool:
    if isinstance(results, BaseException) or len(results) != len(alone.results):
        return False
    pairs = zip(results, alone.results, strict=True)
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def _calls(subject: Subject, cases: Sequence[Case]) -> list[Call]:
    """Return a call on each of some cases, on arrays of its own."""
    given = [arguments_for(subject, case, lay_out(subject, case)) for case in cases]
    return [partial(subject.operations[case.operation], **one) for case, one in zip(cases, given, strict=True)]


def _in_threads(subject: Subject, cases: tuple[Case, Case], seconds: float) -> Iterator[list[Any]]:
    """Yield the results of calls that start together and give way to each other, two by two, or what each raised."""
    for crowd in CROWDS:
        calls = _calls(subject, [cases[number] for number in crowd])
        traces = [_giving_way(one.func) for one in calls if isinstance(one, partial)]
        lives = [_on_host(live) for live in _at_the_same_time(subject, calls, seconds, traces)]
        yield lives[:2]
        if len(crowd) > 2:
            yield lives[:1:-1]


def _queued(subject: Subject, cases: tuple[Case, Case], seconds: float) -> Iterator[list[Any]]:
    """Yield the results of calls on two cases that wait in turn on two streams, or what each raised."""
    lives: list[list[Any]] = [[], []]

    def kept(found: list[Any], one: Call) -> None:
        try:
            found.append(given_back(one()))
        except BaseException as error:  # whatever a call raises beside another is what came of it
            found.append(error)

    def every() -> None:
        try:
            queue()
        except BaseException as error:  # of the device, when it is waited for
            lives[:] = [[error], [error]]

    calls = [partial(kept, found, one) for found, one in zip(lives, _calls(subject, cases), strict=True)]
    queue = here(subject.arrays, partial(in_turn, subject.arrays, calls, QUEUED))
    if not in_a_thread(every)(seconds):
        lives = [[LateError(f"no answer within {seconds:g} s")]] * 2
    for pair in zip(*lives, strict=False):
        yield [_on_host(live) for live in pair]


def _on_host(live: Any) -> Any:
    """Return copies of results in NumPy, or the error that stands in their place."""
    return live if isinstance(live, BaseException) else tuple(np.array(to_numpy(part), copy=True) for part in live)


def _at_the_same_time(
    subject: Subject, calls: Sequence[Call], seconds: float, traces: Sequence[Any] = (None, None)
) -> list[Any]:
    """Return the arrays of calls that start together, one a thread on this one's device, or what each raised."""
    barrier = threading.Barrier(len(calls))
    lives: list[Any] = [LateError(f"no answer within {seconds:g} s") for _ in calls]

    def run(place: int) -> None:
        try:
            barrier.wait()
            sys.settrace(traces[place])
            back = calls[place]()
            sys.settrace(None)
            lives[place] = given_back(back)
        except BaseException as error:  # whatever a call raises beside another is what came of it
            sys.settrace(None)
            lives[place] = error

    before, depth = sys.getswitchinterval(), sys.getrecursionlimit()
    sys.setswitchinterval(INTERVAL)
    try:
        for ended in [in_a_thread(here(subject.arrays, partial(run, place))) for place in range(len(calls))]:
            ended(seconds)
        wait_for(subject.arrays)
    finally:
        sys.setswitchinterval(before)
        sys.setrecursionlimit(depth)
    return list(lives)


def _giving_way(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a trace function that lets another thread run at the first `LINES` lines of a function's file."""
    code, left = getattr(inspect.unwrap(function), "__code__", None), LINES

    def give_way(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal left
        if code is None or frame.f_code.co_filename != code.co_filename:
            return None
        if left == 0:
            frame.f_trace = None
            sys.settrace(None)
            return None
        left -= 1
        time.sleep(0)
        return give_way

    return give_way
