"""One call in a process of its own: a mutant may crash, or never come back."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import resource
import select
import signal
import struct
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .verdict import BY_LIMIT, KILLED, SURVIVED

Item = TypeVar("Item")
Result = TypeVar("Result")
LENGTH = struct.Struct("<Q")

LATE, RAISED = f"{BY_LIMIT} CPU time: did not come back", "it raised"
STUCK = "a call did not come back"
"""What is said when a process runs into its profiling timer, which it may set anew before every call."""
OUR_FAULT = (ImportError, MemoryError, SyntaxError)
"""Errors that no mutant of a kernel raises: what judges is broken, or too large, and has judged nothing."""
PATIENCE = 4
"""A process is waited for so many times its CPU seconds: a crowded host gives it less than a processor."""


@dataclass(frozen=True)
class Ended:
    """How an item ended the process that it was given to, in the words of `call_forked`: a kill, or not judged."""

    status: str
    how: str


def call_forked(work: Callable[[], Any], seconds: int, memory: int | None = None) -> Any:
    """Return what a function returns in a forked process; one that dies, raises or is late is a kill, in words.

    seconds: CPU seconds that it may take. memory: bytes that it may take beside what it starts with, in which the
    unchanged sources answer everything: then to want more is a kill. Any other error of `OUR_FAULT` is none, nor is an
    end without an answer that its CPU time does not account for: nothing was judged, and the words say so.
    """

    def answer(_: None) -> Any:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (_addressed() + memory,) * 2)
        try:
            return work()
        except OUR_FAULT as error:
            if memory is None or not isinstance(error, MemoryError):
                raise
            return {"status": KILLED, "how": f"{BY_LIMIT} memory: more than {memory / 2**30:g} GiB"}
        except Exception as error:
            return {"status": KILLED, "how": f"{RAISED} {type(error).__name__}: {error}"[:200]}

    with contextlib.closing(_in_one_process(answer, [None], seconds, lambda: None)) as results:
        result = next(results)
    return {"status": result.status, "how": result.how} if isinstance(result, Ended) else result


def _addressed() -> int:
    """Return how many bytes of addresses this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _unanswered(status: int, spent: float, seconds: int, waited: bool) -> dict[str, str]:
    """Say how a process ended without an answer. spent: its CPU seconds. waited: it was killed when time was over."""
    ended = os.WTERMSIG(status)
    if ended == signal.SIGKILL and spent < seconds:
        words = f"no answer within {PATIENCE * seconds:g} s" if waited else "something killed its process"
        return _not_judged(f"{words}, in which it had {spent:.1f} s of CPU time")
    late = ended in (signal.SIGXCPU, signal.SIGKILL)  # the second where it does not listen to the first
    return {"status": KILLED, "how": LATE if late else STUCK if ended == signal.SIGPROF else "its process died"}


def _not_judged(words: str) -> dict[str, str]:
    return {"status": SURVIVED, "how": f"not judged: {words}"[:200]}


def _forked(work: Callable[[int], None]) -> tuple[int, int]:
    """Run `work`, which is given a pipe to write to, in a forked process; return that and the pipe's other end."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            work(writer)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    return child, reader


def call_each_forked(
    work: Callable[[Item], Result], items: Sequence[Item], seconds: int
) -> Iterator[tuple[Item, Result | Ended]]:
    """Yield (item, result) of a function, one after another in one forked process; `Ended` for one that ended it.

    seconds: CPU seconds for one item, unless the work sets the profiling timer anew. After one that ended its process,
    by an error too, another process goes on with the next. What is no kill is told as `call_forked` tells it.
    """
    left = list(items)
    while left:
        done = 0
        for result in _in_one_process(work, left, seconds, lambda: signal.setitimer(signal.ITIMER_PROF, seconds)):
            yield left[done], result
            done += 1
        left = left[done:]


def _in_one_process(
    work: Callable[[Item], Result], items: Sequence[Item], seconds: int, limit: Callable[[], object]
) -> Generator[Result | Ended, None, None]:
    """Yield one result or more: of every item, or of those up to the one that ends the process.

    limit: called before each item; it limits the CPU time of the process.
    """

    def answer(writer: int) -> None:
        for item in items:
            limit()
            fault, given = "", None
            try:
                given = work(item)
            except OUR_FAULT as error:
                fault = f"{type(error).__name__}: {error}"
            told = pickle.dumps((time.process_time(), fault, given))  # no class of ours: work may import all anew
            os.write(writer, LENGTH.pack(len(told)) + told)

    child, reader = _forked(answer)
    ended, before = False, 0.0
    try:
        for _ in items:
            try:
                (length,) = LENGTH.unpack(_exactly(reader, LENGTH.size, PATIENCE * seconds))
                before, fault, given = pickle.loads(_exactly(reader, length, PATIENCE * seconds))
                result = Ended(**_not_judged(fault)) if fault else given
            except (EOFError, TimeoutError) as error:
                waited = isinstance(error, TimeoutError)
                if waited:
                    os.kill(child, signal.SIGKILL)
                _, status, used = os.wait4(child, 0)
                ended, spent = True, used.ru_utime + used.ru_stime - before
                result = Ended(**_unanswered(status, spent, seconds, waited))
            yield result
            if isinstance(result, Ended):
                return
    finally:
        os.close(reader)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _exactly(reader: int, count: int, seconds: float) -> bytes:
    """Return so many bytes of a pipe; EOFError when it ends before, TimeoutError when nothing comes in time."""
    found = b""
    while len(found) < count:
        if not select.select([reader], [], [], seconds)[0]:
            raise TimeoutError
        part = os.read(reader, count - len(found))
        if not part:
            raise EOFError
        found += part
    return found
