"""Workers of a Dask cluster: each task runs in a process beside a Dask worker, one GPU a worker.

A kernel that faults or hangs harms that process, not the Dask worker, so Dask's retries never carry a case that kills
workers from GPU to GPU. Workers may join, die and come back. When the scheduler is gone, its tasks count as lost; the
executor connects again and submits the shards again. A duplicate result counts once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from refnum.errors import ArgumentError, UnsupportedError

from ..errors import WorkerError
from ..spec import Spec
from ..worker_process import GONE, RESTARTED, Event, WorkerProcess

PER_WORKER = 2
"""Tasks in hand for each Dask worker, so that none waits for the way to the coordinator and back."""
REFRESH = 2.0
"""Seconds between two looks at who is there."""

_workers: dict[tuple[str, int], WorkerProcess] = {}


def do(spec: str, task: dict[str, Any], fresh: bool) -> list[dict[str, Any]]:
    """Run one task in the process beside this Dask worker and return its events as JSON values. Runs on the cluster."""
    place = (spec, threading.get_ident())
    if place not in _workers:
        _workers[place] = WorkerProcess(Spec.from_json(spec))
    worker = _workers[place]
    before = worker.identity
    try:
        events = worker.run(task, fresh)
    except WorkerError as error:
        return [dataclasses.asdict(Event("unable", words=str(error))),
                dataclasses.asdict(Event("lost", task=task, why=GONE, words=str(error)))]  # fmt: skip
    address = _own_address()
    for event in events:
        event.task = {"id": event.task["id"]} if event.task else {}
        if event.what == "joined":
            event.result = {**event.result, "dask": address}
        if event.what == "done" and event.result.get("dead"):
            worker.kill()
    if before and not any(event.what == "joined" for event in events):  # a new coordinator has not met this worker
        events.insert(0, Event("joined", before["key"], before["device"], result={**before, "dask": address}))
    return [dataclasses.asdict(event) for event in events]


def _own_address() -> str:
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:  # called outside a worker
        return ""


def exposed(address: str) -> bool:
    """Whether a scheduler's address is plain text and not on this machine alone."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if parts.scheme in ("tls", "wss", "inproc"):
        return False
    try:
        found = {item[4][0] for item in socket.getaddrinfo(parts.hostname, None)}
    except OSError:
        return True
    return not all(ipaddress.ip_address(str(text).partition("%")[0]).is_loopback for text in found)


