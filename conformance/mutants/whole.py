"""Mutants of whole kernels, judged as `refnum check` judges a subject: cases and the calling contract's probes.

A kernel is built from a changed folder of sources; what of it keeps its machine code is not asked. Frozen vectors and
corners come small ones first; the first corners are called with gaps, at odd addresses, into guarded outputs, on a side
stream and under a graph as well.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..calling.probes import probe
from ..case import Case
from ..corners import corner_cases
from ..engine import PROBES
from ..frozen import frozen_cases
from ..judge import judge as judge_case
from ..operation import run_golden
from ..recipes import sampled_cases
from ..subject import Subject
from ..tally import Tally
from . import corpus
from .apart import LATE, apart
from .ledger import Ledger
from .operators import Mutant, mutants_of
from .verdict import EQUIVALENT, KILLED, REFUSED, SURVIVED, Verdict

SECONDS = 120
"""CPU seconds that a mutant may take."""
KEYED = "quantize_mxfp4"
"""The operation that takes random bits by key, which is no variant of it."""
SAME = "identical machine code of every kernel that includes it"


@dataclass(frozen=True)
class Part:
    """One compiled unit: its name, how to get its machine code from a folder, and the operations that run it."""

    name: str
    operations: tuple[str, ...]
    arguments: tuple[Any, ...] = ()


class WholeShop(Protocol):
    """Whole kernels that may be changed; a subject's `mutable` gives one. largest: elements of the largest case."""

    name: str
    profiles: tuple[str, ...]
    largest: int
    root: Path

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that may be changed."""

    def parts(self, file: str) -> Sequence[Part]:
        """Return the units that a file is a part of, quick ones first."""

    def flags(self) -> Sequence[tuple[str, str, str]]:
        """Return (operator, flag as it is, changed flag): mutants of whole kernels, as line 0."""

    def use(self, old: str, new: str) -> None:
        """Compile with a changed flag: in this process, from now on."""

    def code(self, folder: Path, part: Part) -> str:
        """Return a digest of a unit's machine code; an error that says `could not compile` refuses the source."""

    def subject(self, folder: Path) -> Subject:
        """Return the subject that runs the kernels of a folder, in this process."""


@dataclass(frozen=True)
class Asked:
    """One case with its golden outputs. probed: whether the calling contract is probed with it."""

    case: Case
    golden: Mapping[str, np.ndarray]
    place: str
    probed: bool


Key = tuple[str, str, dict[str, Any]]


@functools.cache
def questions(operation: str, profiles: tuple[str, ...], largest: int) -> tuple[tuple[Key, tuple[Asked, ...]], ...]:
    """Return (variant, its cases up to so many elements) of an operation, small cases first."""
    return tuple((key, tuple(_of_variant(key, largest))) for key in corpus.variants(operation, profiles))


def _of_variant(key: Key, largest: int) -> list[Asked]:
    found, probes = [], PROBES
    for case in corner_cases(*key):
        if case.elements <= largest:
            found.append(Asked(case, run_golden(case), "corner", bool(probes and case.elements)))
            probes -= bool(probes and case.elements)
    vectors = [Asked(case, run_golden(case), "vector", False) for case, _ in frozen_cases(*key)]
    sampled = [
        Asked(case, run_golden(case), "sampled", False) for case in sampled_cases(*key, corpus.SEED, corpus.SAMPLED)
    ]
    small = [one for one in sampled if one.case.elements <= largest]
    return sorted([*found, *vectors, *small], key=lambda one: (one.case.elements, one.place))


@dataclass
class Shop:
    """A workshop that was started: the digests of its units' code, and the sources' texts."""

    workshop: WholeShop
    code: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, workshop: WholeShop) -> Shop:
        """Read the sources; units are compiled when they are first compared."""
        return cls(workshop, {}, {file: (workshop.root / file).read_text() for file in workshop.files})

    def text(self, file: str) -> str:
        """Return a source as it was when the shop was opened."""
        return self.texts[file]

    def mutants(self) -> list[Mutant]:
        """Return every mutant of the operators, but those of text that is compiled for a host alone."""
        found = [m for file in self.workshop.files for m in mutants_of(file, self.texts[file])]
        kernels = [file for file in self.workshop.files if file.endswith(".cu")]
        flags = [Mutant(file, 0, name, 1, 0, 0, old, new)
                 for file in kernels for name, old, new in self.workshop.flags()]  # fmt: skip
        return [*(m for m in found if m.side != "host"), *flags]

    def own(self, part: Part) -> str:
        """Return the digest of a unit as it is."""
        if part.name not in self.code:
            self.code[part.name] = self.workshop.code(self.workshop.root, part)
        return self.code[part.name]


