"""The run: every mutant built, judged in a process of its own, and told apart.

killed: an answer differs, or the process dies, or does not come back. survived: no question sees a difference.
equivalent: the machine code is the same. outside: the build has no code of that place. does not compile: the compiler
refuses; never counted as killed.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...cases.case import Case
from ...cases.operation import as_bits, outputs_of
from ...mismatches.diagnose import diagnose
from . import corpus
from .corpus import Question
from .forked import apart
from .ledger import Ledger, digest_of
from .operators import Mutant, mutants_of
from .verdict import EQUIVALENT, KILLED, OUTSIDE, REFUSED, SURVIVED, Verdict

PLAIN, SAME = "-O0", "identical machine code when optimised"
"""Mutants are judged as they compile fastest; optimised code tells the equivalent ones."""
SECONDS = 20
"""CPU seconds that a mutant may take for the fast stage; one that takes longer does not come back."""


class Workshop(Protocol):
    """Sources that may be changed, and how a changed copy is built; a subject's `mutable` gives one."""

    name: str
    profiles: tuple[str, ...]
    root: Path

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that may be changed."""

    def questions(self, operation: str) -> Iterable[tuple[str, dict[str, Any], dict[str, Any], tuple[Any, ...]]]:
        """Yield (label, parameters, inputs, right answers) of what is asked beside an operation's own questions."""

    def functions(self) -> dict[str, Any]:
        """Return `domain`, `prelude` and `compiler`, see `functions.Rows`."""

    def start(self, folder: Path, level: str = ...) -> dict[str, str]:
        """Compile the sources as they are; return operation -> digest of its machine code."""

    def build(self, changed: Mapping[str, str], folder: Path, started: Path, level: str = ...) -> Any:
        """Return an object with `code` (operation -> digest) and `operations`; raise an error that is `refused`."""


class Started(Protocol):
    """A workshop whose sources were compiled as they are into a folder; plain: the digests of that code at -O0."""

    workshop: Workshop
    folder: Path
    plain: dict[str, str]


@dataclass
class Shop:
    """A workshop that was started: where, and the digests of its code, at the level that is judged and at -O0."""

    workshop: Workshop
    folder: Path
    code: dict[str, str]
    plain: dict[str, str]
    guess: bool = False
    texts: dict[str, str] = field(default_factory=dict)
    _own: dict[str, tuple[Question, ...]] = field(default_factory=dict)

    @classmethod
    def open(cls, workshop: Workshop, folder: Path, guess: bool = False) -> Shop:
        """Compile the sources as they are into a folder."""
        texts = {file: (workshop.root / file).read_text() for file in workshop.files}
        return cls(workshop, folder, workshop.start(folder), workshop.start(folder, PLAIN), guess, texts)

    def questions(self, operation: str) -> tuple[Question, ...]:
        """Return the questions of the fast stage on an operation."""
        if operation not in self._own:
            self._own[operation] = tuple(
                Question(Case(operation, corpus.DEFAULT, params, inputs, label=label), golden, corpus.OWN)
                for label, params, inputs, golden in self.workshop.questions(operation)
            )
        return (*corpus.first(operation, self.workshop.profiles), *self._own[operation])

    def text(self, file: str) -> str:
        """Return a source as it was when the shop was opened."""
        if file not in self.texts:
            self.texts[file] = (self.workshop.root / file).read_text()
        return self.texts[file]

    def digest(self, file: str) -> str:
        """Return a digest of every source, and of the machine code that they give: the build is one library."""
        code = (f"{name} {digest} {self.plain[name]}" for name, digest in sorted(self.code.items()))
        return digest_of(self.texts, self.texts, *code)

    def mutants(self) -> list[Mutant]:
        """Return every mutant of the operators, but those of text that is compiled for a device alone."""
        return mutants({file: self.text(file) for file in self.workshop.files})


def mutants(texts: Mapping[str, str]) -> list[Mutant]:
    """Return every mutant of some sources (name -> text), but those of text that is compiled for a device alone."""
    return [m for file, text in texts.items() for m in mutants_of(file, text) if m.side != "device"]


