"""What runs a line: which questions and which tests run which lines of the files that are mutated.

All is run once, unchanged, under a trace. A mutant is then asked only what runs its statement: nothing else can see
it. A table that is made once and kept is no exception: its lines count for all that read it, not only for what asked
first. What runs at import concerns everything. A test counts if it passes, by itself, in time and
in the memory that a mutant may take. What a test runs in another process is not seen.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import itertools
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from refnum.conformance.commands.mutate.forked import call_forked
from refnum.conformance.commands.mutate.operators import Mutant
from refnum.errors import UnsupportedError
from tools.mutation.line_trace import ROOT, Lines, Recorder, module_of

PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler")
LONGEST, IN_ALL = 4, 60
"""CPU seconds, under the trace, of a test that is worth asking, and of all tests that one mutant is asked."""
ADDRESS = " at 0x"
"""In the name of a test whose next process has another name for it: it could not be found there."""
PARTS, RECORDING = 8, 120
"""Processes that share the tests of a file, at most, and the CPU seconds that each may record."""


@dataclass
class Coverage:
    """What runs each line. questions: line -> numbers, in their order. tests: line -> names, the quickest first."""

    imported: Lines = frozenset()
    asked: int = 0
    questions: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    tests: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def of(self, mutant: Mutant, text: str) -> tuple[Sequence[int], list[str]]:
        """Return the questions and the tests that run a mutant's statement."""
        places = [(mutant.file, line) for line in statement(text, mutant.line)]
        if any(place in self.imported for place in places):
            return range(self.asked), self._in_time(self.seconds)
        questions = sorted({n for place in places for n in self.questions.get(place, ())})
        return questions, self._in_time({name for place in places for name in self.tests.get(place, ())})

    def _in_time(self, names: Collection[str]) -> list[str]:
        chosen, left = [], float(IN_ALL)
        for name in sorted(names, key=lambda name: (self.seconds[name], name)):
            left -= self.seconds[name]
            if left < 0:
                break
            chosen.append(name)
        return chosen


@functools.cache
def _statements(text: str) -> list[tuple[int, int]]:
    """Return (first, last) line of every statement, of a compound one its head, the outer ones first."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            found.append((node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or 0))
    return sorted(found)


def statement(text: str, line: int) -> range:
    """Return the lines of the innermost statement at a line."""
    around = [(first, last) for first, last in _statements(text) if first <= line <= last]
    return range(around[-1][0], around[-1][1] + 1) if around else range(line, line + 1)


class _Plugin:
    """Of pytest: runs one part of the tests of a file and notes the lines of each, those of shared fixtures too."""

    def __init__(self, recorder: Recorder, part: int, parts: int) -> None:
        self.recorder, self.part, self.parts = recorder, part, parts
        self.collected: set[tuple[str, int]] = set()
        self.fixtures: dict[Any, set[tuple[str, int]]] = {}
        self.lines: dict[str, Lines] = {}
        self.seconds: dict[str, float] = {}
        self.passed: dict[str, bool] = {}

    def hooks(self) -> Any:
        """Return the plugin, its hooks marked as pytest wants them."""
        import pytest

        recorder, plugin = self.recorder, self

        class Hooks:
            @pytest.hookimpl(wrapper=True)
            def pytest_make_collect_report(self, collector: Any) -> Any:
                with recorder.listening() as lines:
                    report = yield
                plugin.collected |= lines
                return report

            def pytest_collection_modifyitems(self, items: list[Any]) -> None:
                items[:] = items[plugin.part :: plugin.parts]

            @pytest.hookimpl(wrapper=True)
            def pytest_fixture_setup(self, fixturedef: Any) -> Any:
                with recorder.listening() as lines:
                    result = yield
                plugin.fixtures.setdefault(fixturedef, set()).update(lines)
                return result

            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_protocol(self, item: Any) -> Any:
                start = time.process_time() - recorder.spent
                with recorder.listening() as lines, _alarm(LONGEST):
                    result = yield
                plugin.seconds[item.nodeid] = time.process_time() - recorder.spent - start
                used = item._fixtureinfo.name2fixturedefs.values()
                shared = [plugin.fixtures.get(each, set()) for fixtures in used for each in fixtures]
                plugin.lines[item.nodeid] = frozenset(lines.union(plugin.collected, *shared))
                return result

            def pytest_runtest_logreport(self, report: Any) -> None:
                plugin.passed[report.nodeid] = plugin.passed.get(report.nodeid, True) and report.passed

        return Hooks()


class _TooLongError(BaseException):
    """A test that takes longer than it is worth."""


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Let nothing be printed."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


Recorded = dict[str, tuple[float, Lines]]
Questions = Callable[[Recorder], Iterator[Lines]]
_asking: list[tuple[tuple[str, ...], Questions]] = []


def _record_tests(job: tuple[tuple[str, ...], str, int, int], memory: int) -> Recorded:
    found = call_forked(lambda: {"tests": _recorded_here(*job)}, RECORDING * PARTS // job[-1], memory)
    return dict(found.get("tests", {}))


def _recorded_here(files: tuple[str, ...], test: str, part: int, parts: int) -> Recorded:
    import pytest

    os.chdir(ROOT)
    recorder = Recorder(files)
    recorder.imported(map(module_of, files))
    plugin = _Plugin(recorder, part, parts)
    with silent():
        pytest.main([*PYTEST, test], plugins=[plugin.hooks()])
    kept = (name for name, passed in plugin.passed.items() if passed and name in plugin.lines and ADDRESS not in name)
    return {name: (plugin.seconds[name], plugin.lines[name]) for name in kept}


def _record_questions(memory: int) -> Mapping[str, Any]:
    return dict(call_forked(_asked_here, RECORDING, memory))


def _asked_here() -> Mapping[str, Any]:
    files, questions = _asking[0]
    recorder = Recorder(files)
    imported = recorder.imported(map(module_of, files))
    with silent():
        return {"imported": imported, "lines": list(questions(recorder))}


def record(files: tuple[str, ...], questions: Questions, tests: Sequence[str], workers: int, memory: int) -> Coverage:
    """Run everything once, unchanged, in processes of `memory` bytes each.

    questions: in a process of its own, yields the lines of each question in turn. Raises UnsupportedError where one of
    them fails, so that nothing can be judged.
    """
    coverage, parts = Coverage(), min(PARTS, workers)
    _asking[:] = [(files, questions)]
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        asking = pool.submit(_record_questions, memory)
        jobs = [(files, test, part, parts) for part in range(parts) for test in tests]
        waiting = pool.map(_record_tests, jobs, itertools.repeat(memory))
        asked = asking.result()
        if "lines" not in asked:
            pool.shutdown(cancel_futures=True)
            raise UnsupportedError(f"the sources as they are fail, so that nothing can be judged: {asked['how']}")
        coverage.imported, coverage.asked = asked["imported"], len(asked["lines"])
        for number, lines in enumerate(asked["lines"]):
            for line in lines:
                coverage.questions.setdefault(line, []).append(number)
        for name, (seconds, lines) in (item for found in waiting for item in found.items()):
            coverage.seconds[name] = seconds
            for line in lines:
                coverage.tests.setdefault(line, set()).add(name)
    return coverage
