"""The exam: mutants of an operation judged as `refnum check` judges a subject, many of them in one pass.

They are the subjects of one plan, so that the golden model runs once a case for all of them, and a mutant is left
alone from its first wrong answer on. A right kernel is judged beside them: whoever fails it fails the exam.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import refnum
from refnum.errors import ArgumentError

from ....cases.case import Case
from ....cases.levels import Outcome
from ....cases.operation import OPERATIONS, select
from ....reports.report import Report
from ....subjects.choose import resolve
from ....subjects.subject import Subject
from ....verdicts.tally import Tally
from ...check.engine import Engine
from ...check.journal import Journal
from ...check.plan import Plan, Progress, Variant, new_tally, variants
from .base import memorised
from .draw import Mutant, mutants
from .kernel import kernel
from .witness import PROFILES, STOCHASTIC

RIGHT = "right"
MODEL = "model"
SECONDS, EXAMPLES = 60.0, 25


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: its id, classes of conditions, words and a call that shows it.

    how: the variant and the words that told it to be wrong, empty for a survivor.
    """

    operation: str
    id: str
    conditions: tuple[str, ...]
    effect: str
    words: str
    shown: str
    how: str

    @property
    def killed(self) -> bool:
        """Whether it was told to be wrong."""
        return bool(self.how)


@dataclass(frozen=True)
class Marked:
    """Verdicts on mutants of one operation. discarded: draws that no call was found for, by class. seconds: of CPU."""

    operation: str
    verdicts: tuple[Verdict, ...]
    discarded: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class Exam:
    """What is asked: so many mutants of some operations, by each of some seeds. subject: whose kernels are made wrong.

    largest: elements of the largest case that they are judged on, None for every case; for kernels that are slow.
    """

    operations: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    count: int = 100
    level: str = "standard"
    subject: str = MODEL
    workers: int = 2
    largest: int | None = None


@dataclass
class _Quick(Engine):
    """An engine that leaves a subject alone once it was wrong, and the right one once it is the last."""

    dead: set[str] = field(default_factory=set)
    largest: int | None = None

    def active(self) -> list[Subject]:
        """Return the subjects that were right so far; nobody once the right kernel is the last."""
        left = [one for one in super().active() if one.name not in self.dead]
        self.dead.update(one.name for one in left if self.tallies[one.name].wrong)
        left = [one for one in left if one.name not in self.dead]
        return left if any(one.name != RIGHT for one in left) else []

    def golden(self, case: Case) -> dict[str, Any] | None:
        """Return the model's outputs, None for a case that is larger than what is asked."""
        return None if self.largest is not None and case.elements > self.largest else super().golden(case)

    def finish(self) -> None:
        """Write nothing down of what a subject was not asked: it was left alone on purpose."""


def judge(exam: Exam, operation: str, asked: Sequence[Mutant]) -> tuple[Verdict, ...]:
    """Return the verdicts on mutants of an operation; ArgumentError where the right kernel fails."""
    base = base_of(exam.subject, operation)
    subjects = [_subject(one.id, operation, kernel(operation, base, one.trigger)) for one in asked]
    subjects.append(_subject(RIGHT, operation, kernel(operation, base, None)))
    told = _told(exam, operation, subjects)
    if RIGHT in told:
        raise ArgumentError(f"The base kernel of {operation} is wrong itself: {told[RIGHT]}.")
    return tuple(Verdict(operation, one.id, one.kinds, one.trigger.effect.name, one.words, one.shown,
                         told.get(one.id, "")) for one in asked)  # fmt: skip


def base_of(subject: str, operation: str) -> Callable[..., Any]:
    """Return the right kernel that triggers are put around: the model's, remembered, or a subject's."""
    if subject == MODEL:
        return memorised(getattr(refnum, operation))
    found = [one for one in resolve(subject) if operation in one.operations]
    if len(found) != 1 or found[0].arrays != "numpy":
        raise ArgumentError(f"--subject {subject} must be one subject on NumPy arrays that has {operation}.")
    return memorised(found[0].operations[operation])


