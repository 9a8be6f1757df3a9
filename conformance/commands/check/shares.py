"""A run in shares: the variants of one operation and one choice of parameters each, judged by processes side by side.

A share is a plan of its own, so what one variant decides for another stays within an operation's parameters: proofs of
a domain under several profiles. What is asked in full once an operation is asked in the share that has the first
variant of its kind, as in one process.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...cases.operation import OPERATIONS
from ...reports.report import COMPLETE, Report
from ...subjects.choose import Choice, choose
from ..processes import die_with_parent, keep_memory
from .plan import Plan, Progress, Share, shares_of, variants
from .run import run

MOST_WORKERS = 16
"""Processes at most where nobody says how many: each holds the golden outputs of its largest case."""


@dataclass(frozen=True)
class Request:
    """What a check was asked to do, as every process that takes part in it understands it."""

    names: tuple[str, ...]
    isolate: bool | None
    operations: tuple[str, ...]
    named: frozenset[str]
    profiles: tuple[str, ...]
    contract: tuple[str, ...]
    level: str
    seed: int
    examples: int
    seconds: float

    def choose(self) -> Choice:
        """Return the subjects, within the contract of inputs."""
        chosen = choose(list(self.names), self.isolate)
        chosen.usable = [one.within(self.contract) for one in chosen.usable]
        return chosen

    def plan(self, chosen: Choice) -> Plan:
        """Return the plan of all that is asked."""
        return Plan(
            chosen.usable,
            [OPERATIONS[name] for name in self.operations],
            list(self.profiles) or None,
            self.level,
            self.seed,
            self.examples,
            self.seconds,
            named=self.named,
            special=True,
        )


def workers_for(plan: Plan, wanted: int | None) -> int:
    """Return in how many processes a plan is judged: as many as are wanted, or one a processor.

    One where the level is smoke, which takes seconds, and where a subject is on a device, which the processes would
    share, unless a number is wanted.
    """
    if wanted is None:
        alone = plan.level == "smoke" or any(subject.arrays not in ("numpy", "torch") for subject in plan.subjects)
        wanted = 1 if alone else min(MOST_WORKERS, _processors())
    return 1 if wanted == 1 else max(1, min(wanted, len(shares_of(plan))))


def _processors() -> int:
    """Return the processors that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


class Processes(NamedTuple):
    """Processes that judge shares, and where they tell their progress."""

    executor: ProcessPoolExecutor
    queue: Any


@contextmanager
def processes(request: Request, count: int) -> Iterator[Processes | None]:
    """Start so many processes, which load the harness and the subjects; yield None for one, which is this process."""
    if count == 1:
        yield None
        return
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    queue = context.SimpleQueue()
    with ProcessPoolExecutor(count, context, _begin, (queue,)) as executor:
        try:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until `_begin`: it may find imports
            try:
                for _ in range(count):
                    executor.submit(_load, request)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield Processes(executor, queue)
        except KeyboardInterrupt:
            for process in list((executor._processes or {}).values()):  # which would first load to the end
                process.kill()
            raise


def run_shares(
    request: Request,
    plan: Plan,
    report: Report,
    started: Processes,
    progress: Progress,
    checkpoint: Callable[[Report], None] | None = None,
) -> None:
    """Run a plan in several processes and fill the report; on Ctrl-C it stays partial and holds what was done.

    The processes end here.

    Raises:
        concurrent.futures.process.BrokenProcessPool: a process ended by itself, as one does that a kernel kills.
    """
    order = {one.name: place for place, one in enumerate(variants(plan))}
    progress.start(len(order))
    if checkpoint is not None:
        checkpoint(report)
    complete = 0
    with _listening(started.queue, progress), started.executor as pool:  # what they tell is read until they end
        futures = [pool.submit(_judge, request, share) for share in shares_of(plan)]
        for part in _parts(futures, pool):
            report.results += part.results
            report.harness += part.harness
            complete += part.status == COMPLETE
            if checkpoint is not None:
                checkpoint(report)
    report.results.sort(key=lambda result: order[result["variant"]])
    if complete == len(futures):
        report.status = COMPLETE


def _parts(futures: list[Future[Report]], pool: ProcessPoolExecutor) -> Iterator[Report]:
    """Yield the reports of shares as they end; on Ctrl-C stop those at work and yield what they have."""
    seen: set[Future[Report]] = set()
    while True:
        try:
            for future in as_completed(set(futures) - seen):
                seen.add(future)
                if not future.cancelled():
                    yield future.result()
            return
        except KeyboardInterrupt:
            for future in futures:
                future.cancel()
            for process in list(pool._processes.values()):  # the pool has no public way to reach them
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGINT)


@contextmanager
def _listening(queue: Any, progress: Progress) -> Iterator[None]:
    """Pass on what the processes tell until the block ends; that a subject is wrong, once an operation."""
    wrong: set[str] = set()

    def listen() -> None:
        while (told := queue.get()) is not None:
            kind, words = told
            head = words.partition("[")[0]
            if kind != "wrong" or head not in wrong:
                getattr(progress, kind)([] if kind == "leave" else words)
            if kind == "wrong":
                wrong.add(head)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        queue.put(None)
        thread.join()


_queue: list[Any] = []
"""In a process of the pool: where it tells its progress."""


def _begin(queue: Any) -> None:
    """Begin a process: print to standard error, heed Ctrl-C only while a share is judged, and die with the parent.

    It keeps the memory that it frees.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.stdout = sys.stderr
    _queue.append(queue)
    keep_memory()
    die_with_parent()


def _interrupt(*_: Any) -> None:
    """Interrupt the share once: Ctrl-C in a terminal reaches this process, and the parent passes it on too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


_chosen = functools.cache(Request.choose)


def _load(request: Request) -> None:
    """Load the subjects in this process; they stay here."""
    _chosen(request)


def _judge(request: Request, share: Share) -> Report:
    """Judge one share in this process, and return its results in a report without a header."""
    tell = _queue[0].put
    progress = Progress(
        enter=lambda name: tell(("enter", name)),
        wrong=lambda words: tell(("wrong", words)),
        leave=lambda results: tell(("leave", "")),
    )
    plan = replace(request.plan(_chosen(request)), share=share, operations=[OPERATIONS[share.operation]])
    signal.signal(signal.SIGINT, _interrupt)
    try:
        return run(plan, Report({}), progress)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
