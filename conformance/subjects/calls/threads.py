"""Threads that are used again: to start one takes longer than most calls of a kernel.

A thread waits at a pipe, and so does who waits for it: neither holds the interpreter's lock then, nor wakes to find it
taken, which halves what a lock or a queue costs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import Context
from os import getpid, read, write  # as they are now: a kernel may replace those of the module
from select import POLLIN, poll

from .float_mode import default_float_mode

Job = Callable[[], object]


class _Thread:
    """A thread that does one job after the other."""

    def __init__(self) -> None:
        """Start it."""
        self.jobs, self.begin = os.pipe()
        self.ended, self.end = os.pipe()
        self.process = getpid()
        self.job: Job = default_float_mode
        threading.Thread(target=self._work, daemon=True).start()

    def do(self, job: Job) -> None:
        """Begin a job."""
        self.job = job
        write(self.begin, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the job at most so many seconds, 0 for ever; return whether it has ended."""
        self._stay()
        if seconds:
            one = poll()
            one.register(self.ended, POLLIN)
            if not one.poll(1000 * seconds):
                return False
        read(self.ended, 1)
        _idle.append(self)
        return True

    def _work(self) -> None:
        while True:
            read(self.jobs, 1)
            default_float_mode()
            Context().run(self.job)
            self._stay()
            write(self.end, b"\0")

    def _stay(self) -> None:
        """End a process that a job forked off and that came back here: the pipes are not its own."""
        if getpid() != self.process:
            os._exit(1)


_idle: list[_Thread] = []
"""Threads that have nothing to do."""
os.register_at_fork(after_in_child=_idle.clear)


def in_a_thread(job: Job) -> Callable[[float], bool]:
    """Run a job, which raises nothing, in a thread whose float mode and context are those of a new one.

    Returns:
        A function that waits at most so many seconds, 0 for ever, and returns whether the job has ended. A thread whose
        job was given up is not used again; it is a daemon and ends with the process.
    """
    thread = _idle.pop() if _idle else _Thread()
    thread.do(job)
    return thread.wait
