"""One end of the socket to a subject's process: all bytes arrive before a deadline, or an error is raised.

The peer process may stop at any point, so no wait lasts past its deadline.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Callable

NEVER = math.inf
"""The deadline of a wait without a limit."""
_LOOK = 0.05
"""Seconds between two checks that the peer process is alive; a child of the peer may keep the socket open."""
_PIECE = 1 << 20


class LateError(Exception):
    """The deadline passed before all bytes were transferred."""


class Channel:
    """Sends and receives whole buffers over a non-blocking socket. Not thread-safe.

    Deadlines are times of `time.monotonic`. Every transfer raises LateError past its deadline, and EOFError or OSError
    when the peer is gone.

    Args:
        end: this end of the socket.
        gone: returns whether the peer process has ended; None where that cannot be known.
    """

    def __init__(self, end: socket.socket, gone: Callable[[], bool] | None = None) -> None:
        end.setblocking(False)
        self.end, self.gone = end, gone

    def close(self) -> None:
        """Close this end."""
        self.end.close()

    def send(self, part: bytes | memoryview, until: float = NEVER) -> None:
        """Send all bytes of a buffer."""
        rest = memoryview(part).cast("B")
        while rest:
            try:
                rest = rest[self.end.send(rest[:_PIECE]) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, until)
            _in_time(until)

    def fill(self, part: memoryview | bytearray, until: float = NEVER) -> None:
        """Receive until a buffer is full."""
        rest = memoryview(part).cast("B")
        while rest:
            try:
                count = self.end.recv_into(rest[:_PIECE])
                if not count:
                    raise EOFError("the other process closed the connection")
                rest = rest[count:]
            except BlockingIOError:
                self._wait(select.POLLIN, until)
            _in_time(until)

    def skip(self, count: int, until: float = NEVER) -> None:
        """Receive some bytes and discard them."""
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
            gone = self.gone is not None and self.gone()  # before the last poll: bytes sent before the end still count
            seconds = 0 if gone else left if self.gone is None else min(left, _LOOK)
            if ready.poll(None if seconds == NEVER else seconds * 1000):
                return
            if gone:
                raise EOFError("the other process has ended")


def _in_time(until: float) -> None:
    if time.monotonic() > until:
        raise LateError
