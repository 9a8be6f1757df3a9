"""Judge one recipe in a worker process: on the host, or wholly on the device for a subject whose arrays are there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refnum.errors import RefnumError

from ..cases.case import Case
from ..cases.coverpoints import count
from ..cases.draw import device
from ..cases.levels import Outcome
from ..cases.operation import run_golden
from ..cases.recipes.inputs import expand
from ..cases.recipes.recipe import Recipe
from ..cases.structure.levels import Levels
from ..subjects.arrays import alive, release, to_numpy
from ..subjects.subject import Subject
from .compare import compare
from .device import compare_on_device, device_like, expand_on_device, fetch, judge_on_device, judged_on_device
from .judge import called_with_room, undeclared
from .structural import cases_for, inside, judged
from .tally import Tally

COUNTED = 1 << 17
"""Elements of the largest case in which coverpoints are counted: larger ones hit no others and cost too much."""

RESERVED = 160
"""Bytes of device memory taken beforehand for each element of the largest case."""
ONE_IN = 4
"""Of the cases judged on a device one in so many is fetched and its coverpoints counted on the host."""


@dataclass
class Seen:
    """The judgement of one case.

    outcome: pass, mismatch, unsupported, or how the call failed. level: of agreement, as in `Comparison`.
    finding: a breach of the calling contract by name, or `golden` when the model itself refused the case.
    points: coverpoints hit, with counts. print: a fingerprint of all golden bytes. elements: size of the case.
    dead: whether the device has stopped answering. undeclared: whether it was a plain call, refused by a line of the
    subject's own that nothing declares, as `Tally.undeclared` counts them.
    """

    outcome: Outcome = Outcome.PASS
    level: int = 0
    compared: int = 0
    finding: str = ""
    words: str = ""
    points: dict[str, int] = field(default_factory=dict)
    classes: dict[str, list[int]] = field(default_factory=dict)
    print: int = 0
    elements: int = 0
    dead: bool = False
    undeclared: bool = False


MODEL_ERRORS = (RefnumError, ArithmeticError, LookupError, TypeError, ValueError)
"""Errors by which the golden model, or the expansion of a recipe, fails on a case."""


def case_for(subject: Subject, recipe: Recipe | Levels) -> Case:
    """Return the case that a subject is called on first: what lies outside of its contract of inputs is replaced."""
    return next(cases_for(subject, recipe)) if isinstance(recipe, Levels) else inside(subject, expand(recipe))


class RecipeJudge:
    """Judges recipes for one subject: expansion, golden model, call, comparison, coverpoints."""

    def __init__(self, subject: Subject, seconds: float, elements: int = 0) -> None:
        self.subject, self.seconds, self.elements = subject, seconds, elements
        self.like: Any = None

    def judge(self, recipe: Recipe | Levels, number: int = 0) -> Seen:
        """Return the judgement of one recipe, or of one row of levels; nothing that a subject raises gets out.

        Args:
            recipe: expanded here, on the device where the subject is judged there; levels always on the host.
            number: position of the case in its shard.
        """
        if isinstance(recipe, Levels):
            seen = self._structural(recipe)
        else:
            on_device = judged_on_device(self.subject, recipe.operation)
            seen = self._on_device(recipe, number) if on_device else self._on_host(recipe)
        if seen.outcome not in (Outcome.PASS, Outcome.MISMATCH, Outcome.UNSUPPORTED, Outcome.NOT_RUN):
            seen.dead = self.subject.remote is None and not alive(self.subject.arrays)
        return seen

    def _structural(self, levels: Levels) -> Seen:
        """Judge a structural case in its form; where that is refused, in a plain call."""
        seen = Seen(Outcome.UNSUPPORTED, words="it names no keyword for this case")
        for case in cases_for(self.subject, levels):
            try:
                golden = run_golden(case)
            except MODEL_ERRORS as error:
                return refused(error, case.elements)
            seen = seen_in(judged(self.subject, case, golden, levels.calls, self.seconds), case, fingerprint(golden))
            if seen.outcome is not Outcome.UNSUPPORTED:
                break
        return seen

    def _on_host(self, recipe: Recipe) -> Seen:
        case = case_for(self.subject, recipe)
        try:
            golden = run_golden(case)
        except MODEL_ERRORS as error:
            return refused(error, case.elements)
        called = called_with_room(self.subject, case, self.seconds)
        seen = Seen(called.outcome, finding=called.finding, words=called.words, elements=case.elements,
                    print=fingerprint(golden), undeclared=undeclared(called))  # fmt: skip
        if not called.answered:
            return seen
        verdict = compare(case, golden, called.results)
        seen.level, seen.compared, seen.classes = verdict.level, verdict.compared, verdict.classes
        if verdict.problem and not seen.finding:
            seen.finding, seen.words = verdict.problem.finding, verdict.problem.words
        if seen.finding or seen.level > self.subject.claimed_level(recipe.operation):
            seen.outcome = Outcome.MISMATCH
            seen.words = seen.words or compare_on_device(golden, verdict.observed).words
        if case.elements <= COUNTED:
            seen.points = points(case, golden)
        return seen

    def _on_device(self, recipe: Recipe, number: int) -> Seen:
        """Judge on the device: only counters come back, and every fourth small case for its coverpoints."""
        if self.like is None:
            self.like = device_like()
            reserve(self.elements)
        try:
            case = expand_on_device(recipe, self.like)
            golden = run_golden(case)
            mark = fingerprint(golden)
        except MODEL_ERRORS as error:
            return refused(error, 0)
        except MemoryError:
            release("cupy")  # what is unused lies in pieces of other sizes
            return Seen(
                Outcome.UNSUPPORTED, words=f"the device has no room for {recipe.shape} of {recipe.distribution}"
            )
        judged = judge_on_device(self.subject, case, golden, self.seconds)
        seen = Seen(judged.outcome, compared=judged.compared, finding=judged.finding, words=judged.words,
                    print=mark, elements=case.elements, undeclared=undeclared(judged))  # fmt: skip
        if judged.outcome in (Outcome.PASS, Outcome.MISMATCH):
            seen.level = int(bool(judged.wrong))  # the device tells only that bytes differ; the host tells the level
            if case.elements <= COUNTED and number % ONE_IN == 0:
                seen.points = points(fetch(case), {name: to_numpy(array) for name, array in golden.items()})
        return seen


@functools.cache
def reserve(elements: int) -> int:
    """Take memory for the largest case at once and return how much; the pool then cuts all arrays out of it.

    Every case has other sizes; asking the driver for each of them costs more than judging it.
    """
    import cupy

    free = int(cupy.cuda.runtime.memGetInfo()[0])
    size = min(elements * RESERVED, free * 2 // 5)  # two processes may share a device
    with contextlib.suppress(MemoryError):  # another process may have taken it meanwhile
        cupy.empty(size, cupy.uint8)  # given back to the pool as it is, and kept there
    return size


def points(case: Case, golden: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the coverpoints that a case hits, with how often."""
    return {name: times for name, times in count(case, golden).items() if times}


