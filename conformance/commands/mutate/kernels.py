"""Mutants of whole kernels, judged as `refnum check` judges a subject: cases and the calling contract's probes.

A kernel is built from a changed folder of sources, unit by unit; a unit that keeps its machine code is not asked. What
is asked, and in which order, is in `kernel_questions` and `kernels_ask`. The unchanged sources must give every right
answer first: else nothing is judged.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from refnum.errors import ArgumentError, UnsupportedError

from ...subjects.subject import Subject, from_dict
from . import corpus, kernel_questions, kernels_ask
from .forked import LATE, call_forked
from .kernels_ask import Chosen, ask, every
from .ledger import digest_of, included
from .operators import Mutant, mutants_of
from .run import on_workshop, pool
from .verdict import EQUIVALENT, KILLED, REFUSED
from .workshop import Copy, Known, Sources, Workshop, texts_of

SAME = "identical machine code of every kernel that includes it"


@dataclass(frozen=True)
class Unit:
    """One compiled unit: its name, the operations that run it, and what its sources compile it by."""

    name: str
    operations: tuple[str, ...]
    arguments: tuple[Any, ...] = ()


class KernelSources(Sources, Protocol):
    """Sources of whole kernels, as a subject's `mutable` gives them. largest: elements of the largest case. patience:
    CPU seconds for one question, after which a call counts as one that never comes back. slow_start: whether a process
    takes long until it can launch: then quick questions on many mutants share one."""

    largest: int
    patience: int
    slow_start: bool

    def units(self, file: str) -> Sequence[Unit]:
        """Return the units that a file is a part of, quick ones first."""

    def flags(self) -> Sequence[tuple[str, str, str]]:
        """Return (operator, flag as it is, changed flag): mutants of whole kernels, as line 0."""

    def use(self, old: str, new: str) -> None:
        """Compile with a changed flag: in this process, from now on."""

    def code(self, folder: Path, unit: Unit) -> str:
        """Return a digest of a unit's machine code; an error that says `could not compile` refuses the source."""

    def forget(self) -> None:
        """Forget every kernel that this process has loaded and the folder that they are from: as in a new process."""

    def ready(self) -> None:
        """Import what every judging process needs, before they fork; it must not start a device."""

    def subject(self, folder: Path) -> Mapping[str, Any]:
        """Return the subject, in its dict form, that runs the kernels of a folder in this process."""