def _subject(name: str, operation: str, run: Callable[..., Any]) -> Subject:
    profiles = (*PROFILES, STOCHASTIC) if OPERATIONS[operation].keyed else PROFILES
    return Subject(name, {operation: run}, profiles=profiles)


def _told(exam: Exam, operation: str, subjects: list[Subject]) -> dict[str, str]:
    """Return subject -> how it was told to be wrong, for each that was."""
    plan = Plan(subjects, select([operation]), level=exam.level, examples=EXAMPLES, seconds=SECONDS, save=False,
                named=frozenset([operation]), special=True)  # fmt: skip
    report, dead = Report({}), set[str]()
    engines = [_engine(plan, item, report, dead, exam.largest) for item in variants(plan)]
    told: dict[str, str] = {}
    for engine in engines:
        engine.look()
        told |= _told_by(engine)
    for engine in engines:
        engine.rest()
        told |= _told_by(engine)
    for engine in engines:
        told = {**_not_verified(engine, told), **told}
    if report.harness:
        raise ArgumentError(f"The harness is wrong: {report.harness[0]}.")
    return told


def _told_by(engine: _Quick) -> dict[str, str]:
    """Return subject -> words, of those that a variant shows to be wrong."""
    wrong = {name: tally for name, tally in engine.tallies.items() if tally.wrong}
    engine.dead.update(wrong)
    return {name: f"{engine.name}: {_words(tally)}"[:300] for name, tally in wrong.items()}


def _words(tally: Tally) -> str:
    if tally.failures:
        return f"{tally.failures[0].finding or 'other bytes'}, {tally.failures[0].case.label}"
    tally.close()
    return tally.words


def _not_verified(engine: _Quick, told: Mapping[str, str]) -> dict[str, str]:
    """Return subject -> words, of mutants that no answer shows to be wrong, but that are not verified as a whole.

    One that refuses a form of the call is verified within its contract only, and the report names the form.
    """
    found = {}
    for name, tally in engine.tallies.items():
        if name in told or name == RIGHT or tally.refusal:
            continue
        if tally.close() is not Outcome.PASS:
            found[name] = f"{engine.name}: {tally.outcome}, {tally.words}"[:300]
        elif tally.coverage.forms:
            found[name] = f"{engine.name}: within its contract, which refuses {next(iter(tally.coverage.forms))}"
    return found


def _engine(plan: Plan, item: Variant, report: Report, dead: set[str], largest: int | None) -> _Quick:
    tallies = {subject.name: new_tally(plan, subject, item) for subject in item.subjects}
    return _Quick(plan, item, tallies, report, Progress(), Journal(None), dead=dead, largest=largest)


def sit(exam: Exam) -> Iterator[Marked]:
    """Yield the verdicts of an exam, operation by operation, those of each from as many processes as there are."""
    jobs = [(exam, name, part) for name in exam.operations for part in range(parts(exam))]
    if exam.workers == 1:
        yield from itertools.starmap(_share, jobs)
        return
    with ProcessPoolExecutor(exam.workers, mp_context=get_context("fork")) as pool:
        yield from pool.map(_share, *zip(*jobs, strict=True))


def parts(exam: Exam) -> int:
    """Return the parts of each operation's mutants: as few as give every process work."""
    return max(1, -(-exam.workers // len(exam.operations)))


def _share(exam: Exam, operation: str, part: int) -> Marked:
    """Draw the mutants of an operation and judge those of one part."""
    discarded = Counter[str]()
    every = [one for seed in exam.seeds for one in mutants(operation, seed, exam.count, discarded)]
    asked = every[part :: parts(exam)]
    return judged(exam, operation, asked, {} if part else discarded)


def judged(exam: Exam, operation: str, asked: Sequence[Mutant], discarded: Mapping[str, int]) -> Marked:
    """Return the verdicts on some mutants of an operation."""
    start = time.process_time()
    return Marked(operation, judge(exam, operation, asked), dict(discarded), time.process_time() - start)
