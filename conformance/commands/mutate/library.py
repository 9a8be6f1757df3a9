"""Mutants of a library that a C++ compiler makes: built without optimising, asked directly, compared when optimised.

Digests of machine code, operation by operation, say which operations a change can touch; the others are not asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from ...cases.case import Case
from ...subjects.subject import Subject
from . import corpus
from .corpus import Question
from .ledger import digest_of
from .operators import Mutant, mutants_of
from .verdict import EQUIVALENT, KILLED, OUTSIDE, REFUSED
from .workshop import Copy, Known, Sources, Workshop, texts_of

PLAIN, SAME = "-O0", "identical machine code when optimised"
"""Mutants are judged as they compile fastest; optimised code tells the equivalent ones."""
NO_CODE = "no machine code of this build has it, even without optimising"


class Built(Protocol):
    """A copy that was built. code: operation -> digest of its machine code. operations: operation -> callable."""

    @property
    def code(self) -> Mapping[str, str]:
        """Digests by operation."""

    @property
    def operations(self) -> Mapping[str, Callable[..., Any]]:
        """Callables by operation, for the process that built them and those forked from it."""


class LibrarySources(Sources, Protocol):
    """Sources of a library, as a subject's `mutable` gives them."""

    def questions(self, operation: str) -> Iterable[tuple[str, dict[str, Any], dict[str, Any], tuple[Any, ...]]]:
        """Yield (label, parameters, inputs, right answers) of what is asked beside an operation's own questions."""

    def start(self, folder: Path, level: str = ...) -> dict[str, str]:
        """Compile the unchanged sources; return operation -> digest of its machine code."""

    def build(self, changed: Mapping[str, str], folder: Path, started: Path, level: str = ...) -> Built:
        """Build a copy with changed files; an error of the name `DoesNotCompile` says that the compiler refuses it."""


@dataclass
class Library(Workshop):
    """A library's sources, compiled unchanged into a folder. code, plain: operation -> digest of its machine code,
    optimised and not."""

    sources: LibrarySources
    folder: Path
    code: dict[str, str]
    plain: dict[str, str]
    _questions: dict[str, tuple[Question, ...]] = field(default_factory=dict)
    SECONDS = 20

    @classmethod
    def open(cls, sources: LibrarySources, folder: Path) -> Self:
        """Compile the unchanged sources into a folder."""
        code = sources.start(folder)
        return cls(sources.name, texts_of(sources), sources, folder, code, sources.start(folder, PLAIN))

    def mutants(self) -> list[Mutant]:
        """Return every mutant of the operators, but those of text that is compiled for a device alone."""
        return [m for file, text in self.texts.items() for m in mutants_of(file, text) if m.side != "device"]

    def digest(self, file: str) -> str:
        """Return a digest of every source, and of the machine code that they give: the build is one library."""
        code = (f"{name} {digest} {self.plain[name]}" for name, digest in sorted(self.code.items()))
        return digest_of(self.texts, self.texts, *code)

    def prepare(self, mutants: Sequence[Mutant], workers: int) -> None:
        """Make the questions, which all processes share."""
        for operation in self.plain:
            self.questions(operation)

    def questions(self, operation: str) -> tuple[Question, ...]:
        """Return the questions on an operation, made once."""
        if operation not in self._questions:
            self._questions[operation] = self._made(operation)
        return self._questions[operation]

    def _made(self, operation: str) -> tuple[Question, ...]:
        own = (
            Question(Case(operation, corpus.DEFAULT, params, inputs, label=label), golden, corpus.OWN)
            for label, params, inputs, golden in self.sources.questions(operation)
        )
        return (*corpus.first(operation, self.sources.profiles), *own)

    def build(self, copy: Copy) -> Known:
        """Build a copy without optimising; it is asked the operations whose machine code differs."""
        try:
            built = self._built(copy.mutant, copy.folder / "plain", PLAIN)
        except Exception as error:
            if type(error).__name__ != "DoesNotCompile":
                raise
            return {"status": REFUSED, "how": str(error)}
        copy.operations, copy.changed = built.operations, _differing(built.code, self.plain)
        return {"changed": copy.changed} if copy.changed else {"status": OUTSIDE, "how": NO_CODE}

    def _built(self, mutant: Mutant, folder: Path, *level: str) -> Built:
        changed = {mutant.file: mutant.applied(self.text(mutant.file))}
        return self.sources.build(changed, folder, self.folder, *level)

    def optimised(self, mutant: Mutant, folder: Path) -> Built:
        """Build a mutant at the level that is released."""
        return self._built(mutant, folder)

    def ask(self, copy: Copy) -> Known:
        """Ask all frozen vectors on the changed operations, then other questions until an answer is wrong."""
        return ask(copy.operations, self._in_order(copy.changed))

    def _in_order(self, operations: Iterable[str]) -> Iterator[Question]:
        """Yield the frozen vectors on some operations, then the other questions by turns: no operation waits long."""
        questions = [self.questions(name) for name in operations]
        yield from (question for row in questions for question in row if question.place == "vector")
        rows = [iter([question for question in row if question.place != "vector"]) for row in questions]
        while rows:
            for row in list(rows):
                batch = list(itertools.islice(row, 8))
                if not batch:
                    rows.remove(row)
                yield from batch

    def settle(self, copy: Copy) -> Known:
        """Compare the optimised machine code of a survivor."""
        other = _differing(self.optimised(copy.mutant, copy.folder / "optimised").code, self.code)
        return {"changed": other} if other else {"status": EQUIVALENT, "how": SAME}

    def subject(self, copy: Copy) -> Subject:
        """Return a copy's optimised build as a subject."""
        claimed = tuple(name for name in self.sources.profiles if "+" not in name)
        return Subject(self.name, self.optimised(copy.mutant, copy.folder).operations, "host", claimed)

    def text(self, file: str) -> str:
        """Return the text of a source, of one that no operator changes too."""
        return self.texts[file] if file in self.texts else (self.sources.root / file).read_text()


def _differing(code: Mapping[str, str], own: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name, digest in code.items() if digest != own[name])


def ask(operations: Mapping[str, Callable[..., Any]], questions: Iterable[Question]) -> Known:
    """Ask all frozen vectors, and other questions until an answer is wrong; return the first, and how many vectors."""
    first: dict[str, Any] = {}
    seen: list[str] = []
    for question in questions:
        if first and question.place != "vector":
            continue
        how = corpus.wrong(operations, question)
        if how:
            first = first or {"status": KILLED, "how": how, **_place(question)}
            seen += [question.label] if question.place == "vector" else []
    return {**first, "vectors": len(seen), "only": seen[0] if len(seen) == 1 else ""}


def _place(question: Question) -> dict[str, str]:
    return {"operation": question.case.operation, "case": question.label[:160]}
