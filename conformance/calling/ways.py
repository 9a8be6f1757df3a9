"""Calls that take another way through a subject than the size of a case, or where its splits lie, would choose.

Launchers choose kernels by size, and small cases never reach those for large data. A subject may name such ways
(`Subject.ways`); every call of a judged case is then made on each of them too. And splits that a caller holds as an
array of the subject's library, perhaps on its device, must mean what a list of them means.
"""

from __future__ import annotations

import numpy as np

from ..case import Case
from ..operation import OPERATIONS, call_golden
from ..subject import Subject
from ..verdict import Outcome
from .call import POISONS, Called, call, call_on, has_out, into_guarded, lay_out
from .libraries import Guarded, to_library, to_numpy

EMPTY = 1023
"""Experts without a row that are put in front of a case's: its first is the last of 1,024 threads, the others pass."""
LONG = 1024
"""Splits of more experts are given as int64, others as int32: a probe asks both."""


def has_ways(subject: Subject, operation: str) -> bool:
    """Whether a subject that lives here names other ways to run an operation."""
    return subject.apart is None and bool(subject.ways.get(operation))


def takes_arrays(subject: Subject, operation: str) -> bool:
    """Whether a subject that lives here may be given an operation's splits as an array, beside `out`."""
    return "row_map" in OPERATIONS[operation].inputs and subject.apart is None and has_out(subject, operation)


def call_on_way(subject: Subject, case: Case, way: str, seconds: float = 60.0) -> Called:
    """Call on one of the subject's ways: fresh results first; where those are no breach, into guarded `out`."""
    with subject.ways[case.operation][way]():
        called = call(subject, case, seconds)
        if called.outcome is not Outcome.PASS or not has_out(subject, case.operation):
            return called
        again = into_guarded(subject, case, call_golden(case), POISONS[0], seconds)
    return again if again.finding or again.outcome is not Outcome.PASS else called


def with_empty_experts(case: Case) -> Case:
    """Return the case with many experts without a row in front of its own."""
    splits = [0] * EMPTY + list(case.params["splits"])
    return case.with_inputs(case.inputs, params={"splits": splits}, label=f"{case.label}, {EMPTY} empty experts before")


def call_with_array_splits(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with `splits` as an array of the subject's library, into guarded `out`: its rows say how many there are."""
    given = list(case.params["splits"])
    splits = to_library(np.array(given, np.int64 if len(given) > LONG else np.int32), subject.arrays)
    zones = [Guarded(array, subject.arrays, POISONS[0]) for array in call_golden(case)]
    outs = tuple(zone.array for zone in zones)

    def inputs() -> dict[str, object]:
        laid = lay_out(subject, case)
        laid["splits"] = splits
        return laid

    called = call_on(subject, case, inputs, seconds, out=outs if len(outs) > 1 else outs[0])
    if called.outcome is not Outcome.PASS or called.finding:
        return called
    for number, zone in enumerate(zones):
        side = zone.trespass()
        if side:
            words = f"output {number} was written {side} its bounds (guard byte no longer 0x{zone.poison:02X})"
            return Called(called.results, called.live, Outcome.MISMATCH, words, "guard-overwritten")
    return Called(tuple(np.array(to_numpy(out), copy=True) for out in outs), outs)