def seen_in(tally: Tally, case: Case, mark: int) -> Seen:
    """Return the judgement that a tally of one structural case holds: its first breach, fault or wrong bytes."""
    seen = Seen(compared=tally.compared, elements=case.elements, print=mark, classes=tally.classes)
    failed = [one for one in tally.failures if one.finding or one.level > tally.claimed]
    if failed:
        first = failed[0]
        seen.outcome, seen.level, seen.words = Outcome.MISMATCH, first.level, first.words or "bytes differ"
        seen.finding = first.finding
    elif tally.faults:
        seen.outcome, seen.words, _ = tally.faults[0]
    elif not tally.calls:
        seen.outcome, seen.words = Outcome.UNSUPPORTED, next(iter(tally.unsupported), "it was not compared")
        seen.undeclared = bool(tally.undeclared)
    return seen


def refused(error: Exception, elements: int) -> Seen:
    """Return the record of a case that the golden model cannot take: the harness's fault, never the subject's."""
    return Seen(Outcome.NOT_RUN, finding="golden", words=f"{type(error).__name__}: {error}"[:300], elements=elements)


def fingerprint(arrays: Mapping[str, Any]) -> int:
    """Return a 64-bit number that any one changed element changes: sums weighted by odd numbers, on any library."""
    total = 0
    for array in arrays.values():
        flat = array.reshape(-1)
        part = device.weighted_sum(flat) if device.serves(flat) else _weighted_sum(flat)
        total = (total * 1_000_003 + part) % (1 << 64)
    return total


def _weighted_sum(flat: Any) -> int:
    weights = np.arange(flat.size, dtype=np.uint32, like=flat) * np.uint32(2) + np.uint32(1)
    return int((flat.astype(np.uint32) * weights).sum(dtype=np.uint64))
