"""What a run tells while it works, on standard error: lines, and on a terminal a bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from ...reports.terminal import console
from .run import Progress


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """Yield the callbacks of a run: a line at once where vectors show a bug, and a bar with the variant at work."""
    err = console(stderr=True)
    if quiet:
        yield Progress()
        return
    if not err.is_terminal:
        yield Progress(wrong=lambda words: err.print(words, markup=False, soft_wrap=True))
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield Progress(
            start=lambda variants: bar.update(task, total=variants),
            enter=lambda name: bar.update(task, description=name.replace("[", "\\[")),
            wrong=lambda words: bar.console.print(words, markup=False, soft_wrap=True),
            leave=lambda results: bar.advance(task),
        )
