"""Start and kill a subject's process with all its descendants: groups, sessions and orphans.

Descendants inherit the environment, so each subject's process gets a mark of its own there. Without /proc only the
process and its group are killed; a descendant started with another environment escapes. If the harness itself is
killed, Linux kills the process that it started; the descendants of that process find their connections closed.
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
"""Seconds to wait for a killed process, which the kernel may hold in a driver for ever."""


def marked() -> tuple[str, dict[str, str]]:
    """Return a new mark, and this process's environment with the mark in it."""
    mark = uuid.uuid4().hex
    return mark, {**os.environ, _NAME: mark}


def started(path: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start an executable in a process group of its own, with pipes for input and output.

    On Linux the executable is killed at the latest when the calling thread ends. This process may have threads, so no
    code of it runs between fork and exec: `die_with_parent` does the rest.

    Args:
        path: the executable.

    Returns:
        The process and its mark.

    Raises:
        OSError: the system cannot execute it.
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
    """Kill a process, its group and every process with its mark, and wait for the process."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE)
    for _ in range(_ROUNDS):  # a process may fork during the search
        found = list(_bearers(mark))
        for number in found:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        if not found:
            return


def _bearers(mark: str) -> Iterator[int]:
    entry = f"{_NAME}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if entry in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
