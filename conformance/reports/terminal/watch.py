"""How far long work is, on standard error: a bar on a terminal, elsewhere a line a stage and one now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

EVERY = 10.0
"""Seconds after which a line says how far a stage is, where there is no bar."""


class Watch:
    """Told of stages and steps; this one shows nothing."""

    def enter(self, stage: str, total: int | None = None) -> None:
        """Begin a stage of so many steps, or of an unknown number."""

    def step(self) -> None:
        """Count a step as done."""


class _Lines(Watch):
    def __init__(self, err: Console) -> None:
        self.err, self.stage, self.total, self.done, self.told = err, "", 0, 0, 0.0

    def enter(self, stage: str, total: int | None = None) -> None:
        self.stage, self.total, self.done, self.told = stage, total or 0, 0, time.monotonic()
        self._tell(stage)

    def step(self) -> None:
        self.done += 1
        if time.monotonic() - self.told >= EVERY:
            self.told = time.monotonic()
            self._tell(f"{self.stage}: {self.done:,} of {self.total:,}")

    def _tell(self, words: str) -> None:
        self.err.print(words, markup=False, soft_wrap=True)


class _Bar(Watch):
    def __init__(self, bar: Bar) -> None:
        self.bar, self.task = bar, bar.add_task("", total=None)

    def enter(self, stage: str, total: int | None = None) -> None:
        self.bar.reset(self.task, total=total, description=stage)

    def step(self) -> None:
        self.bar.advance(self.task)


@contextmanager
def watched(err: Console) -> Iterator[Watch]:
    """Yield what is to be told of work; a bar is gone when the work is done."""
    if not err.is_terminal:
        yield _Lines(err)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=err, transient=True) as bar:
        yield _Bar(bar)
