"""A visit to the museum: every exhibit built and judged as `refnum check` judges it, at level `standard`.

Its streams come in the order of a check: the vectors of every variant of the operation, then corners, domains and
samples of one variant after another. A visit ends with the stream in which an answer is wrong. Written down are how
long it took to the first wrong answer, and the bug classes that the report of that variant prints.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ....cases.case import Case
from ....cases.corners import corner_cases
from ....cases.operation import select
from ....mismatches.failures import Presenter
from ....reports.report import Report
from ....subjects.subject import Subject
from ...check.engine import Engine
from ...check.journal import Journal
from ...check.plan import Plan, Progress, Variant, new_tally, variants
from ...check.run import close
from .. import corpus
from ..forked import call_forked
from ..kernels import Kernels
from ..library import Library
from ..verdict import KILLED
from ..workshop import Copy
from .exhibit import Exhibit

SECONDS = 600
SMALL = 1 << 13
"""Elements of the largest corner that whole kernels are asked on the emulated machine, thread by thread."""
LAID = ("quantize_mxfp4", "dequantize_mxfp4")
"""Operations on which storage layouts of scales are looked at."""


@dataclass(frozen=True)
class Caught:
    """An exhibit as it was met. guesses: bug classes as they are printed. built, first, whole: seconds to build it, to
    its first wrong answer, and for its variant with the report."""

    exhibit: Exhibit
    killed: bool
    case: str
    guesses: tuple[str, ...] = ()
    built: float = 0.0
    first: float = 0.0
    whole: float = 0.0

    @property
    def right(self) -> bool:
        """Whether the first printed guess is a class of the bug."""
        if not self.exhibit.classes:
            return "EmulationError" in self.case
        return bool(set(self.exhibit.classes) & set(self.guesses[:1]))

    @property
    def misled(self) -> bool:
        """Whether the first printed guess is no class of the bug."""
        return bool(self.guesses) and not self.right


@dataclass
class _Watched(Engine):
    """Judges as a check does, and notes when the first answer was wrong."""

    wrong_at: list[float] = field(default_factory=list)

    def one(self, subject: Subject, case: Case, golden: dict[str, Any], before: Case | None = None) -> bool | None:
        """Judge, and remember the first wrong answer."""
        held = super().one(subject, case, golden, before)
        tally = self.tallies[subject.name]
        if not self.wrong_at and (tally.failing or tally.faults):
            self.wrong_at.append(time.monotonic())
        return held


def visit(builds: Mapping[str, Library | Kernels], exhibits: Sequence[Exhibit], workers: int = 1) -> Iterator[Caught]:
    """Yield what became of each exhibit, in their order. builds: the workshop of every `build` that exhibits name."""
    _builds.clear()
    _builds.update(builds)
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        yield from pool.map(_met, exhibits)


_builds: dict[str, Library | Kernels] = {}


def _met(exhibit: Exhibit) -> Caught:
    found = call_forked(functools.partial(_visited, exhibit), SECONDS)
    return found if isinstance(found, Caught) else Caught(exhibit, found["status"] == KILLED, found["how"])


def _visited(exhibit: Exhibit) -> Caught:
    workshop, start = _builds[exhibit.build], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refnum-exhibit-") as folder:
        subject = workshop.subject(Copy(exhibit.mutant(workshop.text(exhibit.file)), Path(folder)))
        cases = small_corners if isinstance(workshop, Kernels) else None
        return check(exhibit, subject, cases, time.monotonic() - start)


def small_corners(operation: str, profile: str, params: dict[str, Any]) -> Iterator[Case]:
    """Yield the corner cases that an emulated machine runs in a moment."""
    return (case for case in corner_cases(operation, profile, params) if case.elements <= SMALL)


def check(exhibit: Exhibit, subject: Subject, cases: Callable[..., Iterator[Case]] | None, built: float) -> Caught:
    """Judge a subject on an exhibit's operation, stream by stream, until one fails."""
    layouts = exhibit.operation == corpus.LAYOUTS
    names = LAID if layouts else (exhibit.operation,)
    plan = Plan([subject], select(list(names)), named=frozenset(names), special=layouts, save=False, cases=cases)
    report, start = Report({}), time.monotonic()
    engines = (_watched(plan, item, report) for item in variants(plan) if item.special == layouts)
    for engine, stream in _streams(engines):
        stream()
        tally = engine.tallies[subject.name]
        if not tally.failing and not tally.faults:
            continue
        engine.finish()
        result = close(engine.item, engine.tallies, report, Presenter(plan))[0]
        first = (engine.wrong_at[0] if engine.wrong_at else time.monotonic()) - start
        words = f"{result['variant']}: {result['words']}"
        return Caught(exhibit, True, words[:160], _printed(result), built, first, time.monotonic() - start)
    return Caught(exhibit, False, "", built=built, whole=time.monotonic() - start)


def _watched(plan: Plan, item: Variant, report: Report) -> _Watched:
    tallies = {subject.name: new_tally(plan, subject, item) for subject in item.subjects}
    return _Watched(plan, item, tallies, report, Progress(), Journal(None))


def _streams(engines: Iterable[_Watched]) -> Iterator[tuple[_Watched, Callable[[], None]]]:
    """Yield every stream of a check with its variant's engine, in the order of `check.run.run`."""
    looked = []
    for engine in engines:
        looked.append(engine)
        yield engine, engine.look
    for engine in looked:
        yield engine, engine.corners
        if engine.plan.cases is None:
            yield engine, engine.domains
            yield engine, functools.partial(engine.sampled, engine.plan.seed)


def _printed(result: dict[str, Any]) -> tuple[str, ...]:
    found = (
        entry["id"]
        for failure in result["failures"]
        for entry in failure["bug_classes"]
        if entry["id"] != failure["finding"].upper().replace("-", "_")  # a breach is no guess
    )
    return tuple(dict.fromkeys(found))