@dataclass
class Kernels(Workshop):
    """Sources of whole kernels. code: unit -> digest of its machine code, unchanged; compiled when it is needed."""

    sources: KernelSources
    code: dict[str, str] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    SECONDS = kernels_ask.SECONDS

    @classmethod
    def open(cls, sources: KernelSources) -> Self:
        """Read the sources."""
        return cls(sources.name, texts_of(sources), sources)

    @property
    def slow_start(self) -> bool:
        """Whether a process takes long until it can launch."""
        return self.sources.slow_start

    def mutants(self) -> list[Mutant]:
        """Return every mutant of the operators, but those of text that is compiled for a host alone."""
        found = [m for file, text in self.texts.items() for m in mutants_of(file, text)]
        kernels = [file for file in self.texts if file.endswith(".cu")]
        flags = [Mutant(file, 0, name, 1, 0, 0, old, new)
                 for file in kernels for name, old, new in self.sources.flags()]  # fmt: skip
        return [*(m for m in found if m.side != "host"), *flags]

    def digest(self, file: str) -> str:
        """Return a digest of all sources of the units that a file is a part of, and of their machine code as it is."""
        if file not in self._digests:
            kernels = [name for name in self.texts if file in included(self.texts, [name])]
            code = (f"{unit.name} {self.own(unit)}" for unit in self.sources.units(file))
            self._digests[file] = digest_of(self.texts, included(self.texts, kernels), *code)
        return self._digests[file]

    def own(self, unit: Unit) -> str:
        """Return the digest of an unchanged unit's machine code."""
        if unit.name not in self.code:
            self.code[unit.name] = self.sources.code(self.sources.root, unit)
        return self.code[unit.name]

    def compile(self, mutants: Sequence[Mutant], workers: int) -> None:
        """Compile the unchanged units of some mutants."""
        units = self._units(mutants)
        with pool(self, workers) as compilers:
            self.code.update(zip(units, compilers.map(on_workshop(Kernels.own), units.values()), strict=True))

    def _units(self, mutants: Sequence[Mutant]) -> dict[str, Unit]:
        files = dict.fromkeys(mutant.file for mutant in mutants)
        return {unit.name: unit for file in files for unit in self.sources.units(file)}

    def unit_count(self, mutant: Mutant) -> int:
        """Return how many compiled units a mutant is a part of."""
        return len(self.sources.units(mutant.file))

    def prepare(self, mutants: Sequence[Mutant], workers: int) -> None:
        """Make the questions on every operation that some mutants may change, and import what all processes need."""
        operations = self.controls(mutants)
        with pool(self, workers) as makers:
            kernel_questions.make(
                (name for name in operations if name != corpus.LAYOUTS),
                self.sources.profiles, self.sources.largest, makers,
            )  # fmt: skip
        for operation in operations:
            kernels_ask.extra_questions(operation)
        self.sources.ready()

    def controls(self, mutants: Sequence[Mutant]) -> Sequence[str]:
        """Return the operations that run a unit of some mutants."""
        return list(dict.fromkeys(name for unit in self._units(mutants).values() for name in unit.operations))

    def control(self, operation: str) -> Known:
        """Ask the unchanged sources an operation in a process of its own; return what is wrong."""
        subject = self._subject(self.sources.root)
        return dict(call_forked(lambda: ask(subject, operation, self._bounds), self.SECONDS))

    def build(self, copy: Copy) -> Known:
        """Compile a copy up to the first unit whose code differs, in a process of its own."""
        self._written(copy)
        return _patient(call_forked(lambda: self._compiled(copy), self.SECONDS))

    def _compiled(self, copy: Copy) -> Known:
        try:
            changed = next(self._changed(copy), None)
        except UnsupportedError as error:
            return _refusal(error)
        return {} if changed else {"status": EQUIVALENT, "how": SAME}

    def judge(self, copy: Copy) -> Known:
        """Ask what runs a changed unit, in a process of its own: many cases take long, and being late is no kill."""
        return _patient(super().judge(copy))

    def ask(self, copy: Copy, chosen: Chosen = every) -> Known:
        """Compile a copy unit by unit, and ask the operations that run a changed one until an answer is wrong."""
        called: dict[str, None] = {}
        subject = None
        try:
            for unit in self._changed(copy):
                subject = subject or self._subject(copy.folder)
                for operation in unit.operations:
                    if operation in called:
                        continue
                    called[operation] = None
                    said = ask(subject, operation, self._bounds, chosen, set_patience)
                    if said:
                        return {**said, "changed": list(called)}
        except UnsupportedError as error:
            return _refusal(error)
        return {"changed": list(called)} if called else {"status": EQUIVALENT, "how": SAME}

    def ask_quickly(self, copy: Copy) -> Known:
        """Ask a copy the quick questions, in a process that asks other mutants too.

        A kill counts where the unchanged sources give the right answer to the same question right after it, in the same
        process: then nothing that an earlier mutant left behind is to blame. RuntimeError where they do not: the
        process is of no more use.
        """
        self.sources.forget()
        self._written(copy)
        found = self.ask(copy, lambda _number, one: _is_quick(one))
        if "status" not in found:
            return found
        self.sources.forget()
        if found["status"] == KILLED:
            same, root = found["number"], self._subject(self.sources.root)
            if ask(root, found["operation"], self._bounds, lambda number, _one: number == same, set_patience):
                raise RuntimeError("the sources as they are fail in this process")
        return found

    def _written(self, copy: Copy) -> None:
        """Write the changed sources into the copy's folder."""
        mutant = copy.mutant
        if not self.sources.units(mutant.file):  # then all that follows would call it equivalent
            raise ArgumentError(f"{mutant.file} is a part of no unit that is compiled here.")
        for file, text in self.texts.items():
            (copy.folder / file).write_text(mutant.applied(text) if file == mutant.file and mutant.line else text)

    def _changed(self, copy: Copy) -> Iterator[Unit]:
        """Compile unit by unit, those of the hint first, and yield those whose code differs."""
        mutant = copy.mutant
        if not mutant.line:
            self.sources.use(mutant.old, mutant.new)
        in_order = sorted(self.sources.units(mutant.file), key=lambda unit: copy.hint not in unit.operations)
        return (unit for unit in in_order if self.sources.code(copy.folder, unit) != self.own(unit))

    def subject(self, copy: Copy) -> Subject:
        """Write a copy and return the subject that runs it in this process."""
        self._written(copy)
        return self._subject(copy.folder)

    @property
    def _bounds(self) -> kernels_ask.Bounds:
        return kernels_ask.Bounds(self.sources.profiles, self.sources.largest, self.sources.patience)

    def _subject(self, folder: Path) -> Subject:
        return from_dict(self.sources.subject(folder), "the workshop")


def _patient(found: Known) -> Known:
    """Return what is known of a copy; one that was only late survives."""
    return {"how": f"{LATE} within {kernels_ask.SECONDS} CPU seconds"} if found.get("how") == LATE else found


def _refusal(error: UnsupportedError) -> Known:
    if "could not compile" not in str(error):
        raise error
    return {"status": REFUSED, "how": str(error)[:300]}


def set_patience(seconds: int) -> None:
    """End this process unless this is called again within so many CPU seconds."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _is_quick(one: kernels_ask.AnyQuestion) -> bool:
    return one.case.elements <= kernel_questions.SMALL and not one.probed
