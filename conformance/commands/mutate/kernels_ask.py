"""Ask a subject the extra questions on an operation, then those of `kernel_questions`, until an answer is wrong."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...cases.case import Case
from ...subjects.arrays import to_library, to_numpy
from ...subjects.subject import Subject, declines, takes
from ...verdicts.judge import judge as judge_case
from ...verdicts.probes import probe
from ...verdicts.tally import Tally
from . import corpus, kernel_questions, out_of_range
from .kernel_questions import VariantQuestion
from .verdict import KILLED

SECONDS = 300
"""CPU seconds that a mutant may take for everything; being late is no wrong answer."""


@dataclass(frozen=True)
class Bounds:
    """What whole kernels are asked: under which profiles, and up to how many elements a case.

    patience: CPU seconds for one question, after which a call counts as one that never comes back.
    """

    profiles: tuple[str, ...]
    largest: int
    patience: int


@dataclass(frozen=True)
class ExtraQuestion:
    """A question that is no variant of an operation, and the way on which it is asked."""

    question: corpus.Question
    way: Callable[[], Any]
    probed: bool = False

    @property
    def case(self) -> Case:
        """What is called."""
        return self.question.case

    @property
    def label(self) -> str:
        """What it is, in a line."""
        return self.question.label


AnyQuestion = VariantQuestion | ExtraQuestion
Chosen = Callable[[int, AnyQuestion], bool]


def every(_number: int, _one: AnyQuestion) -> bool:
    """Whether a question is asked: each is."""
    return True


def ask(
    subject: Subject,
    operation: str,
    bounds: Bounds,
    chosen: Chosen = every,
    patient: Callable[[int], None] = lambda _seconds: None,
) -> dict[str, Any]:
    """Judge a subject on an operation as a check does, until something is wrong; return what to say, or nothing.

    chosen: whether a question of a number is asked. patient: called before every question with the CPU seconds that it
    may take. What is said has the question's `number`.
    """  # fmt: skip
    tallies: dict[int, Tally] = {}
    for number, one in enumerate(_questions_on(subject, operation, bounds)):
        if not chosen(number, one):
            continue
        patient(bounds.patience)
        if isinstance(one, VariantQuestion):
            if one.variant not in tallies:
                tallies[one.variant] = Tally(subject.name, *one.key, claimed=0, refusal=subject.refuses(*one.key))
            how = _judged_case(subject, one, tallies[one.variant])
        else:
            with one.way():
                called = corpus.answer(on_numpy(subject, one.case.operation), one.question)
            how = "other bytes" * corpus.differs(called, one.question.golden)
        if how:
            said = {"status": KILLED, "how": how[:200], "operation": operation, "case": one.label[:160]}
            return {**said, "number": number}
    return {}


def _questions_on(subject: Subject, operation: str, bounds: Bounds) -> Iterator[AnyQuestion]:
    """Yield what a subject is asked of an operation: what is no variant, on every way to the result, then variants."""
    ways = (contextlib.nullcontext, *subject.forced_paths.get(operation, {}).values())
    for question, way in itertools.product(extra_questions(operation), ways):
        function = subject.operations[question.case.operation]
        if all(takes(function, name) for name in question.case.inputs):
            yield ExtraQuestion(question, way)
    if operation != corpus.LAYOUTS:
        yield from kernel_questions.questions(operation, bounds.profiles, bounds.largest)


def _judged_case(subject: Subject, one: VariantQuestion, tally: Tally) -> str:
    if not tally.refusal and not declines(subject, one.case):
        (probe if one.probed else judge_case)(subject, one.case, one.golden, tally, SECONDS)
    return _wrong(tally)


def _wrong(tally: Tally) -> str:
    if tally.faults:
        return str(tally.faults[0][1])
    if tally.unsupported:
        return next(iter(tally.unsupported))
    return (tally.failures[0].words or "other bytes") if tally.failures else ""


@functools.cache
def extra_questions(operation: str) -> tuple[corpus.Question, ...]:
    """Return the questions on an operation that belong to no variant: keys, layouts, what the golden model refuses."""
    return (*corpus.extra(operation), *out_of_range.questions(operation))


def on_numpy(subject: Subject, operation: str) -> Any:
    """Return a subject's operation as a function of NumPy arrays."""

    def converted(value: Any) -> Any:
        if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            return tuple(to_library(part.copy(), subject.arrays) for part in value)  # written to
        return to_library(value, subject.arrays) if isinstance(value, np.ndarray) else value

    def call(**arguments: Any) -> tuple[Any, ...]:
        given = {name: converted(value) for name, value in arguments.items()}
        result = subject.operations[operation](**given)
        parts = result if isinstance(result, tuple) else (result,)
        return tuple(None if part is None else to_numpy(part) for part in parts)

    return call
