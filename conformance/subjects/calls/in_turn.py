"""Calls that follow each other: on new data in the storage of the first, and with the results of the first held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...cases.case import Case
from ...cases.findings import Finding
from ...cases.layouts import stored_inputs
from ...cases.levels import Outcome
from ...cases.same_bytes import same
from ..arrays import overwrite, to_numpy
from ..subject import Subject
from .call import Called, call_on, lay_out, other_data, raw, where_it_lives

CALLS_KEPT = 10
"""Calls of which the first one's results are held: buffers that a subject hands out in turn come round."""


@where_it_lives
def replay_in_place(subject: Subject, case: Case, seconds: float = 60.0) -> tuple[Case, Called, Called]:
    """Call twice with the same storage and new data in between.

    Returns (second case, first call, second call). A first result that changed during the second call is a
    breach, and so is a second call that is refused though the same data elsewhere is answered; whether the second
    result is right is for the caller to judge against the golden model.
    """
    storage: dict[str, Any] = {}

    def first_data() -> Mapping[str, Any]:
        storage.update(lay_out(subject, case))
        return storage

    def second_data() -> Mapping[str, Any]:
        for name, data in stored_inputs(second_case).items():
            overwrite(storage[name], data, subject.arrays)
        return storage

    first = call_on(subject, case, first_data, seconds)
    if first.outcome is not Outcome.PASS:
        return case, first, first
    kept = [np.array(result, copy=True) for result in first.results]
    second_case = other_data(case)
    second = call_on(subject, second_case, second_data, seconds)
    if second.outcome is Outcome.UNSUPPORTED and not second.no_room:
        fresh = call_on(subject, second_case, lambda: lay_out(subject, second_case), seconds)
        if fresh.outcome is Outcome.PASS:
            words = f"new data in the storage of an earlier call is refused, elsewhere it is answered: {second.words}"
            second = Called(fresh.results, fresh.live, Outcome.MISMATCH, words, "refused-in-place")
    words = "when the second call ran: the subject hands out its own buffer"
    return second_case, first, _kept_results(kept, first, second, words)


@where_it_lives
def hold_results(subject: Subject, case: Case, seconds: float = 60.0) -> tuple[Case, Called, Called]:
    """Call on a case, then again and again on other data, each in storage of its own, and hold the first results.

    Returns (other case, first call, last call). A first result that changed is a breach of the last call, and so are
    other bytes of a further call than of the one before it.
    """
    first = call_on(subject, case, lambda: lay_out(subject, case), seconds)
    if first.outcome is not Outcome.PASS:
        return case, first, first
    kept = [np.array(result, copy=True) for result in first.results]
    other, last, before = other_data(case), first, list[np.ndarray]()
    alike = True
    for _ in range(CALLS_KEPT - 1):
        last = call_on(subject, other, lambda: lay_out(subject, other), seconds)
        if last.outcome is not Outcome.PASS:
            return other, first, last
        alike &= not before or all(map(same, map(raw, before), map(raw, last.results)))
        before = [np.array(result, copy=True) for result in last.results]
    words = f"during {CALLS_KEPT - 1} further calls: the subject hands out its own buffers in turn"
    found = _kept_results(kept, first, last, words)
    if alike or found.finding:
        return other, first, found
    words = f"{CALLS_KEPT - 1} calls on the same inputs, made while the results of another are held, do not agree"
    return other, first, Called(last.results, last.live, Outcome.MISMATCH, words, Finding.NOT_DETERMINISTIC)


def _kept_results(kept: list[np.ndarray], first: Called, later: Called, when: str) -> Called:
    """Return the later call, as a breach if results of the first are no longer what was `kept` of them."""
    if later.outcome is not Outcome.PASS:
        return later
    for number, (before, now) in enumerate(zip(kept, first.live, strict=True)):
        if not same(raw(before), raw(to_numpy(now))):
            words = f"result {number} of the first call changed {when}"
            return Called(later.results, later.live, Outcome.MISMATCH, words, Finding.HELD)
    return later
