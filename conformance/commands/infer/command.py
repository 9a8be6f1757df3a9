"""`refnum infer`: options in, one inference, its table out."""

from __future__ import annotations

from typing import Annotated

import typer

from ...reports import terminal
from ..options import Isolate, told
from . import infer_profile
from .show import tell


@told
def infer(
    subject: Annotated[str, typer.Option("--subject", "-s", help="As for `check`; exactly one subject.")],
    operation: Annotated[str | None, typer.Option("--operation", "-o", help="Default: its only one.")] = None,
    isolate: Isolate = None,
    timeout: Annotated[float, typer.Option(min=0.0, help="Seconds that one call of a subject may take.")] = 60.0,
) -> None:
    """Say which profile a kernel follows, and for each choice the input that decides it."""
    err = terminal.console(stderr=True)
    found = infer_profile(
        subject, operation, isolate, timeout, lambda words: err.print(words, markup=False, soft_wrap=True)
    )
    raise typer.Exit(tell(found, terminal.console()))
