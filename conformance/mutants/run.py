"""The run: every mutant built, judged in a process of its own, and told apart.

killed: an answer differs, or the process dies, or does not come back. survived: no question sees a difference.
equivalent: the machine code is the same. outside: the build has no code of that place. does not compile: the compiler
refuses; never counted as killed.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import pickle
import resource
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from . import corpus
from .corpus import Question
from .operators import Mutant, mutants_of

KILLED, SURVIVED, EQUIVALENT, OUTSIDE, REFUSED = "killed", "survived", "equivalent", "outside", "does not compile"
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

    def start(self, folder: Path, level: str = ...) -> dict[str, str]:
        """Compile the sources as they are; return operation -> digest of its machine code."""

    def build(self, changed: Mapping[str, str], folder: Path, started: Path, level: str = ...) -> Any:
        """Return an object with `code` (operation -> digest) and `operations`; raise an error that is `refused`."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant. how: the words for it. operation, case: what killed it. guesses: bug classes."""

    mutant: Mutant
    status: str
    how: str = ""
    operation: str = ""
    case: str = ""
    guesses: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    built: float = 0.0
    judged: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        m = self.mutant
        place = {"id": m.id, "file": m.file, "line": m.line, "operator": m.operator, "old": m.old, "new": m.new}
        return {
            **place, "status": self.status, "how": self.how, "operation": self.operation, "case": self.case,
            "guesses": list(self.guesses), "changed": list(self.changed),
            "built": round(self.built, 3), "judged": round(self.judged, 4),
        }  # fmt: skip


@dataclass
class Shop:
    """A workshop that was started: where, and the digests of its code, at the level that is judged and at -O0."""

    workshop: Workshop
    folder: Path
    code: dict[str, str]
    plain: dict[str, str]
    guess: bool = False
    texts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, workshop: Workshop, folder: Path, guess: bool = False) -> Shop:
        """Compile the sources as they are into a folder."""
        texts = {file: (workshop.root / file).read_text() for file in workshop.files}
        return cls(workshop, folder, workshop.start(folder), workshop.start(folder, PLAIN), guess, texts)

    def questions(self, operation: str) -> tuple[Question, ...]:
        """Return the questions of the fast stage on an operation."""
        return corpus.first(operation, self.workshop.profiles)

    def text(self, file: str) -> str:
        """Return a source as it was when the shop was opened."""
        if file not in self.texts:
            self.texts[file] = (self.workshop.root / file).read_text()
        return self.texts[file]

    def mutants(self) -> list[Mutant]:
        """Return every mutant of the operators, but those of text that is compiled for a device alone."""
        found = [m for file in self.workshop.files for m in mutants_of(file, self.text(file))]
        return [m for m in found if m.side != "device"]


def judge(shop: Shop, mutant: Mutant) -> Verdict:
    """Build a mutant and ask it the questions of the fast stage, in a process of its own."""
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="refnum-mutant-"))
    changed = {mutant.file: mutant.applied(shop.text(mutant.file))}
    try:
        try:
            built = shop.workshop.build(changed, folder / "plain", shop.folder, PLAIN)
        except Exception as error:
            if type(error).__name__ != "DoesNotCompile":
                raise
            return Verdict(mutant, REFUSED, str(error), built=time.monotonic() - start)
        other = _differing(built.code, shop.plain)
        verdict = Verdict(mutant, SURVIVED, changed=other, built=time.monotonic() - start)
        if not other:
            return replace(verdict, status=OUTSIDE, how="no machine code of this build has it, even without optimising")
        start = time.monotonic()
        found = apart(lambda: ask(built.operations, _in_order(shop, other), shop.guess), SECONDS)
        verdict = replace(verdict, **(found or {}), judged=time.monotonic() - start)
        if verdict.status != SURVIVED:
            return verdict
        other = _differing(shop.workshop.build(changed, folder / "optimised", shop.folder).code, shop.code)
        return replace(verdict, changed=other) if other else replace(verdict, status=EQUIVALENT, how=SAME)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _differing(code: Mapping[str, str], own: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name, digest in code.items() if digest != own[name])


def _in_order(shop: Shop, operations: Iterable[str]) -> Iterator[Question]:
    """Yield the questions on some operations in turns, so that none waits for a long one before it."""
    rows = [iter(shop.questions(name)) for name in operations]
    while rows:
        for row in list(rows):
            batch = list(itertools.islice(row, 8))
            if not batch:
                rows.remove(row)
            yield from batch


def ask(
    operations: Mapping[str, Callable[..., Any]], questions: Iterable[Question], guess: bool
) -> dict[str, Any] | None:
    """Ask until an answer differs; return what to say of it, or None."""
    for question in questions:
        case = question.case
        try:
            with np.errstate(all="ignore"):
                results = corpus.answer(operations[case.operation], case)
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
    from ..diagnose import diagnose
    from ..operation import as_bits, outputs_of

    names = [output.name for output in outputs_of(question.case)]
    given = [np.asarray(array) for array in results if array is not None]
    if len(given) != len(names) or "layout" in str(question.case.params):
        return ()
    golden = {name: as_bits(array) for name, array in zip(names, question.golden, strict=True)}
    observed = {name: as_bits(array) for name, array in zip(names, given, strict=True)}
    return tuple(entry["id"] for entry in diagnose(question.case, golden, observed))


def apart(work: Callable[[], Any], seconds: int) -> Any:
    """Return what a function returns in a forked process; a process that dies or is late is a kill, in words."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.write(writer, pickle.dumps(work()))
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    try:
        data = _drained(reader, 4 * seconds)
    finally:
        os.close(reader)
    if data is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if data:
        return pickle.loads(data)
    died = "did not come back" if data is None or os.WTERMSIG(status) == signal.SIGXCPU else "its process died"
    return {"status": KILLED, "how": died}


def _drained(reader: int, seconds: float) -> bytes | None:
    """Return all that comes through a pipe, or None when its end does not come in time."""
    parts: list[bytes] = []
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return None
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)


_shop: list[Shop] = []


def _judge_here(mutant: Mutant) -> Verdict:
    return judge(_shop[0], mutant)


def run(shop: Shop, mutants: Sequence[Mutant], workers: int) -> Iterator[Verdict]:
    """Yield the verdict of every mutant as it is there; the questions are made first and shared by all processes."""
    for operation in shop.code:
        shop.questions(operation)
    _shop[:] = [shop]
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        waiting = [pool.submit(_judge_here, mutant) for mutant in mutants]
        for done in as_completed(waiting):
            yield done.result()
