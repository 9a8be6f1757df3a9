"""Threads that are used again: to start one takes longer than most calls of a kernel."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue

from .float_mode import default_float_mode

Job = Callable[[], object]
_idle: list[SimpleQueue[Job]] = []
"""Where the threads that have nothing to do wait for a job."""
os.register_at_fork(after_in_child=_idle.clear)


def in_a_thread(job: Job) -> Callable[[float], bool]:
    """Run a job, which raises nothing, in a thread whose float mode and context are those of a new one.

    Returns:
        A function that waits at most so many seconds, 0 for ever, and returns whether the job has ended. A thread whose
        job was given up is not used again; it is a daemon and ends with the process.
    """
    jobs = _idle.pop() if _idle else _new()
    at_work = threading.Lock()  # a third of the cost of an Event
    at_work.acquire()

    def run() -> None:
        default_float_mode()
        Context().run(job)
        at_work.release()

    def wait(seconds: float) -> bool:
        if at_work.acquire(timeout=seconds or -1):
            _idle.append(jobs)
            return True
        return False

    jobs.put(run)
    return wait


def _new() -> SimpleQueue[Job]:
    """Start a thread; return where it waits for jobs."""
    jobs: SimpleQueue[Job] = SimpleQueue()
    threading.Thread(target=_work, args=(jobs,), daemon=True).start()
    return jobs


def _work(jobs: SimpleQueue[Job]) -> None:
    while True:
        jobs.get()()
