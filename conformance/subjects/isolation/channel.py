"""One end of the socket between the harness and a subject's process: bytes that arrive whole and in time, or an error.

The other side may stop in the middle of anything: nothing here waits longer than until its deadline.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Callable

NEVER = math.inf
"""The deadline of one that waits as long as it takes."""
_LOOK = 0.05
"""Seconds between two looks at whether the other side's process is still there; a child of it may hold the socket."""
_PIECE = 1 << 20


class LateError(Exception):
    """The deadline passed before all bytes were through."""


class Channel:
    """Sends and fills whole buffers over a socket that does not block. Not thread-safe.

    Deadlines are times of `time.monotonic`. Both raise LateError past the deadline, EOFError or OSError when the other
    side is gone. gone: whether its process has ended, where that can be known.
    """

    def __init__(self, end: socket.socket, gone: Callable[[], bool] | None = None) -> None:
        end.setblocking(False)
        self.end, self.gone = end, gone

    def close(self) -> None:
        """Close this end."""
        self.end.close()

    def send(self, part: bytes | memoryview, until: float = NEVER) -> None:
        """Send all bytes of a part."""
        rest = memoryview(part).cast("B")
        while rest:
            try:
                rest = rest[self.end.send(rest[:_PIECE]) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, until)
            _in_time(until)

    def fill(self, part: memoryview | bytearray, until: float = NEVER) -> None:
        """Receive as many bytes as a buffer holds."""
        rest = memoryview(part).cast("B")
        while rest:
            try:
                count = self.end.recv_into(rest[:_PIECE])
                if not count:
                    raise EOFError("the other side closed the line")
                rest = rest[count:]
            except BlockingIOError:
                self._wait(select.POLLIN, until)
            _in_time(until)

    def skip(self, count: int, until: float = NEVER) -> None:
        """Receive bytes that nobody wants."""
        sink = bytearray(min(count, _PIECE))
        while count:
            part = memoryview(sink)[:count]
            self.fill(part, until)
            count -= len(part)

    def _wait(self, event: int, until: float) -> None:
        ready = select.poll()
        ready.register(self.end, event)
        while True:
            _in_time(until)
            left = max(until - time.monotonic(), 0)
            gone = self.gone is not None and self.gone()  # before the last look: what it said first still counts
            seconds = 0 if gone else left if self.gone is None else min(left, _LOOK)
            if ready.poll(None if seconds == NEVER else seconds * 1000):
                return
            if gone:
                raise EOFError("the process of the other side has ended")


def _in_time(until: float) -> None:
    if time.monotonic() > until:
        raise LateError
