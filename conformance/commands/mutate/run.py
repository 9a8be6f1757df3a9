"""The mutation run: every mutant is built, asked in a process of its own, and told apart.

killed: an answer differs, or the process dies, or does not come back. survived: no question sees a difference.
equivalent: the machine code is the same. outside: the build has no code of that place. does not compile: the compiler
refuses; never counted as killed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from refnum.errors import UnsupportedError

from .forked import Ended, call_each_forked
from .ledger import Ledger
from .operators import Mutant
from .verdict import SURVIVED, Verdict
from .workshop import Copy, Known, Workshop

TOGETHER = 16
"""Mutants that are asked quick questions in one process."""
_here: list[Workshop] = []
"""The workshop of this process, and of those that are forked from it."""
_places = get_context("fork").Value("i", 0)
"""How many judging processes were given a GPU."""


def _never() -> bool:
    return False


def run(
    workshop: Workshop,
    mutants: Sequence[Mutant],
    workers: int,
    ledger: Ledger | None = None,
    hints: Mapping[str, str] | None = None,
    gpus: Sequence[str] = (),
    busy: Callable[[], bool] = _never,
) -> Iterator[Verdict]:
    """Yield the verdict of every mutant as soon as it is known.

    Args:
        workshop: What is mutated.
        mutants: Which of its mutants.
        workers: Processes.
        ledger: Verdicts of earlier runs, which are not judged again; those of this run are appended.
        hints: Mutant id -> an operation that is likely to show it, so that its units are built first.
        gpus: Indices or UUIDs, to which the processes are given in turns; all that CUDA sees when left out.
        busy: Whether the GPUs are not free yet; mutants are compiled ahead until they are.

    Raises:
        UnsupportedError: The unchanged sources give a wrong answer, so that nothing can be judged.
    """
    workshop.compile(mutants, workers)
    known = {mutant: ledger.known(workshop, mutant) if ledger else None for mutant in mutants}
    yield from (verdict for verdict in known.values() if verdict is not None)
    left = [mutant for mutant, verdict in known.items() if verdict is None]
    if not left:
        return
    workshop.prepare(left, workers)
    for verdict in _judged(workshop, left, workers, hints or {}, gpus, busy):
        if ledger is not None:
            ledger.write(workshop, verdict)
        yield verdict


def _judged(
    workshop: Workshop,
    mutants: Sequence[Mutant],
    workers: int,
    hints: Mapping[str, str],
    gpus: Sequence[str],
    busy: Callable[[], bool],
) -> Iterator[Verdict]:
    """Compile ahead while the GPUs are busy, ask the controls, then the quick questions, then each mutant by itself."""
    left = {mutant: hints.get(mutant.id, "") for mutant in mutants}
    for verdict in _compiled_ahead(workshop, left, workers, busy):
        del left[verdict.mutant]
        yield verdict
    with pool(workshop, workers, gpus) as judges:
        _hold(judges.map(on_workshop(_control), workshop.controls(list(left))))
        for verdict in _quickly(left, judges) if workshop.slow_start else ():
            del left[verdict.mutant]
            yield verdict
        in_order = sorted(left.items(), key=lambda pair: -workshop.unit_count(pair[0]))
        for done in as_completed([judges.submit(on_workshop(judge), *pair) for pair in in_order]):
            yield done.result()


def judge(workshop: Workshop, mutant: Mutant, hint: str = "") -> Verdict:
    """Build a mutant, ask it in a process of its own, and settle a survivor. hint: the operation to ask first."""
    start = time.monotonic()
    with _copy(mutant, hint) as copy:
        found = dict(workshop.build(copy))
        built = time.monotonic() - start
        if "status" not in found:
            found.update(workshop.judge(copy))
            if found.get("status", SURVIVED) == SURVIVED:
                found.update(workshop.settle(copy))
    return _verdict(mutant, found, built, time.monotonic() - start - built)


def build(workshop: Workshop, mutant: Mutant, hint: str = "") -> Verdict | None:
    """Build a mutant; return its verdict where there is nothing to ask."""
    start = time.monotonic()
    with _copy(mutant, hint) as copy:
        found = workshop.build(copy)
    return _verdict(mutant, found, time.monotonic() - start, 0.0) if "status" in found else None


def judge_quickly(workshop: Workshop, mutant: Mutant, hint: str = "") -> Verdict | None:
    """Ask a mutant the quick questions in this process; return None where it must be judged by itself."""
    start = time.monotonic()
    with _copy(mutant, hint) as copy:
        found = workshop.ask_quickly(copy)
    return _verdict(mutant, found, 0.0, time.monotonic() - start) if "status" in found else None


@contextlib.contextmanager
def _copy(mutant: Mutant, hint: str) -> Iterator[Copy]:
    with tempfile.TemporaryDirectory(prefix="refnum-mutant-", ignore_cleanup_errors=True) as folder:
        yield Copy(mutant, Path(folder), hint)


def _verdict(mutant: Mutant, found: Known, built: float, judged: float) -> Verdict:
    values: dict[str, Any] = {"status": SURVIVED, **found, "changed": tuple(found.get("changed", ()))}
    values.pop("number", None)
    return Verdict(mutant, **values, built=built, judged=judged)


def pool(workshop: Workshop, workers: int, gpus: Sequence[str] = ()) -> ProcessPoolExecutor:
    """Return a pool of forked processes that have a workshop, see `on_workshop`; they are given the GPUs in turns."""
    _here[:] = [workshop]
    return ProcessPoolExecutor(workers, mp_context=get_context("fork"), initializer=_place, initargs=(tuple(gpus),))


def _place(gpus: Sequence[str]) -> None:
    """Give this process the next GPU, before it starts CUDA."""
    if gpus:
        with _places.get_lock():
            number, _places.value = _places.value, _places.value + 1
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]


def _compiled_ahead(
    workshop: Workshop, mutants: Mapping[Mutant, str], workers: int, busy: Callable[[], bool]
) -> Iterator[Verdict]:
    """Build mutants while the GPUs are busy; yield the verdicts of those of which nothing is asked."""
    if not busy():
        return
    with pool(workshop, workers) as compilers:
        for done in as_completed([compilers.submit(on_workshop(build), *pair) for pair in list(mutants.items())]):
            verdict = done.result()
            if verdict is not None:
                yield verdict
            if not busy():
                compilers.shutdown(cancel_futures=True)
                return
    while busy():
        time.sleep(0.2)


def _quickly(mutants: Mapping[Mutant, str], judges: ProcessPoolExecutor) -> Iterator[Verdict]:
    """Yield the verdicts that quick questions give, asked of several mutants in one process."""
    pairs = [pair for pair in mutants.items() if pair[0].line]  # a changed flag would hold for the whole process
    batches = max(1, len(pairs) // TOGETHER)
    turns = [pairs[number::batches] for number in range(batches)]
    for done in as_completed([judges.submit(on_workshop(_judge_quickly_in_turn), turn) for turn in turns]):
        yield from done.result()


def on_workshop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a process of `pool` calls: a function whose first argument is the workshop, which is not copied."""
    return functools.partial(_call_here, function)


def _call_here(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(_here[0], *arguments)


def _control(workshop: Workshop, operation: str) -> Known:
    return workshop.control(operation)


def _judge_quickly_in_turn(workshop: Workshop, pairs: Sequence[tuple[Mutant, str]]) -> list[Verdict]:
    found = call_each_forked(lambda pair: judge_quickly(workshop, *pair), pairs, workshop.SECONDS)
    return [verdict for _, verdict in found if verdict is not None and not isinstance(verdict, Ended)]


def _hold(controls: Iterable[Known]) -> None:
    for wrong in controls:
        if wrong:
            raise UnsupportedError(f"the sources as they are fail, so that nothing can be judged: {dict(wrong)}")