def judge(shop: Shop, mutant: Mutant) -> Verdict:
    """Build a mutant and ask it the questions of the fast stage, in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="refnum-mutant-"))
    changed = {mutant.file: mutant.applied(shop.text(mutant.file))}
    try:
        verdict, operations = build(shop, mutant, changed, folder / "plain")
        if verdict.status != SURVIVED:
            return verdict
        start = time.monotonic()
        found = apart(lambda: ask(operations, _in_order(shop, verdict.changed), shop.guess), SECONDS)
        verdict = replace(verdict, **found, judged=time.monotonic() - start)
        if verdict.status != SURVIVED:
            return verdict
        other = differing(shop.workshop.build(changed, folder / "optimised", shop.folder).code, shop.code)
        return replace(verdict, changed=other) if other else replace(verdict, status=EQUIVALENT, how=SAME)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build(shop: Started, mutant: Mutant, changed: Mapping[str, str], folder: Path) -> tuple[Verdict, Any]:
    """Build a mutant without optimising; return its verdict, a survivor's if it is to be asked, and its operations."""
    start = time.monotonic()
    try:
        built = shop.workshop.build(changed, folder, shop.folder, PLAIN)
    except Exception as error:
        if type(error).__name__ != "DoesNotCompile":
            raise
        return Verdict(mutant, REFUSED, str(error), built=time.monotonic() - start), None
    other = differing(built.code, shop.plain)
    verdict = Verdict(mutant, SURVIVED, changed=other, built=time.monotonic() - start)
    if not other:
        words = "no machine code of this build has it, even without optimising"
        return replace(verdict, status=OUTSIDE, how=words), None
    return verdict, built.operations


def differing(code: Mapping[str, str], own: Mapping[str, str]) -> tuple[str, ...]:
    """Return the operations whose machine code is another one."""
    return tuple(name for name, digest in code.items() if digest != own[name])


def _in_order(shop: Shop, operations: Iterable[str]) -> Iterator[Question]:
    """Yield the frozen vectors on some operations, then the other questions in turns, so that none waits for long."""
    names = tuple(operations)
    for name in names:
        yield from (question for question in shop.questions(name) if question.place == "vector")
    rows = [iter([question for question in shop.questions(name) if question.place != "vector"]) for name in names]
    while rows:
        for row in list(rows):
            batch = list(itertools.islice(row, 8))
            if not batch:
                rows.remove(row)
            yield from batch


def ask(
    operations: Mapping[str, Callable[..., Any]], questions: Iterable[Question], guess: bool
) -> dict[str, Any] | None:
    """Ask all frozen vectors, and what comes behind them until an answer differs; return what to say, or None."""
    first: dict[str, Any] | None = None
    seen: list[str] = []
    for question in questions:
        if first is not None and question.place != "vector":
            continue
        said = _asked(operations, question, guess and first is None)
        if said is None:
            continue
        if said["status"] == REFUSED:
            return said
        first = first or said
        seen += [question.label] if question.place == "vector" else []
    counted = {"vectors": len(seen), "only": seen[0] if len(seen) == 1 else ""}
    return {**(first or {}), **counted}


def _asked(operations: Mapping[str, Callable[..., Any]], question: Question, guess: bool) -> dict[str, Any] | None:
    """Ask one question; return what to say of a wrong answer, or None."""
    try:
        with np.errstate(all="ignore"):
            results = corpus.answer(operations[question.case.operation], question)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        if "could not compile" in words:  # whole kernels are compiled at their first call
            return {"status": REFUSED, "how": words}
        return _killed(question, words, ())
    if corpus.differs(results, question.golden):
        return _killed(question, "other bytes", guesses(question, results) if guess else ())
    return None


def _killed(question: Question, how: str, found: tuple[str, ...]) -> dict[str, Any]:
    operation = question.case.operation
    return {"status": KILLED, "how": how, "operation": operation, "case": question.label[:160], "guesses": found}


def guesses(question: Question, results: Sequence[Any]) -> tuple[str, ...]:
    """Return the ids of the bug classes that a wrong answer looks like, the likeliest first."""
    names = [output.name for output in outputs_of(question.case)]
    given = [np.asarray(array) for array in results if array is not None]
    if len(given) != len(names) or "layout" in str(question.case.params):
        return ()
    golden = {name: as_bits(array) for name, array in zip(names, question.golden, strict=True)}
    observed = {name: as_bits(array) for name, array in zip(names, given, strict=True)}
    return tuple(entry["id"] for entry in diagnose(question.case, golden, observed))


_shop: list[Shop] = []


def _judge_here(mutant: Mutant) -> Verdict:
    return judge(_shop[0], mutant)


def run(shop: Shop, mutants: Sequence[Mutant], workers: int, ledger: Ledger | None = None) -> Iterator[Verdict]:
    """Yield the verdict of every mutant as it is there; the questions are made first and shared by all processes.

    ledger: verdicts of earlier runs, which are not judged again; those of this run are written to it.
    """
    if ledger is not None:
        known = {mutant: ledger.known(shop, mutant) for mutant in mutants}
        yield from (verdict for verdict in known.values() if verdict is not None)
        mutants = [mutant for mutant, verdict in known.items() if verdict is None]
    for operation in shop.code:
        shop.questions(operation)
    _shop[:] = [shop]
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        waiting = [pool.submit(_judge_here, mutant) for mutant in mutants]
        for done in as_completed(waiting):
            verdict = done.result()
            if ledger is not None:
                ledger.write(shop, verdict)
            yield verdict
