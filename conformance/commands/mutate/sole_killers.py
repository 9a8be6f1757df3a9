"""What each frozen vector alone kills: mutants of a build are asked the vectors of operations that they can touch.

Nothing else is asked: what survives here is only what no vector sees. A vector in which a mutant's process dies, or
does not come back, sees it too, and another process goes on with the next one. Asking ends with the second vector that
sees a mutant: then none alone does.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ...cases.operation import OPERATIONS
from ...vectors.frozen import frozen_cases
from . import corpus
from .corpus import Question
from .forked import OUR_FAULT, Ended, each_apart
from .operators import Mutant
from .run import PLAIN, Workshop, build, mutants
from .verdict import KILLED, SURVIVED, Verdict

SECONDS = 5
"""CPU seconds that a mutant may take for one vector."""
ENOUGH = 2
"""Vectors that see a mutant after which no more are asked."""


@dataclass
class Shop:
    """A workshop whose sources were compiled as they are, without optimising: where, and the digests of that code."""

    workshop: Workshop
    folder: Path
    plain: dict[str, str]
    texts: dict[str, str]
    vectors: dict[str, tuple[Question, ...]] = field(default_factory=dict)

    @classmethod
    def open(cls, workshop: Workshop, folder: Path) -> Shop:
        """Compile the sources as they are into a folder, and load the vectors."""
        texts = {file: (workshop.root / file).read_text() for file in workshop.files}
        plain = workshop.start(folder, PLAIN)
        return cls(workshop, folder, plain, texts, {name: vectors_of(name, workshop.profiles) for name in plain})

    def mutants(self) -> list[Mutant]:
        """Return every mutant of the operators, but those of text that is compiled for a device alone."""
        return mutants(self.texts)


@functools.cache
def vectors_of(operation: str, profiles: tuple[str, ...]) -> tuple[Question, ...]:
    """Return the frozen vectors of an operation under some profiles; none of what is no operation by itself."""
    if operation not in OPERATIONS:
        return ()
    found = (frozen_cases(*variant) for variant in corpus.variants(operation, profiles))
    return tuple(corpus.ask(case, "vector") for cases in found for case, _ in cases)


def judge(shop: Shop, mutant: Mutant) -> Verdict:
    """Build a mutant and ask it vectors until ENOUGH of them see it."""
    folder = Path(tempfile.mkdtemp(prefix="refnum-alone-"))
    try:
        changed = {mutant.file: mutant.applied(shop.texts[mutant.file])}
        verdict, operations = build(shop, mutant, changed, folder)
        if verdict.status != SURVIVED:
            return verdict
        start = time.monotonic()
        questions = [question for name in verdict.changed for question in shop.vectors[name]]
        seeing, unknown = _seeing(operations, questions)
        verdict = replace(verdict, vectors=-1 if unknown else len(seeing), judged=time.monotonic() - start)
        if unknown or not seeing:
            return replace(verdict, how=unknown)
        first, only = seeing[0], seeing[0].label if len(seeing) == 1 else ""
        return replace(verdict, status=KILLED, operation=first.case.operation, case=first.label, only=only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _seeing(operations: Any, questions: Sequence[Question]) -> tuple[list[Question], str]:
    """Return the first ENOUGH questions that a mutant answers wrongly or not at all, and why one before was not judged.

    With a question that was not judged nothing is known: a vector might be told to be the only one that is not.
    """
    found: list[Question] = []
    for question, wrong in each_apart(functools.partial(_wrong, operations), questions, SECONDS):
        if isinstance(wrong, Ended) and wrong.status != KILLED:
            return found, wrong.how
        found += [question] if wrong else []
        if len(found) == ENOUGH:
            break
    return found, ""


def _wrong(operations: Any, question: Question) -> bool:
    try:
        with np.errstate(all="ignore"):
            results = corpus.answer(operations[question.case.operation], question)
    except OUR_FAULT:
        raise
    except Exception:  # a right answer is an answer
        return True
    return corpus.differs(results, question.golden)


_shop: list[Shop] = []


def _judge_here(mutant: Mutant) -> Verdict:
    return judge(_shop[0], mutant)


def run(shop: Shop, chosen: Sequence[Mutant], workers: int) -> Iterator[Verdict]:
    """Yield the verdict of every mutant, in their order."""
    _shop[:] = [shop]
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        yield from pool.map(_judge_here, chosen)
