"""Mutants of whole kernels, judged as `refnum check` judges a subject: cases and the calling contract's probes.

A kernel is built from a changed folder of sources; what of it keeps its machine code is not asked. What is asked, and
in which order, is in `asked`. The sources as they are must give every right answer first: else nothing is judged.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from refnum.errors import ArgumentError, UnsupportedError

from ...subjects.subject import from_dict
from . import kernel_questions
from .forked import LATE, apart
from .kernels_ask import SECONDS, Beside, Chosen, ask, every
from .ledger import digest_of, included
from .operators import Mutant, mutants_of
from .verdict import EQUIVALENT, KILLED, REFUSED, SURVIVED, Verdict

SAME = "identical machine code of every kernel that includes it"


@dataclass(frozen=True)
class Part:
    """One compiled unit: its name, how to get its machine code from a folder, and the operations that run it."""

    name: str
    operations: tuple[str, ...]
    arguments: tuple[Any, ...] = ()


class WholeShop(Protocol):
    """Whole kernels that may be changed; a subject's `mutable` gives one. largest: elements of the largest case.
    patience: CPU seconds for one question, after which a call counts as one that never comes back."""

    name: str
    profiles: tuple[str, ...]
    largest: int
    patience: int
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

    @property
    def slow_start(self) -> bool:
        """Whether a process takes long until it can launch: then quick questions on many mutants share one."""

    def forget(self) -> None:
        """Forget every kernel that this process has loaded and the folder that they are from: as in a new process."""

    def ready(self) -> None:
        """Import what every judging process needs, before they part; no device may be started by it."""

    def subject(self, folder: Path) -> Mapping[str, Any]:
        """Return the subject, in its dict form, that runs the kernels of a folder in this process."""


@dataclass
class Shop:
    """A workshop that was started: the digests of its units' code, and the sources' texts."""

    workshop: WholeShop
    code: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)

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

    def digest(self, file: str) -> str:
        """Return a digest of all sources of the units that a file is a part of, and of their machine code as it is."""
        if file not in self._digests:
            kernels = [name for name in self.texts if file in included(self.texts, [name])]
            code = (f"{part.name} {self.own(part)}" for part in self.workshop.parts(file))
            self._digests[file] = digest_of(self.texts, included(self.texts, kernels), *code)
        return self._digests[file]

    def own(self, part: Part) -> str:
        """Return the digest of a unit as it is."""
        if part.name not in self.code:
            self.code[part.name] = self.workshop.code(self.workshop.root, part)
        return self.code[part.name]


def judge(shop: Shop, mutant: Mutant, hint: str = "") -> Verdict:
    """Build a mutant unit by unit and ask what runs a changed one, in a process of its own; `hint`: asked first."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refnum-whole-") as folder:
        parts = _written(shop, mutant, Path(folder), hint)
        found = apart(lambda: _judged(shop, mutant, Path(folder), parts), SECONDS)
    if found.get("how") == LATE:  # many cases take long: being late is no wrong answer here
        found = {"how": f"{LATE} within {SECONDS} CPU seconds"}
    return _verdict(mutant, found, start)


def build(shop: Shop, mutant: Mutant, hint: str = "") -> Verdict | None:
    """Compile a mutant up to the first unit whose code is another; a verdict when there is none, or it is refused."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refnum-whole-") as folder:
        parts = _written(shop, mutant, Path(folder), hint)
        found = apart(lambda: _compiled(shop, mutant, Path(folder), parts), SECONDS)
    return Verdict(mutant, **found, built=time.monotonic() - start) if found else None


def _compiled(shop: Shop, mutant: Mutant, folder: Path, parts: Sequence[Part]) -> dict[str, Any]:
    try:
        changed = next(_changed(shop, mutant, folder, parts), None)
    except UnsupportedError as error:
        return _refusal(error)
    return {} if changed else {"status": EQUIVALENT, "how": SAME}


def _written(shop: Shop, mutant: Mutant, folder: Path, hint: str) -> list[Part]:
    """Write the changed sources; return the units that the file is a part of, those of the hint first."""
    for file, text in shop.texts.items():
        (folder / file).write_text(mutant.applied(text) if file == mutant.file and mutant.line else text)
    parts = shop.workshop.parts(mutant.file)
    if not parts:  # then all that follows would call it equivalent
        raise ArgumentError(f"{mutant.file} is a part of no unit that is compiled here.")
    return sorted(parts, key=lambda part: hint not in part.operations)


def _changed(shop: Shop, mutant: Mutant, folder: Path, parts: Sequence[Part]) -> Iterator[Part]:
    """Compile unit by unit, and yield those whose code is another."""
    if not mutant.line:
        shop.workshop.use(mutant.old, mutant.new)
    return (part for part in parts if shop.workshop.code(folder, part) != shop.own(part))


def _judged(shop: Shop, mutant: Mutant, folder: Path, parts: Sequence[Part], chosen: Chosen = every) -> dict[str, Any]:
    called: dict[str, None] = {}
    subject = None
    try:
        for part in _changed(shop, mutant, folder, parts):
            subject = subject or from_dict(shop.workshop.subject(folder), "the workshop")
            for operation in part.operations:
                if operation in called:
                    continue
                called[operation] = None
                said = ask(subject, operation, shop.workshop, chosen, _patient)
                if said:
                    return {**said, "changed": list(called)}
    except UnsupportedError as error:
        return _refusal(error)
    return {"changed": list(called)} if called else {"status": EQUIVALENT, "how": SAME}


def _refusal(error: UnsupportedError) -> dict[str, Any]:
    if "could not compile" not in str(error):
        raise error
    return {"status": REFUSED, "how": str(error)[:300]}


def _patient(seconds: int) -> None:
    """End this process unless it asks for patience again within so many CPU seconds."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def judge_quickly(shop: Shop, mutant: Mutant, hint: str = "") -> Verdict | None:
    """Ask a mutant the quick questions, in a process that asks other mutants too; None when it must be asked alone.

    A kill counts where the sources as they are give the right answer to the same question right after it, in the same
    process: then nothing that an earlier mutant left behind is to blame. RuntimeError where they do not: the process
    is of no more use.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refnum-whole-") as folder:
        shop.workshop.forget()
        parts = _written(shop, mutant, Path(folder), hint)
        found = _judged(shop, mutant, Path(folder), parts, lambda _number, one: _is_quick(one))
        if found.get("status") is None:
            return None
        shop.workshop.forget()
        if found["status"] == KILLED:
            same, root = found["number"], from_dict(shop.workshop.subject(shop.workshop.root), "the workshop")
            if ask(root, found["operation"], shop.workshop, lambda number, _one: number == same, _patient):
                raise RuntimeError("the sources as they are fail in this process")
    return _verdict(mutant, found, start)


def _is_quick(one: kernel_questions.Asked | Beside) -> bool:
    return one.case.elements <= kernel_questions.SMALL and not one.probed


def _verdict(mutant: Mutant, found: Mapping[str, Any], start: float) -> Verdict:
    values: dict[str, Any] = {"status": SURVIVED, **found, "changed": tuple(found.get("changed", ()))}
    values.pop("number", None)
    return Verdict(mutant, **values, judged=time.monotonic() - start)
