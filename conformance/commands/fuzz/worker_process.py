"""The parent's side of one worker process, which may fault, hang or be killed without harm to any other process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from .errors import WorkerError
from .identity import REVISION, revision
from .spec import Spec

START = 120.0
"""Seconds that a worker may take to come up: imports, and a CUDA context."""
WARM = 30.0
"""Seconds that warming up may take beyond a case's limit: kernels are compiled, libraries loaded."""
SILENT = 30.0
"""Seconds without a beat after which a process is taken for stuck."""
HUNG, DIED, KILLED, GONE, RESTARTED = "hung", "died", "killed", "gone", "restarted"


@dataclass
class Event:
    """What a worker did: `joined`, `done`, `lost` (while at a task), `left` or `unable`.

    lost: why is HUNG, DIED (by itself: a signal or an exit), KILLED (by someone's SIGKILL), GONE (its machine) or
    RESTARTED (the scheduler was, and says nothing of its workers).
    number: the case it was at, or None. fresh processes get new keys; `device` stays the same.
    """

    what: str
    worker: str = ""
    device: str = ""
    task: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    number: int | None = None
    words: str = ""


class WorkerProcess:
    """Starts, feeds, watches, kills and restarts one worker process. Not thread-safe.

    settings: environment variables of the worker, say CUDA_VISIBLE_DEVICES. timeout: seconds that one case may take
    before the process is killed; cases of confirming and shrinking bring their own limits.
    """

    def __init__(self, spec: Spec, settings: Mapping[str, str] | None = None, timeout: float | None = None) -> None:
        self.spec, self.settings = spec, dict(settings or {})
        self.limit = (spec.timeout if timeout is None else timeout) * 1.5 + 2.0
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: Connection | None = None
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self.task: dict[str, Any] | None = None
        self.identity: dict[str, Any] = {}
        self.number: int | None = None
        self.warming = False
        self.born = self.since = self.heard = 0.0
        self.served = 0

    @property
    def ready(self) -> bool:
        """Whether the worker runs and has no task."""
        return bool(self.identity) and self.task is None

    @property
    def key(self) -> str:
        """The key of the running process, empty before its first message."""
        return str(self.identity.get("key", ""))

    @property
    def device(self) -> str:
        """The device of the worker, empty before its first message."""
        return str(self.identity.get("device", ""))

    def start(self) -> None:
        """Start a process; it is `ready` after its first message."""
        ours, theirs = socket.socketpair()
        self.errors.seek(0)
        self.errors.truncate()
        command = [sys.executable, "-m", "refnum.conformance.commands.fuzz.worker", str(theirs.fileno())]
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env={**os.environ, REVISION: revision(), **self.settings},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors,
        )  # fmt: skip
        theirs.close()
        self.connection = Connection(ours.detach())
        self.identity, self.number, self.served = {}, None, 0
        self.born = self.since = self.heard = time.monotonic()
        self._send(spec=self.spec.to_json())

    def give(self, task: Mapping[str, Any]) -> None:
        """Hand a task to a ready worker."""
        self.task, self.number, self.warming = dict(task), None, True
        self.since = self.heard = time.monotonic()
        self.served += 1
        self._send(task=self.task)

    def _send(self, **message: Any) -> None:
        assert self.connection is not None
        with contextlib.suppress(OSError):  # it has died; `poll` sees that
            self.connection.send_bytes(json.dumps(message).encode())

    def poll(self) -> list[Event]:
        """Return the events since the last call, without waiting."""
        events: list[Event] = []
        if self.connection is None:
            return events
        try:
            while self.connection.poll():
                self._hear(json.loads(self.connection.recv_bytes()), events)
        except (EOFError, OSError):
            events += self._ended()
            return events
        now = time.monotonic()
        if self.task is not None and now - self.since > self._allowed():
            where = "" if self.number is None else f" at case {self.number}"
            events += self._ended(HUNG, f"no answer within {self._allowed():g} s{where}; the process was killed")
        elif self.identity and now - self.heard > SILENT:
            events += self._ended(HUNG, f"the process was silent for {SILENT:g} s and was killed")
        elif not self.identity and now - self.since > START:
            events += self._ended(HUNG, f"the process did not come up within {START:g} s")
        return events

    def _allowed(self) -> float:
        own = float((self.task or {}).get("limit") or self.limit)
        return own + (WARM if self.warming else 0.0)

    def _hear(self, message: dict[str, Any], events: list[Event]) -> None:
        self.heard = time.monotonic()
        if "at" in message:
            self.number, self.since, self.warming = message["at"], self.heard, message.get("warming", False)
        elif "hello" in message:
            self.identity = message["hello"]
            events.append(Event("joined", self.key, self.device, result=self.identity))
        elif "unable" in message:  # the process ends after this word
            events.append(Event("unable", words=message["unable"]))
        elif "done" in message or "broken" in message:
            task, self.task = self.task or {}, None
            event = Event("done", self.key, self.device, task, message.get("done", {}))
            if "broken" in message:
                event.what, event.why, event.words, event.number = "lost", DIED, message["broken"], self.number
            events.append(event)

    def _ended(self, why: str = "", words: str = "") -> list[Event]:
        """Stop the process and return the event of its end."""
        assert self.process is not None
        if not why:
            try:
                code = self.process.wait(10)
            except subprocess.TimeoutExpired:  # it closed its socket and lives on
                code = 0
            why, words = (KILLED, "killed by SIGKILL") if code == -signal.SIGKILL else (DIED, self._death(code))
        key, device, task, number = self.key, self.device, self.task, self.number
        self.kill()
        lost = [Event("lost", key, device, task, why=why, number=number, words=words)] if task is not None else []
        return [*lost, Event("left", key, device, words=words)]

    def _death(self, code: int) -> str:
        name = f"exit status {code}"
        if code < 0:
            name = signal.Signals(-code).name
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 2000))
        lines = [line for line in self.errors.read().decode(errors="replace").splitlines() if "Error" in line]
        return f"the process ended with {name}" + (f": {lines[-1][:200]}" if lines else "")

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.connection is not None:
            self.connection.close()
        self.process = self.connection = self.task = None
        self.identity = {}

    def close(self) -> None:
        """End the process and release its resources."""
        self.kill()
        self.errors.close()

    def run(self, task: Mapping[str, Any], fresh: bool = False) -> list[Event]:
        """Run one task to its end, after a restart if the process is not running; WorkerError when it cannot start."""
        events: list[Event] = []
        if fresh:
            self.kill()
        if self.process is None:
            self.start()
        given = False
        while True:
            if self.ready and not given:
                self.give(task)
                given = True
            wait([self.connection], 0.1) if self.connection is not None else None
            for event in self.poll():
                if event.what == "unable" or (event.what == "left" and not given):
                    self.kill()
                    raise WorkerError(f"A worker cannot be started: {event.words}.")
                events.append(event)
                if event.what in ("done", "lost"):
                    return events + ([] if self.connection else self.poll())
