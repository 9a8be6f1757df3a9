"""The end of a process that a subject lives in, and of all that it has started: groups, sessions and orphans too.

What a process starts inherits its environment, so each gets a mark of its own in there. On systems without /proc only
the process and its group are ended; a child that starts with another environment gets away.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

_NAME = "REFNUM_HOUSEHOLD"
_ROUNDS = 10
_PATIENCE = 10.0
"""Seconds to wait for a process that was killed: the kernel may hold it in a driver for good."""


def marked() -> tuple[str, dict[str, str]]:
    """Return a new mark and this process's environment with it."""
    mark = uuid.uuid4().hex
    return mark, {**os.environ, _NAME: mark}


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
