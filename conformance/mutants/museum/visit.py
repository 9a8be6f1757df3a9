"""A visit to the museum: every exhibit built, caught, timed, and its bug class guessed."""

from __future__ import annotations

import functools
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...diagnose import SHOWN, diagnose
from ...operation import as_bits, outputs_of
from .. import corpus
from ..apart import apart
from ..corpus import Question
from ..run import SECONDS, Shop
from .exhibit import Exhibit

SMALL, LONG = 1 << 13, 120
WITNESSES = 12
"""Failing cases that are asked for the bug class."""
LAYOUT_NOTES = {"swizzled": "SWIZZLE_LAYOUT", "packed_ue8m0": "UE8M0_PACK_ORDER"}


@dataclass(frozen=True)
class Caught:
    """An exhibit as it was met. guesses: bug classes as they are printed. built, judged: seconds."""

    exhibit: Exhibit
    killed: bool
    case: str
    guesses: tuple[str, ...]
    built: float
    judged: float

    @property
    def right(self) -> bool:
        """Whether the class of the bug is among the printed guesses."""
        if not self.exhibit.classes:
            return "EmulationError" in self.case
        return bool(set(self.exhibit.classes) & set(self.guesses))


def visit(shop: Shop, exhibits: Sequence[Exhibit]) -> Iterator[Caught]:
    """Build each exhibit and ask it the questions on its operation until enough answers are wrong."""
    for one in exhibits:
        questions: Sequence[Question] = shop.questions(one.operation)
        seconds = SECONDS
        if one.build != "host":  # whole kernels are compiled in the process that asks, and run thread by thread
            questions, seconds = [q for q in questions if q.case.elements <= SMALL], LONG
        with tempfile.TemporaryDirectory(prefix="refnum-exhibit-") as folder:
            start = time.monotonic()
            changed = {one.file: one.mutant(shop.text(one.file)).applied(shop.text(one.file))}
            built = shop.workshop.build(changed, Path(folder), shop.folder)
            between = time.monotonic()
            found = apart(functools.partial(_wrong, built.operations, questions), seconds)
            caught = found if isinstance(found, list) else [(0, None, found["how"])]
            seen = time.monotonic()
            first = "" if not caught else questions[caught[0][0]].label if caught[0][1] else caught[0][2]
            witnesses = [(questions[i], results) for i, results, _ in caught if results is not None]
            yield Caught(one, bool(caught), first, guess(witnesses), between - start, seen - between)


def _wrong(operations: Any, questions: Sequence[Question]) -> list[tuple[int, Any, str]]:
    """Return (number of the question, wrong answer or None, words) of the first failures."""
    found: list[tuple[int, Any, str]] = []
    for i, question in enumerate(questions):
        try:
            with np.errstate(all="ignore"):
                results = corpus.answer(operations[question.case.operation], question)
        except Exception as error:
            return [*found, (i, None, f"{type(error).__name__}: {error}")]
        if corpus.differs(results, question.golden):
            found.append((i, [np.array(array) for array in results if array is not None], ""))
            if len(found) == WITNESSES:
                break
    return found


def guess(witnesses: Sequence[tuple[Question, list[np.ndarray]]]) -> tuple[str, ...]:
    """Return the bug classes that explain the most witnesses, as many as a report prints."""
    votes: Counter[str] = Counter()
    for question, results in witnesses:
        for entry in _explained(question, results):
            votes[entry] += 1
    most = max(votes.values(), default=0)
    return tuple(name for name, count in votes.most_common(SHOWN) if count == most)


def _explained(question: Question, results: list[np.ndarray]) -> list[str]:
    case = question.case
    layout = case.params.get("layout_out") or case.params.get("layout_in")
    if layout in LAYOUT_NOTES and (question.place == "layout"):
        moved = len(results) < 2 or np.array_equal(np.sort(results[1], None), np.sort(question.golden[1], None))
        return [LAYOUT_NOTES[layout]] if moved else []
    names = [output.name for output in outputs_of(case)]
    if len(results) != len(names):
        return []
    golden = {name: as_bits(array) for name, array in zip(names, question.golden, strict=True)}
    observed = {name: as_bits(array) for name, array in zip(names, results, strict=True)}
    return [entry["id"] for entry in diagnose(case, golden, observed)]
