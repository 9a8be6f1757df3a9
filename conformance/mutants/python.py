"""The golden model and the comparator, mutated: what judges must be noticed when it is wrong itself.

A mutant's module is imported anew, in a process of its own, beside all that depends on it. A model's mutant is asked
the frozen vectors, then corner and sampled cases, whose right answers are those that the host build gives as well. A
comparator's mutant judges the controls, right and wrong implementations whose verdicts are known. What survives is
run against tests that are named.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from . import corpus
from .apart import apart
from .ledger import Ledger
from .operators import Mutant
from .python_operators import mutants_of
from .verdict import KILLED, REFUSED, SURVIVED, Verdict

ROOT = Path(__file__).resolve().parents[2]
OWN = ("refnum", "conformance")
"""Packages that are imported anew: what imports the changed module must see it."""
SECONDS = 240
LARGEST = 1 << 14
PROFILES = ("HOPPER", "OCP", "EVEN", "TE", "STOCHASTIC")

Asked = tuple[str, str, str, dict[str, Any], dict[str, np.ndarray], tuple[np.ndarray, ...]]
"""Label, operation, profile, parameters, inputs, right answers."""


@dataclass(frozen=True)
class Target:
    """Modules that are mutated, how a mutant is asked, and the tests that survivors are run against."""

    name: str
    files: tuple[str, ...]
    ask: Callable[[], str]
    tests: tuple[str, ...] = ()


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a text and leaves all others to the finders behind it."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        self.name, self.path, self.text = name, path, text

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Find the one module."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def create_module(self, spec: Any) -> None:
        """Take the usual module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed text."""
        exec(compile(self.text, str(self.path), "exec"), module.__dict__)


def with_change(file: str, text: str) -> None:
    """Make this process import a changed text for a file of the repository, and everything of ours anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]
    module = file.removesuffix(".py").replace("/", ".")
    sys.meta_path.insert(0, _Changed(module, ROOT / file, text))


def ask_model() -> str:
    """Return the first question that the model of this process answers wrongly, or nothing."""
    operation, case_type = (importlib.import_module(f"conformance.{name}") for name in ("operation", "case"))
    for label, name, profile, params, inputs, golden in _questions:
        try:
            with np.errstate(all="ignore"):
                answers = operation.call_golden(case_type.Case(name, profile, params, inputs))
        except Exception as error:
            return f"{label}: {type(error).__name__}"
        if corpus.differs(answers, golden):
            return label
    return ""


def ask_comparator() -> str:
    """Return the first control that gets a wrong verdict in this process, or nothing."""
    controls = importlib.import_module("conformance.controls")
    for control in controls.controls():
        try:
            controls.check_control(control)
        except Exception as error:
            return f"control {control.subject.name}: {str(error)[:120]}"
    return ""


TARGETS = (
    Target(
        "model",
        tuple(f"refnum/{name}.py" for name in (
            "rounding", "scales", "codec", "blocks", "tiles", "recast", "columns", "swiglu", "softfloat", "narrow",
            "philox", "layouts", "payload", "formats",
        )),
        ask_model,
        tuple(f"tests/refnum/test_{name}.py" for name in (
            "philox", "profiles", "layouts", "softfloat", "payload", "narrow", "published", "swiglu", "inputs",
            "dispatch",
        )),
    ),
    Target(
        "comparator",
        tuple(f"conformance/{name}.py" for name in ("compare", "bits", "geometry", "verdict", "judge", "tally")),
        ask_comparator,
        tuple(f"tests/conformance/test_{name}.py" for name in (
            "compare", "patterns", "grid", "run", "storage", "shrink", "show_data", "device_judging",
        )),
    ),
)  # fmt: skip

_questions: list[Asked] = []


def questions() -> Iterator[Asked]:
    """Yield what the model is asked: every frozen vector, then small corner and sampled cases, by turns."""
    from ..operation import OPERATIONS

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
class Shop:
    """A target whose sources were read."""

    workshop: Target
    texts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, target: Target) -> Shop:
        """Read the sources, and make the questions of a model."""
        if target.ask is ask_model and not _questions:
            _questions[:] = list(questions())
        return cls(target, {file: (ROOT / file).read_text() for file in target.files})

    def text(self, file: str) -> str:
        """Return a source as it was when the shop was opened."""
        return self.texts[file]

    def mutants(self) -> list[Mutant]:
        """Return every mutant of the operators."""
        return [mutant for file, text in self.texts.items() for mutant in mutants_of(file, text)]


def judge(shop: Shop, mutant: Mutant, tests: bool) -> Verdict:
    """Import a mutant and ask it; `tests`: run what survives against the target's tests."""
    start = time.monotonic()
    text = mutant.applied(shop.text(mutant.file))
    try:
        compile(text, mutant.file, "exec")
    except SyntaxError as error:
        return Verdict(mutant, REFUSED, str(error))
    found = apart(lambda: _asked(shop.workshop, mutant.file, text, tests), SECONDS)
    return Verdict(mutant, **{"status": SURVIVED, **found}, judged=time.monotonic() - start)


def _asked(target: Target, file: str, text: str, tests: bool) -> Mapping[str, str]:
    with_change(file, text)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            module = importlib.import_module(__name__)
            module._questions[:] = _questions
            wrong = getattr(module, target.ask.__name__)()
        except Exception as error:
            wrong = f"it cannot be imported: {type(error).__name__}"
        if wrong:
            return {"status": KILLED, "how": "other bytes", "case": wrong[:160]}
        return _tested(target.tests) if tests else {}


def _tested(files: Sequence[str]) -> Mapping[str, str]:
    import pytest

    os.chdir(ROOT)
    for file in files:
        if pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", file]) not in (0, 5):
            return {"status": KILLED, "how": "a test fails", "case": file}
    return {}


_shop: list[Shop] = []


def _judge_here(mutant: Mutant, tests: bool) -> Verdict:
    return judge(_shop[0], mutant, tests)


def run(shop: Shop, mutants: Sequence[Mutant], workers: int, ledger: Ledger | None, tests: bool) -> Iterator[Verdict]:
    """Yield the verdict of every mutant as it is there."""
    known = {mutant: ledger.known(shop, mutant) if ledger else None for mutant in mutants}
    yield from (verdict for verdict in known.values() if verdict is not None)
    _shop[:] = [shop]
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        left = [mutant for mutant, verdict in known.items() if verdict is None]
        waiting = [pool.submit(_judge_here, mutant, tests) for mutant in left]
        for done in as_completed(waiting):
            verdict = done.result()
            if ledger is not None:
                ledger.write(shop, verdict)
            yield verdict
