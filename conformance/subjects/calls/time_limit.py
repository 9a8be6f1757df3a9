"""The time limit of a call."""

from __future__ import annotations

import threading
from _signal import signal  # type: ignore[import-not-found]  # that of `signal` looks for a constant, ten times as long
from collections.abc import Iterator
from contextlib import contextmanager
from signal import ITIMER_REAL, SIGALRM, setitimer
from typing import Any


class CallTimeout(BaseException):
    """A call ran past its limit. It is no Exception: a subject that catches those must not catch this one."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise CallTimeout in the main thread after some seconds; other threads have no limit.

    A hang inside one call into C is noticed only when that call ends.

    Args:
        seconds: the limit; 0 for none.

    Raises:
        CallTimeout: the block ran past the limit.
    """
    if seconds <= 0 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_signal: int, _frame: Any) -> None:
        raise CallTimeout(f"no answer within {seconds:g} s")

    before = signal(SIGALRM, expire)
    setitimer(ITIMER_REAL, seconds)
    try:
        yield
    finally:
        setitimer(ITIMER_REAL, 0)
        signal(SIGALRM, before)
