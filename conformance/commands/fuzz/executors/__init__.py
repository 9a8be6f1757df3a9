"""Executors run tasks, in local processes by default or on a Dask cluster; the coordinator treats both alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..worker_process import Event


class Executor(Protocol):
    """The interface of an executor. Every submitted task ends in one `done` or `lost` event."""

    def free(self, device: str) -> int:
        """Return how many more tasks for a device, `cpu` or `gpu`, may be submitted now."""

    def submit(self, task: Mapping[str, Any], fresh: bool = False, avoid: str = "", only: str = "") -> None:
        """Take a task.

        fresh: in a new process. avoid: a device to stay away from if there is another. only: a device to use.
        """

    def poll(self, seconds: float) -> list[Event]:
        """Return the new events, after waiting at most that long for the first one."""

    def health(self) -> dict[str, int]:
        """Return numbers of workers: `up`, `busy`, `starting`."""

    def close(self) -> None:
        """End all workers at once."""