def judge(shop: Shop, mutant: Mutant, hint: str = "") -> Verdict:
    """Build a mutant unit by unit and ask what runs a changed one, in a process of its own; `hint`: asked first."""
    start = time.monotonic()
    parts = sorted(shop.workshop.parts(mutant.file), key=lambda part: hint not in part.operations)
    with tempfile.TemporaryDirectory(prefix="refnum-whole-") as folder:
        for file, text in shop.texts.items():
            changed = mutant.applied(text) if file == mutant.file and mutant.line else text
            (Path(folder) / file).write_text(changed)
        found = apart(lambda: _judged(shop, mutant, Path(folder), parts), SECONDS)
    if found.get("how") == LATE:  # many cases take long: being late is no wrong answer here
        found = {"how": f"{LATE} within {SECONDS} CPU seconds"}
    values: dict[str, Any] = {"status": SURVIVED, **found, "changed": tuple(found.get("changed", ()))}
    return Verdict(mutant, **values, judged=time.monotonic() - start)


def _judged(shop: Shop, mutant: Mutant, folder: Path, parts: Sequence[Part]) -> dict[str, Any]:
    if not mutant.line:
        shop.workshop.use(mutant.old, mutant.new)
    asked: dict[str, None] = {}
    subject = None
    for part in parts:
        try:
            if shop.workshop.code(folder, part) == shop.own(part):
                continue
        except Exception as error:
            if "could not compile" in str(error):
                return {"status": REFUSED, "how": str(error)[:300]}
            raise
        subject = subject or shop.workshop.subject(folder)
        for operation in part.operations:
            if operation in asked:
                continue
            asked[operation] = None
            said = ask(subject, operation, shop.workshop)
            if said:
                return {**said, "changed": list(asked)}
    return {"changed": list(asked)} if asked else {"status": EQUIVALENT, "how": SAME}


def ask(subject: Subject, operation: str, workshop: WholeShop) -> dict[str, Any]:
    """Judge a subject on an operation as a check does, until something is wrong; return what to say, or nothing."""
    if operation == corpus.LAYOUTS:
        return _beside(subject, operation)
    for key, cases in questions(operation, workshop.profiles, workshop.largest):
        tally = Tally(subject.name, *key, claimed=0)
        if subject.refuses(*key):
            continue
        for one in cases:
            judge_case(subject, one.case, one.golden, tally, SECONDS)
            if one.probed and not _wrong(tally):
                probe(subject, one.case, one.golden, tally, SECONDS)
            if _wrong(tally):
                case = f"{one.place}: {one.case.label or one.case}"
                return {"status": KILLED, "how": _wrong(tally)[:200], "operation": operation, "case": case[:160]}
    return _beside(subject, operation) if operation == KEYED else {}


def _wrong(tally: Tally) -> str:
    if tally.faults:
        return str(tally.faults[0][1])
    if tally.unsupported:
        return next(iter(tally.unsupported))
    return (tally.failures[0].words or "other bytes") if tally.failures else ""


def _beside(subject: Subject, operation: str) -> dict[str, Any]:
    for question in _questions_beside(operation):
        called = corpus.answer(on_numpy(subject, question.case.operation), question)
        if corpus.differs(called, question.golden):
            return {"status": KILLED, "how": "other bytes", "operation": operation, "case": question.label}
    return {}


@functools.cache
def _questions_beside(operation: str) -> tuple[corpus.Question, ...]:
    return tuple(corpus.beside(operation))


def on_numpy(subject: Subject, operation: str) -> Any:
    """Return a subject's operation as a function of NumPy arrays."""
    from ..calling.libraries import to_library, to_numpy

    def call(**arguments: Any) -> tuple[Any, ...]:
        given = {
            name: to_library(value, subject.arrays) if isinstance(value, np.ndarray) else value
            for name, value in arguments.items()
        }
        result = subject.operations[operation](**given)
        parts = result if isinstance(result, tuple) else (result,)
        return tuple(None if part is None else to_numpy(part) for part in parts)

    return call


_shop: list[Shop] = []


def _judge_here(mutant: Mutant, hint: str) -> Verdict:
    return judge(_shop[0], mutant, hint)


def _code_here(part: Part) -> tuple[str, str]:
    return part.name, _shop[0].workshop.code(_shop[0].workshop.root, part)


def run(
    shop: Shop, mutants: Sequence[Mutant], workers: int, ledger: Ledger | None, hints: Mapping[str, str]
) -> Iterator[Verdict]:
    """Yield the verdict of every mutant as it is there; questions and the code as it is are made first, and shared.

    hints: mutant -> an operation that is likely to show it, so that its units are built before others.
    """
    known = {mutant: ledger.known(shop, mutant) if ledger else None for mutant in mutants}
    yield from (verdict for verdict in known.values() if verdict is not None)
    left = [mutant for mutant, verdict in known.items() if verdict is None]
    parts = {part.name: part for mutant in left for part in shop.workshop.parts(mutant.file)}
    _shop[:] = [shop]
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        shop.code.update(pool.map(_code_here, parts.values()))
    for operation in dict.fromkeys(name for part in parts.values() for name in part.operations):
        if operation in (corpus.LAYOUTS, KEYED):
            _questions_beside(operation)
        if operation != corpus.LAYOUTS:
            questions(operation, shop.workshop.profiles, shop.workshop.largest)
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        waiting = [pool.submit(_judge_here, mutant, hints.get(mutant.id, "")) for mutant in left]
        for done in as_completed(waiting):
            verdict = done.result()
            if ledger is not None:
                ledger.write(shop, verdict)
            yield verdict
