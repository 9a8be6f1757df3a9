"""What each frozen vector alone kills: mutants of a library are asked the vectors of operations that they can touch.

Nothing else is asked: what survives here is only what no vector sees. A vector in which a mutant's process dies, or
does not come back, sees it too, and another process goes on with the next one. Asking ends with the second vector that
sees a mutant: then none alone does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ...cases.operation import OPERATIONS
from ...vectors.frozen import frozen_cases
from . import corpus
from .corpus import Question
from .forked import Ended, call_each_forked
from .library import PLAIN, Library, LibrarySources
from .verdict import KILLED
from .workshop import Copy, Known, texts_of

ENOUGH = 2
"""Vectors that see a mutant after which no more are asked."""


@dataclass
class VectorsOnly(Library):
    """A library whose mutants are asked frozen vectors. SECONDS: CPU seconds that a mutant may take for one vector."""

    SECONDS = 5

    @classmethod
    def open(cls, sources: LibrarySources, folder: Path) -> Self:
        """Compile the unchanged sources into a folder, without optimising alone: nothing compares optimised code."""
        return cls(sources.name, texts_of(sources), sources, folder, {}, sources.start(folder, PLAIN))

    def _made(self, operation: str) -> tuple[Question, ...]:
        return vectors_of(operation, self.sources.profiles)

    def judge(self, copy: Copy) -> Known:
        """Ask a copy vectors until ENOUGH of them see it, in one forked process after another."""
        questions = [question for name in copy.changed for question in self.questions(name)]
        seeing, unknown = _seeing(copy, questions, self.SECONDS)
        if unknown or not seeing:
            return {"vectors": -1 if unknown else 0, "how": unknown}
        first, only = seeing[0], seeing[0].label if len(seeing) == 1 else ""
        place = {"operation": first.case.operation, "case": first.label}
        return {"status": KILLED, "vectors": len(seeing), "only": only, **place}

    def settle(self, copy: Copy) -> Known:
        """Add nothing: what no vector sees survives here."""
        return {}


@functools.cache
def vectors_of(operation: str, profiles: tuple[str, ...]) -> tuple[Question, ...]:
    """Return the frozen vectors of an operation under some profiles; none of what is no operation by itself."""
    if operation not in OPERATIONS:
        return ()
    found = (frozen_cases(*variant) for variant in corpus.variants(operation, profiles))
    return tuple(corpus.ask(case, "vector") for cases in found for case, _ in cases)


def _seeing(copy: Copy, questions: Sequence[Question], seconds: int) -> tuple[list[Question], str]:
    """Return the first ENOUGH questions that a mutant answers wrongly or not at all, and why one before was not judged.

    With a question that was not judged nothing is known: a vector might be told to be the only one that is not.
    """
    found: list[Question] = []
    work = functools.partial(corpus.wrong, copy.operations)
    for question, wrong in call_each_forked(work, questions, seconds):
        if isinstance(wrong, Ended) and wrong.status != KILLED:
            return found, wrong.how
        found += [question] if wrong else []
        if len(found) == ENOUGH:
            break
    return found, ""
