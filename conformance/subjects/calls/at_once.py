"""Two calls at once, from two threads that give way to each other after every line."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...cases.case import Case
from ...cases.findings import Finding
from ...cases.levels import Outcome
from ..arrays import to_numpy
from ..subject import Subject, arguments_for
from .call import Called, call, lay_out, other_data, where_it_lives

ROUNDS = 3
"""Times that both threads call, each on its own data."""
INTERVAL = 1e-5
"""Seconds after which a thread gives way within a line."""
LINES = 1 << 12
"""Lines after which a thread gives way; so many are all of a launcher, and not all of a loop over every element."""


@where_it_lives
def call_at_once(subject: Subject, case: Case, seconds: float = 60.0) -> tuple[Case, Called, Called]:
    """Call on a case and on other data of its shapes at the same time, some rounds.

    Returns (other case, call on the case, call on the other): of each the first that differs from a call alone, or the
    last. The calls alone come first; where one of them does not pass, it is returned for both.
    """
    other = other_data(case)
    alone = [call(subject, one, seconds) for one in (case, other)]
    for called in alone:
        if called.outcome is not Outcome.PASS or called.finding:
            return other, called, called
    found: list[Called] = list(alone)
    for _ in range(ROUNDS):
        for place, results in enumerate(_together(subject, (case, other), seconds)):
            if found[place] is alone[place] and not _same(results, alone[place]):
                found[place] = _different(results)
    return other, found[0], found[1]


def _different(results: Any) -> Called:
    words = "right alone, wrong when another thread calls at the same time"
    if isinstance(results, BaseException):
        words = f"right alone; {type(results).__name__}: {results} when another thread calls at the same time"
        return Called(outcome=Outcome.MISMATCH, words=words[:300], finding=Finding.NOT_THREAD_SAFE)
    return Called(results, results, Outcome.MISMATCH, words, Finding.NOT_THREAD_SAFE)


def _same(results: Any, alone: Called) -> bool:
    if isinstance(results, BaseException) or len(results) != len(alone.results):
        return False
    pairs = zip(results, alone.results, strict=True)
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def _together(subject: Subject, cases: tuple[Case, Case], seconds: float) -> list[Any]:
    """Return the results of two calls that start together, or what each raised."""
    barrier = threading.Barrier(len(cases))
    results: list[Any] = [TimeoutError(f"no answer within {seconds:g} s")] * len(cases)

    def run(place: int, arguments: dict[str, Any]) -> None:
        try:
            barrier.wait()
            sys.settrace(traces[place])
            back = subject.operations[cases[place].operation](**arguments)
            sys.settrace(None)
            parts = back if isinstance(back, tuple | list) else (back,)
            results[place] = tuple(np.array(to_numpy(part), copy=True) for part in parts if part is not None)
        except BaseException as error:  # whatever a call raises beside another is what came of it
            sys.settrace(None)
            results[place] = error

    traces = [_giving_way(subject.operations[case.operation]) for case in cases]
    given = [arguments_for(subject, case, lay_out(subject, case)) for case in cases]
    threads = [threading.Thread(target=run, args=(place, one), daemon=True) for place, one in enumerate(given)]
    before, depth = sys.getswitchinterval(), sys.getrecursionlimit()
    sys.setswitchinterval(INTERVAL)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds or None)
    finally:
        sys.setswitchinterval(before)
        sys.setrecursionlimit(depth)
    return results


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
