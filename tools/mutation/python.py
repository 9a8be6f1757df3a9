"""The golden model and the comparator, mutated: what judges must be noticed when it is wrong itself.

A mutant's module is imported anew, in a process of its own, beside all that depends on it. A model's mutant is asked
the frozen vectors, then corner and sampled cases, whose right answers are those that the host build gives as well. A
comparator's mutant judges the controls, right and wrong implementations whose verdicts are known. What survives is
run against tests, the quickest first. Of all that, a mutant is asked what runs its statement (`coverage.py`).
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np

from refnum.conformance.commands.mutate import corpus
from refnum.conformance.commands.mutate.accepted import Reason, reasons_of
from refnum.conformance.commands.mutate.forked import OUR_FAULT
from refnum.conformance.commands.mutate.ledger import digest_of
from refnum.conformance.commands.mutate.operators import Mutant
from refnum.conformance.commands.mutate.verdict import KILLED, REFUSED
from refnum.conformance.commands.mutate.workshop import Copy, Known, Workshop
from tools.mutation.coverage import PYTEST, Coverage, record, silent
from tools.mutation.line_trace import ROOT, Lines, Recorder, forget, loaded_from, module_of
from tools.mutation.python_operators import mutants_of
from tools.mutation.python_targets import Target

NO_EFFECT = Path(__file__).parent / "no_effect.toml"
LARGEST = 1 << 14
PROFILES = ("HOPPER", "OCP", "EVEN", "TE", "STOCHASTIC")

Asked = tuple[str, str, str, dict[str, Any], dict[str, np.ndarray], tuple[np.ndarray, ...]]
"""Label, operation, profile, parameters, inputs, right answers."""


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a text and leaves all others to the finders behind it."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        self.name, self.path, self.text = name, path, text

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Find the one module."""
        if name != self.name:
            return None
        inside = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, self.path, loader=self, submodule_search_locations=inside)

    def create_module(self, spec: Any) -> None:
        """Take the usual module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed text."""
        exec(compile(self.text, str(self.path), "exec"), module.__dict__)


def with_change(file: str, text: str) -> None:
    """Make this process import a changed text for a file of the repository, and everything of ours anew."""
    forget()
    sys.meta_path.insert(0, _Changed(module_of(file), ROOT / loaded_from(file), text))


def model_questions() -> int:
    """Return how many questions a model is asked."""
    return len(_questions)


def ask_model(number: int) -> str:
    """Return a question's label if the model of this process answers it wrongly."""
    operation, case_type = (
        importlib.import_module(f"refnum.conformance.cases.{name}") for name in ("operation", "case")
    )
    label, name, profile, params, inputs, golden = _questions[number]
    try:
        with np.errstate(all="ignore"):
            answers = operation.call_golden(case_type.Case(name, profile, params, inputs))
    except OUR_FAULT:
        raise
    except Exception as error:
        return f"{label}: {type(error).__name__}"
    return label if corpus.differs(answers, golden) else ""


@functools.cache
def _controls() -> list[Any]:
    return list(importlib.import_module("refnum.conformance.commands.check.controls").controls())


def control_questions() -> int:
    """Return how many controls there are."""
    return len(_controls())


def ask_comparator(number: int) -> str:
    """Return a control's name if the comparator of this process misjudges it."""
    control = _controls()[number]
    try:
        importlib.import_module("refnum.conformance.commands.check.controls").check_control(control)
    except OUR_FAULT:
        raise
    except Exception as error:
        return f"control {control.subject.name}: {str(error)[:120]}"
    return ""


_questions: list[Asked] = []


def questions() -> Iterator[Asked]:
    """Yield what the model is asked: every frozen vector, then small corner and sampled cases, by turns."""
    from refnum.conformance.cases.operation import OPERATIONS

    names = (*OPERATIONS, corpus.LAYOUTS)
    rows = [[q for q in corpus.first(name, PROFILES) if q.case.elements <= LARGEST] for name in names]
    for places in (("vector",), ("layout", "key"), ("corner", "sampled")):
        turn = [iter([q for q in row if q.place in places and not q.given]) for row in rows]
        while turn:
            for row in list(turn):
                question = next(row, None)
                if question is None:
                    turn.remove(row)
                    continue
                case = question.case
                yield (
                    question.label,
                    case.operation,
                    case.profile,
                    dict(case.params),
                    dict(case.inputs),
                    question.golden,
                )