def check_address(address: str) -> None:
    """Raise ArgumentError for an address without a port, which Dask tries to reach for half a minute."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    try:
        right = parts.scheme == "inproc" or parts.port is not None
    except ValueError:  # a port that is no number, or too large
        right = False
    if not right:
        raise ArgumentError(f"--scheduler {address} has no port; give tcp://HOST:PORT or tls://HOST:PORT.")


class DaskExecutor:
    """Tasks on the cluster of a scheduler. TLS comes from Dask's own configuration (`distributed.comm.tls`)."""

    def __init__(self, spec: Spec, address: str, patience: float = 600.0) -> None:
        try:
            import distributed
        except ImportError as error:
            raise UnsupportedError("--scheduler needs Dask: install refnum[dask].") from error
        check_address(address)
        self.distributed, self.spec, self.address, self.patience = distributed, spec.to_json(), address, patience
        self.arrived: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.flying: dict[str, tuple[dict[str, Any], Any]] = {}
        self.known: set[str] = set()
        self.hosts: dict[str, str] = {}
        self.waiting: list[Event] = []
        self.threads, self.looked = 0, 0.0
        self.client = self._connect()

    def _connect(self) -> Any:
        """Return a client, waiting for a scheduler that is being restarted; ArgumentError when none answers."""
        end = time.monotonic() + (self.patience if self.known else 30.0)
        while True:
            try:
                return self.distributed.Client(self.address, timeout=10, set_as_default=False, name="refnum fuzz",
                                               heartbeat_interval=1000)  # fmt: skip
            except (OSError, TimeoutError) as error:
                if time.monotonic() > end:
                    raise ArgumentError(f"No Dask scheduler answers at {self.address}: {error}.") from error
                time.sleep(1.0)

    def _look(self) -> None:
        """Count the threads of the connected workers from time to time."""
        if time.monotonic() - self.looked < REFRESH:
            return
        self.looked = time.monotonic()
        try:
            workers = dict(self.client.nthreads())
        except Exception:  # between two schedulers there is nobody to ask
            workers = {}
        self.threads = sum(workers.values())
        self.known |= set(workers)

    def free(self, device: str) -> int:
        """Return how many more tasks the cluster may get; a worker runs tasks for the devices that it has."""
        self._look()
        return max(0, PER_WORKER * self.threads - len(self.flying))

    def submit(self, task: Mapping[str, Any], fresh: bool = False, avoid: str = "", only: str = "") -> None:
        """Submit a task; Dask's addresses of devices are learnt from the events."""
        places = {address for address, device in self.hosts.items() if device == only} if only else set()
        if avoid:
            places = {address for address, device in self.hosts.items() if device != avoid}
        body = {name: value for name, value in task.items() if name not in ("fresh", "avoid", "only")}
        key = f"refnum-{task['id'].replace(' ', '-')}-{time.time_ns():x}"
        try:
            future = self.client.submit(do, self.spec, body, fresh, key=key, pure=False, retries=0,
                                        workers=sorted(places) or None, allow_other_workers=bool(places))  # fmt: skip
        except Exception as error:  # the scheduler went away a moment ago
            self.waiting.append(Event("lost", task=dict(task), why=RESTARTED, words=str(error)))
            return
        self.flying[key] = (dict(task), future)
        future.add_done_callback(lambda future: self.arrived.put((key, future)))

    def poll(self, seconds: float) -> list[Event]:
        """Return the new events; connect again when the scheduler is gone."""
        events, self.waiting = self.waiting, []
        if self.client.status not in ("running", "connecting"):
            return events + self._restarted()
        wait = seconds
        while True:
            try:
                key, future = self.arrived.get(timeout=wait) if wait else self.arrived.get_nowait()
            except queue.Empty:
                return events
            wait = 0.0
            if key in self.flying:
                task, _ = self.flying.pop(key)
                events += self._events(task, future)

    def _events(self, task: dict[str, Any], future: Any) -> list[Event]:
        if future.status != "finished":
            lost_all = future.status in ("cancelled", "lost")
            why = RESTARTED if lost_all else GONE
            return [Event("lost", task=task, why=why, words=f"its Dask worker is gone ({future.status})")]
        try:
            events = [Event(**event) for event in future.result(timeout=10)]
        except Exception as error:  # the result went with its worker, or the scheduler did
            return [Event("lost", task=task, why=RESTARTED, words=f"{type(error).__name__}: {error}")]
        for event in events:
            event.task = task if event.what in ("done", "lost") else {}
            if event.what == "joined":
                self.hosts[str(event.result.get("dask", ""))] = event.device
        return events

    def _restarted(self) -> list[Event]:
        """Count the tasks of the old scheduler as lost and connect to the new one."""
        lost = [Event("lost", task=task, why=RESTARTED, words="the scheduler was restarted")
                for task, _ in self.flying.values()]  # fmt: skip
        self.flying.clear()
        self.hosts.clear()
        with contextlib.suppress(Exception):  # it is being replaced; how it ends does not matter
            self.client.close(timeout=2)
        self.client = self._connect()
        self.threads, self.looked = 0, 0.0
        return lost

    def health(self) -> dict[str, int]:
        """Return the numbers of connected workers and of running tasks."""
        return {"up": self.threads, "busy": min(self.threads, len(self.flying)), "starting": 1, "given up": 0}

    def close(self) -> None:
        """Disconnect from the cluster; its workers keep running."""
        try:
            self.client.cancel([future for _, future in self.flying.values()])
            self.client.close(timeout=5)
        except Exception:  # nothing depends on a farewell
            pass
