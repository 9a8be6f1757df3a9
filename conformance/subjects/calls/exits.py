"""`os._exit` called by a subject in the judging process: an error of the call, not the end of the run.

Caught is Python code in the thread of the call. A run that ends otherwise is seen by `isolation.supervisor` or, for a
subject in its own process, by that process's parent.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

_exit = os._exit
_judging = threading.local()


class ProcessExit(BaseException):
    """A subject asked for the end of the process. No Exception: a subject that catches those must not catch this."""


def _guarded(status: int) -> NoReturn:
    if getattr(_judging, "process", 0) == os.getpid():  # a child that a subject forked off may end
        raise ProcessExit(f"os._exit({status})")
    _exit(status)


def watch() -> None:
    """Put the guard in the place of `os._exit`; between judged calls it ends the process as ever."""
    modules: tuple[Any, ...] = (os, sys.modules[os.name])
    for module in modules:
        module._exit = _guarded


@contextmanager
def caught() -> Iterator[None]:
    """Raise ProcessExit where this thread calls `os._exit` in this context."""
    watch()
    before = getattr(_judging, "process", 0)
    _judging.process = os.getpid()
    try:
        yield
    finally:
        _judging.process = before