@dataclass
class Modules(Workshop):
    """The modules of a target. tested: whether survivors are run against tests. coverage: what runs which lines."""

    target: Target
    tested: bool = False
    coverage: Coverage = field(default_factory=Coverage)
    SECONDS = 150

    @classmethod
    def open(cls, target: Target, tested: bool = False) -> Self:
        """Read the sources."""
        return cls(target.name, {file: (ROOT / file).read_text() for file in target.files}, target, tested)

    @property
    def memory(self) -> int:
        """Bytes that a process may take beside the questions."""
        return self.target.memory

    def mutants(self) -> list[Mutant]:
        """Return every mutant of the operators."""
        return [mutant for file, text in self.texts.items() for mutant in mutants_of(file, text)]

    def digest(self, file: str) -> str:
        """Return a digest of every source of the target."""
        return digest_of(self.texts, self.texts)

    def prepare(self, mutants: Sequence[Mutant], workers: int) -> None:
        """Make the questions of a model, and run every question and every test that is wanted once, unchanged."""
        target = self.target
        if target.ask == "ask_model" and not _questions:
            _questions[:] = list(questions())
        tests = target.tests if self.tested else ()
        self.coverage = record(target.files, lambda recorder: _listened(target, recorder), tests, workers, self.memory)

    def build(self, copy: Copy) -> Known:
        """Compile the changed text to byte code; Python keeps nothing of that."""
        try:
            compile(self._changed(copy), copy.mutant.file, "exec")
        except SyntaxError as error:
            return {"status": REFUSED, "how": str(error)}
        return {}

    def ask(self, copy: Copy) -> Known:
        """Import a mutant, ask it the questions that run its statement, and run the tests that do."""
        file = copy.mutant.file
        questions, tests = self.coverage.of(copy.mutant, self.texts[file])
        told = _asked(self.target, file, self._changed(copy), questions, tests)
        return {"how": f"{len(questions)} questions, {len(tests)} tests", **told}

    def _changed(self, copy: Copy) -> str:
        return copy.mutant.applied(self.texts[copy.mutant.file])


def reasons() -> tuple[Reason, ...]:
    """Return the changes that no question can show, with their reasons."""
    return reasons_of(tomllib.loads(NO_EFFECT.read_text())["change"])


def _listened(target: Target, recorder: Recorder) -> Iterator[Lines]:
    module = _fresh()
    for number in range(getattr(module, target.asked)()):
        with recorder.listening() as lines:
            wrong = getattr(module, target.ask)(number)
        assert not wrong, wrong
        yield frozenset(lines)


def _fresh() -> ModuleType:
    """Return this module as it is imported anew, with the questions of this process."""
    module = importlib.import_module(__name__)
    module._questions[:] = _questions
    return module


def _asked(
    target: Target, file: str, text: str, questions: Sequence[int], tests: Sequence[str] = ()
) -> Mapping[str, str]:
    with_change(file, text)
    with silent():
        wrong = _wrong(target, file, questions)
        if wrong:
            return {"status": KILLED, "how": "other bytes", "case": wrong[:160]}
        return _tested(tests) if tests else {}


def _wrong(target: Target, file: str, questions: Sequence[int]) -> str:
    """Return in words what the mutant of this process answers wrongly, or nothing.

    Raises MemoryError, and another error of `OUR_FAULT` where the unchanged text does not do without it.
    """
    number: int | None = None
    try:
        importlib.import_module(module_of(file))
        module = _fresh()
        for number in questions:
            if words := getattr(module, target.ask)(number):
                return str(words)
    except MemoryError:
        raise
    except OUR_FAULT as error:
        if not _right_unchanged(target, file, number):
            raise
        return f"{'it cannot be imported' if number is None else f'question {number}'}: {type(error).__name__}"
    except Exception as error:
        return f"it cannot be imported: {type(error).__name__}"
    return ""


def _right_unchanged(target: Target, file: str, number: int | None) -> bool:
    """Whether the unchanged text is imported and answers a question rightly, now and in this process."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Changed)]
    forget()
    try:
        importlib.import_module(module_of(file))
        module = _fresh()
        return number is None or not getattr(module, target.ask)(number)
    except Exception:
        return False


def _tested(names: Sequence[str]) -> Mapping[str, str]:
    import pytest

    failed: list[str] = []
    large: list[MemoryError] = []

    class First:
        def pytest_exception_interact(self, call: Any) -> None:
            large.extend([call.excinfo.value] * isinstance(call.excinfo.value, MemoryError))

        def pytest_runtest_logreport(self, report: Any) -> None:
            failed.extend([report.nodeid] * report.failed)

    os.chdir(ROOT)
    if pytest.main(["-x", *PYTEST, *names], plugins=[First()]) in (0, 5):
        return {}
    if large:
        raise large[0]
    return {"status": KILLED, "how": "a test fails", "case": next(iter(failed), "tests cannot be collected")[:160]}
