"""Calls that force a code path which a subject takes only for large data, or for splits that are an array.

Launchers choose kernels by size, so small cases never reach the kernels for large data. A subject may say how to force
them (`Subject.forced_paths`); every judged case is then run on each path too. Splits given as an array of the
subject's library, perhaps on its device, must give the same result as a list.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, wraps
from typing import Any

import numpy as np

from ...cases.case import Case
from ...cases.levels import Outcome
from ...cases.operation import OPERATIONS, call_golden
from ...cases.same_bytes import same
from ..arrays import Guarded, to_library, to_numpy
from ..subject import Subject
from .call import POISONS, Called, call_on, has_out, lay_out, raw, where_it_lives

EMPTY = 1023
"""Empty experts put in front of those of a case: the case's first expert is then the last of 1,024 threads."""
LONG = 1024
"""Splits of more experts than this are given as int64, others as int32, so that a probe covers both."""


def has_ways(subject: Subject, operation: str) -> bool:
    """Return whether a subject has forced paths for an operation."""
    return bool(subject.forced_paths.get(operation))


def takes_arrays(subject: Subject, operation: str) -> bool:
    """Whether a subject may be given an operation's splits as an array, beside `out`."""
    row = OPERATIONS[operation]
    return (row.ragged or row.routed) and has_out(subject, operation)


def on_way(subject: Subject, operation: str, way: str) -> Subject:
    """Return the subject with every call of an operation on one of its forced paths.

    The path's context is entered inside the call, so its errors and its time count as the call's.

    Raises:
        KeyError: the subject has no such path.
    """
    enter, function = subject.forced_paths[operation][way], subject.operations[operation]
    if subject.remote is not None:
        return replace(subject, remote=partial(subject.remote, way=way))

    @wraps(function)
    def taking(*arguments: Any, **keywords: Any) -> Any:
        with enter():
            return function(*arguments, **keywords)

    return replace(subject, operations={**subject.operations, operation: taking})


def named(called: Called, way: str) -> Called:
    """Return what came of a call on a way, whose words name it where there is something to say."""
    if called.outcome in (Outcome.PASS, Outcome.UNSUPPORTED):
        return called
    return replace(called, words=f"{called.words}, on the way that larger data takes: {way}")


def in_two_experts(case: Case) -> Case:
    """Return the case of one expert with two, of which the first has half the rows, an even number."""
    rows = case.inputs[OPERATIONS[case.operation].inputs[0]].shape[0]
    splits = [rows // 4 * 2, rows - rows // 4 * 2]
    return case.with_inputs(case.inputs, params={"splits": splits}, label=f"{case.label}, two experts")


def with_empty_experts(case: Case) -> Case:
    """Return the case with many experts without a row in front of its own."""
    splits = [0] * EMPTY + list(case.params["splits"])
    return case.with_inputs(case.inputs, params={"splits": splits}, label=f"{case.label}, {EMPTY} empty experts before")


@where_it_lives
def call_with_array_splits(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with `splits` as an array of the subject's library, into guarded `out`: its rows say how many there are.

    The array lies between guard zones too, and must hold the same splits afterwards.
    """
    given = list(case.params["splits"])
    splits = np.array(given, np.int64 if len(given) > LONG else np.int32)
    held = Guarded(splits, subject.arrays, POISONS[0])
    held.array[...] = to_library(splits, subject.arrays)
    zones = [Guarded(array, subject.arrays, POISONS[0]) for array in call_golden(case)]
    outs = tuple(zone.array for zone in zones)

    def inputs() -> dict[str, object]:
        laid = lay_out(subject, case)
        laid["splits"] = held.array
        return laid

    called = call_on(subject, case, inputs, seconds, out=outs if len(outs) > 1 else outs[0])
    if called.outcome is not Outcome.PASS or called.finding:
        return called
    if not same(raw(to_numpy(held.array)), raw(splits)):
        words = "the call changed its input splits, given as an array"
        return Called(called.results, called.live, Outcome.MISMATCH, words, "input-mutated")
    watched = [("the input splits, an array,", held), *((f"output {n}", zone) for n, zone in enumerate(zones))]
    for what, zone in watched:
        side = zone.trespass()
        if side:
            words = f"memory {side} {what} was written (guard byte no longer 0x{zone.poison:02X})"
            return Called(called.results, called.live, Outcome.MISMATCH, words, "guard-overwritten")
    return Called(tuple(np.array(to_numpy(out), copy=True) for out in outs), outs)
