"""Local workers: one process for each GPU and any number for the CPU; a process that ends is restarted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from ..spec import Spec
from ..worker_process import GONE, Event, WorkerProcess

RECYCLE = 1200.0
"""Seconds after which a process is replaced, so that nothing it leaks adds up; on a GPU a new one warms up for some."""
FAILURES = 3
"""Starts in a row that may fail before a place is given up."""


@dataclass
class Slot:
    """A place for one worker process: the process, its device, and its current or next task."""

    worker: WorkerProcess
    device: str
    wanted: dict[str, Any] | None = None
    failures: int = 0
    words: str = ""
    retired: bool = False

    @property
    def idle(self) -> bool:
        """Whether it can take a task."""
        return not self.retired and self.wanted is None and self.worker.task is None


class LocalExecutor:
    """Workers of this machine. workers: processes for CPU subjects; gpus: indices or UUIDs, one process each."""

    def __init__(self, spec: Spec, workers: int, gpus: Sequence[str] = ()) -> None:
        hidden = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.slots = [Slot(WorkerProcess(spec, hidden), "cpu") for _ in range(workers)]
        self.slots += [Slot(WorkerProcess(spec, {"CUDA_VISIBLE_DEVICES": gpu}), "gpu") for gpu in gpus]
        self.waiting: deque[tuple[dict[str, Any], str]] = deque()
        for slot in self.slots:
            slot.worker.start()

    def free(self, device: str) -> int:
        """Return the idle places for a device."""
        return max(0, sum(slot.idle for slot in self.slots if slot.device == device) - len(self.waiting))

    def submit(self, task: Mapping[str, Any], fresh: bool = False, avoid: str = "", only: str = "") -> None:
        """Give a task to an idle place, if possible not on the device to avoid; a task for a single device may wait."""
        if only:
            self.waiting.append((dict(task), only))
            return
        idle = [slot for slot in self.slots if slot.idle and slot.device == task["device"]]
        slot = min(idle, key=lambda slot: (slot.worker.device == avoid, not slot.worker.ready))
        self._assign(slot, dict(task), fresh)

    def _assign(self, slot: Slot, task: dict[str, Any], fresh: bool) -> None:
        if fresh and slot.worker.served:
            slot.worker.kill()
            slot.worker.start()
        slot.wanted = task

    def poll(self, seconds: float) -> list[Event]:
        """Submit waiting tasks, then return the new events."""
        for task, only in list(self.waiting):
            places = [slot for slot in self.slots if slot.worker.device == only and not slot.retired]
            idle = next((slot for slot in places if slot.idle), None)
            if idle is not None or not places:
                self.waiting.remove((task, only))
                self._assign(idle or next(slot for slot in self.slots if not slot.retired), task, fresh=True)
        for slot in self.slots:
            if slot.wanted is not None and slot.worker.ready:
                slot.worker.give(slot.wanted)
                slot.wanted = None
        lines = [slot.worker.connection for slot in self.slots if slot.worker.connection is not None]
        if lines:
            wait(lines, seconds)
        elif seconds:
            time.sleep(seconds)
        events: list[Event] = []
        for slot in self.slots:
            events += self._watch(slot)
        return events

    def _watch(self, slot: Slot) -> list[Event]:
        if slot.retired:
            return []
        events = slot.worker.poll()
        for event in events:
            if event.what == "joined":
                slot.failures, slot.words = 0, ""
            elif event.what == "unable":
                slot.words = event.words
            elif event.what == "left" and not event.worker:
                slot.failures += 1
                slot.words = slot.words or event.words
        sick = any(event.result.get("dead") for event in events if event.what == "done")
        old = slot.worker.served and slot.worker.ready and time.monotonic() - slot.worker.born >= RECYCLE
        if sick or old:
            words = "its device stopped answering" if sick else "replaced after enough work"
            events.append(Event("left", slot.worker.key, slot.worker.device, words=words))
            slot.worker.kill()
        if slot.worker.process is None:
            if slot.failures >= FAILURES:
                slot.retired = True
                events.append(Event("unable", words=slot.words))
                if slot.wanted is not None:
                    events.append(Event("lost", task=slot.wanted, why=GONE, words=slot.words))
                    slot.wanted = None
            else:
                slot.worker.start()
        return events

    def health(self) -> dict[str, int]:
        """Return how many places are up, busy, starting and given up."""
        return {
            "up": sum(bool(slot.worker.identity) for slot in self.slots),
            "busy": sum(slot.worker.task is not None for slot in self.slots),
            "starting": sum(not slot.worker.identity and not slot.retired for slot in self.slots),
            "given up": sum(slot.retired for slot in self.slots),
        }

    def close(self) -> None:
        """End every process."""
        for slot in self.slots:
            slot.worker.close()
