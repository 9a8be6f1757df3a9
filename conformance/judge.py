"""Judge one subject on one case, and on the calling contract: the smallest step of a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .call import POISONS, Called, call, call_with_gaps, has_out, into_guarded, replay_in_place
from .case import Case
from .compare import Comparison, compare
from .operation import call_golden, run_golden
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
        return None
    if called.outcome is not Outcome.PASS and not called.finding:
        tally.faults.append((called.outcome, called.words, case))
        return None
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
        finding = "wrong-shape-or-dtype" if comparison.problem else ""
        tally.fail(Failure(case, comparison.level, comparison.problem, finding, comparison.observed))


def probe(subject: Subject, case: Case, golden: Mapping[str, np.ndarray], tally: Tally, seconds: float) -> None:
    """Check the calling contract: same storage with new data, and writes into `out=` where the subject has it."""
    second_case, first, second = replay_in_place(subject, case, seconds)
    if first is second:  # the first call already failed; there is no second one
        record(first, case, golden, tally)
        return
    right = record(first, case, golden, tally) and compare(case, golden, first.results).level == 0
    held = record(second, second_case, run_golden(second_case), tally)
    if right and held is False and not second.finding and _same(second, first):
        tally.fail(
            Failure(
                second_case,
                NO_LEVEL,
                "the second call, with new data in the same storage, gave the "
                "first call's result again: results are cached by address",
                "stale-output",
            )
        )
    if subject.arrays in ("numpy", "cupy"):
        _probe_strides(subject, case, golden, tally, seconds)
    if has_out(subject, case.operation):
        _probe_out(subject, case, golden, tally, seconds)


def _probe_strides(
    subject: Subject, case: Case, golden: Mapping[str, np.ndarray], tally: Tally, seconds: float
) -> None:
    """Hand over views with gaps: they must be read as views, or be refused; reading the gaps is a breach."""
    called = call_with_gaps(subject, case, seconds)
    if called.outcome is not Outcome.PASS and not called.finding:
        tally.strides_refused = called.words
        return
    if (
        record(called, case, golden, tally) is False
        and not called.finding
        and compare(case, golden, call(subject, case, seconds).results).level == 0
    ):
        tally.fail(
            Failure(
                case,
                NO_LEVEL,
                "right on contiguous inputs, wrong on the same inputs with gaps between "
                "the elements: strides are ignored",
                "strides-ignored",
            )
        )


def _same(one: Called, other: Called) -> bool:
    pairs = zip(one.results, other.results, strict=False)
    return len(one.results) == len(other.results) and all(np.array_equal(a, b) for a, b in pairs)


def _probe_out(subject: Subject, case: Case, golden: Mapping[str, np.ndarray], tally: Tally, seconds: float) -> None:
    like = call_golden(case)
    for poison in POISONS:
        called = into_guarded(subject, case, like, poison, seconds)
        held = record(called, case, golden, tally)
        if held is False and called.outcome is Outcome.PASS and _holds_poison(called, golden, poison):
            tally.fail(
                Failure(
                    case,
                    NO_LEVEL,
                    f"bytes of `out` still hold the poison 0x{poison:02X}: they were never written",
                    "output-not-written",
                )
            )


def _holds_poison(called: Called, golden: Mapping[str, np.ndarray], poison: int) -> bool:
    for result, want in zip(called.results, golden.values(), strict=False):
        if result.nbytes == want.nbytes:
            got, right = result.reshape(-1).view(np.uint8), np.ascontiguousarray(want).reshape(-1).view(np.uint8)
            if ((got == poison) & (right != poison)).any():
                return True
    return False
