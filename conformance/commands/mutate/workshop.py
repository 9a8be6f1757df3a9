"""A workshop of the mutation run: sources that may change, copies that are built from them, and what a copy is asked.

Three kinds exist: a library that a compiler makes (`library`), whole kernels (`kernels`), and modules of Python, which
only a checkout can mutate (`tools/mutation`). The run (`run`) treats all of them alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from .forked import call_forked
from .operators import Mutant

Known = Mapping[str, Any]
"""Fields of a mutant's `Verdict` that are known so far. Without `status` nothing was wrong yet."""


class Sources(Protocol):
    """What a subject's `mutable` gives: its sources. `LibrarySources` and `KernelSources` add how a copy is built."""

    name: str
    profiles: tuple[str, ...]
    root: Path

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that may be changed."""

    def functions(self) -> dict[str, Any]:
        """Return `domain`, `prelude` and `compiler`, see `functions.Rows`."""


def texts_of(sources: Sources) -> dict[str, str]:
    """Return file -> text of all sources that may be changed."""
    return {file: (sources.root / file).read_text() for file in sources.files}


@dataclass
class Copy:
    """The sources with one mutant. folder: an empty folder for what is built. hint: the operation to ask first, or
    empty. operations: operation -> callable, where a build gives callables. changed: the operations whose code differs.
    """

    mutant: Mutant
    folder: Path
    hint: str = ""
    operations: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    changed: tuple[str, ...] = ()


@dataclass
class Workshop(ABC):
    """Sources that were read, and how the run builds and judges mutants of them.

    name: what ledgers know it by. texts: file -> text when the workshop was opened. SECONDS: CPU seconds in which one
    process must have asked a copy everything.
    """

    name: str
    texts: dict[str, str]
    SECONDS: ClassVar[int]

    @abstractmethod
    def mutants(self) -> list[Mutant]:
        """Return every mutant of the operators that this workshop can judge."""

    @abstractmethod
    def digest(self, file: str) -> str:
        """Return a digest of all that a mutant of a file is built from, and of how it is built."""

    @abstractmethod
    def build(self, copy: Copy) -> Known:
        """Build a copy; return nothing where it must be asked, else its status and why."""

    @abstractmethod
    def ask(self, copy: Copy) -> Known:
        """Ask a built copy in this process until an answer is wrong; return that, without a status if there is none."""

    @abstractmethod
    def prepare(self, mutants: Sequence[Mutant], workers: int) -> None:
        """Make and import what all judging processes share, such as questions, before they fork; start no device."""

    def judge(self, copy: Copy) -> Known:
        """Ask a built copy in a process of its own."""
        return dict(call_forked(lambda: self.ask(copy), self.SECONDS, self.memory) or {})

    @property
    def memory(self) -> int | None:
        """Bytes that one process may take to ask a copy everything, beside what it starts with; None: no limit."""
        return None

    @property
    def slow_start(self) -> bool:
        """Whether a process takes long until it can judge: then quick questions on many mutants share one process."""
        return False

    def ask_quickly(self, copy: Copy) -> Known:
        """Build and ask a copy the quick questions, in a process that asks other mutants too."""
        raise NotImplementedError(f"{self.name} has no quick questions.")

    def settle(self, copy: Copy) -> Known:
        """Return what else is known of a survivor, `status` if it is none after all."""
        return {}

    def compile(self, mutants: Sequence[Mutant], workers: int) -> None:  # noqa: B027
        """Compile the unchanged sources as far as digests of these mutants need it."""

    def unit_count(self, mutant: Mutant) -> int:
        """Return how many compiled units a mutant is a part of: mutants of many are judged first."""
        return 0

    def controls(self, mutants: Sequence[Mutant]) -> Sequence[str]:
        """Return the operations that the unchanged sources must answer rightly before a mutant is judged."""
        return ()

    def control(self, operation: str) -> Known:
        """Ask the unchanged sources an operation; return what is wrong."""
        return {}

    def text(self, file: str) -> str:
        """Return the text of a source when the workshop was opened."""
        return self.texts[file]
