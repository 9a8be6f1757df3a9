"""What the commands share: options that several take, and how an error of ours is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from refnum.errors import RefnumError

from ..reports.printable import shown
from ..reports.report import EXIT_MISMATCH, EXIT_USAGE

Subjects = Annotated[
    list[str] | None,
    typer.Option(
        "--subject",
        "-s",
        help="Name, pattern or kind of those that `refnum subjects` lists, `peers`, `all`, `model`, "
        "path/to/file.py:NAME, libkernel.so or exec:PATH. May be repeated. Default: every kernel that is installed and "
        "usable here.",
    ),
]
Isolate = Annotated[
    bool | None,
    typer.Option(
        "--isolate/--no-isolate",
        help="Call subjects in separate processes. Default: subjects from files and libraries.",
    ),
]


def told(function: Callable[..., None]) -> Callable[..., None]:
    """Turn an error of ours, and want of memory, into one sentence on standard error and exit status 2.

    A SystemExit is that of a subject, for commands end with `typer.Exit`: then the exit status is 1. It is that of the
    console, and needs no words, where the reader of standard output has stopped reading.
    """

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except RefnumError as error:
            print(f"refnum: {shown(str(error))}", file=sys.stderr)
            raise typer.Exit(EXIT_USAGE) from error
        except SystemExit as error:
            if not isinstance(error.__context__, BrokenPipeError):
                print(f"refnum: something ended the run with SystemExit({error.code!r}): no verdict.", file=sys.stderr)
            raise typer.Exit(EXIT_MISMATCH) from error
        except MemoryError as error:  # of ours: a subject's is an outcome
            print(f"refnum: this machine has too little memory for it: {error}".rstrip(": "), file=sys.stderr)
            raise typer.Exit(EXIT_USAGE) from error

    return wrapped
