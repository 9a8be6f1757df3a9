"""The worker process: it receives tasks over a socket, one at a time, and announces each case before the case begins.

Started by `worker_process` as `python -m refnum.conformance.commands.fuzz.worker FD`. The process ends with its parent:
a heartbeat that cannot be sent ends it at once, even while a kernel hangs. The output of a subject is discarded.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from .context import WorkerContext
from .identity import identity
from .spec import Spec
from .work import TASKS

BEAT = 0.5
"""Seconds between two heartbeats."""


class Channel:
    """The socket to the parent, shared by the work and the heartbeats."""

    def __init__(self, descriptor: int) -> None:
        self.connection = Connection(descriptor)
        self.lock = threading.Lock()

    def send(self, **message: Any) -> None:
        """Send one message; a parent that is gone ends this process."""
        try:
            with self.lock:
                self.connection.send_bytes(json.dumps(message).encode())
        except OSError:
            os._exit(0)

    def receive(self) -> dict[str, Any]:
        """Wait for a message."""
        try:
            return dict(json.loads(self.connection.recv_bytes()))
        except (EOFError, OSError):
            os._exit(0)


def beat(line: Channel) -> None:
    """Send a heartbeat every half second."""
    while True:
        line.send(beat=time.monotonic())
        time.sleep(BEAT)


def main() -> None:
    """Run tasks until the parent sends a stop message."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which ends its workers itself
    line = Channel(int(sys.argv[1]))
    threading.Thread(target=beat, args=(line,), daemon=True).start()
    try:
        context = WorkerContext(Spec.from_json(line.receive()["spec"]))
        who = identity()
    except Exception as error:  # the parent reports whatever is missing on this machine
        line.send(unable=f"{type(error).__name__}: {error}")
        return
    line.send(hello=who)
    while True:
        message = line.receive()
        if "task" not in message:
            return
        task = message["task"]
        try:
            result = TASKS[task["kind"]](
                context, task, lambda number, warming=False: line.send(at=number, warming=warming)
            )
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            line.send(
                broken=f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})"[:500]
            )
            continue
        line.send(done=result)


if __name__ == "__main__":
    main()
