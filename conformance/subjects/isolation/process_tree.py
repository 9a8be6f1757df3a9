"""Start and end of a process that a subject lives in, and of all that it has started: groups, sessions, orphans too.

What a process starts inherits its environment, so each gets a mark of its own in there. On systems without /proc only
the process and its group are ended; a child that starts with another environment gets away. Where this process is
killed it ends nobody: Linux then ends the one that it started, whose own children find their lines closed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from . import die_with_parent

_NAME = "REFNUM_HOUSEHOLD"
_ROUNDS = 10
_PATIENCE = 10.0
"""Seconds to wait for a process that was killed: the kernel may hold it in a driver for good."""


def marked() -> tuple[str, dict[str, str]]:
    """Return a new mark and this process's environment with it."""
    mark = uuid.uuid4().hex
    return mark, {**os.environ, _NAME: mark}


def started(path: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start an executable that leads its own group, to be asked by pipes, and return it and its mark.

    It ends with the thread that calls this, at the latest (Linux). Raises the OSError of the system where it cannot be
    executed. Between fork and exec nothing of this process runs, which may have threads: another program does the rest.
    """
    mark, environment = marked()
    says, told = os.pipe()
    shim = [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), str(told)]
    tied = sys.platform == "linux"
    with os.fdopen(says, "rb") as line:
        try:
            process = subprocess.Popen(
                [*(shim if tied else []), str(path)],
                pass_fds=[told] if tied else [],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(told)
        try:
            failed = line.read()
        except BaseException:
            end(process, mark)
            raise
    if failed:
        end(process, mark)
        raise OSError(int(failed), os.strerror(int(failed)), str(path))
    return process, mark


def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill a process that leads its own group, the group, and whoever else bears its mark; wait for the process."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE)
    for _ in range(_ROUNDS):  # one may fork while it is looked for
        found = list(_bearers(mark))
        for number in found:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        if not found:
            return


def _bearers(mark: str) -> Iterator[int]:
    entry = f"{_NAME}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended since, or is another user's
            if entry in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
