"""The progress bar of a run: on standard error, and only when that is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from ..run import Progress
from . import console


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """Yield the callbacks of a run that draw a bar: variants done, the variant at work, elements judged."""
    err = console(stderr=True)
    if quiet or not err.is_terminal:
        yield Progress()
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield Progress(
            start=lambda variants: bar.update(task, total=variants),
            enter=lambda name: bar.update(task, description=name.replace("[", "\\[")),
            leave=lambda results: bar.advance(task),
        )
