"""Calls that take another way through a subject than the size of a case, or where its splits lie, would choose.

Launchers choose kernels by size, and small cases never reach those for large data. A subject may name such ways
(`Subject.ways`); every call of a judged case is then made on each of them too. And splits that a caller holds as an
array of the subject's library, perhaps on its device, must mean what a list of them means.
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
"""Experts without a row that are put in front of a case's: its first is the last of 1,024 threads, the others pass."""
LONG = 1024
"""Splits of more experts are given as int64, others as int32: a probe asks both."""


def has_ways(subject: Subject, operation: str) -> bool:
    """Whether a subject names other ways to run an operation."""
    return bool(subject.ways.get(operation))


def takes_arrays(subject: Subject, operation: str) -> bool:
    """Whether a subject may be given an operation's splits as an array, beside `out`."""
    return "row_map" in OPERATIONS[operation].inputs and has_out(subject, operation)


def on_way(subject: Subject, operation: str, way: str) -> Subject:
    """Return the subject whose every call of an operation takes one of its ways; KeyError for one that it has not.

    The way is entered within the call, so that its errors and its time are the call's.
    """
    enter, function = subject.ways[operation][way], subject.operations[operation]
    if subject.apart is not None:
        return replace(subject, apart=partial(subject.apart, way=way))

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
