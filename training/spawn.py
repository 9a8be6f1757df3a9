"""Ranks as processes of this machine: started together, and ended together when one of them fails.

Under `torchrun` the ranks are there already; each runs the work in its own process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from refnum.errors import ArgumentError, RefnumError

from .dispatch import RankError

GRACE = 3.0
"""Seconds in which the other ranks may tell their error, or end, after one has failed."""
_DIE_WITH_PARENT = 1


def under_torchrun() -> bool:
    """Return whether a launcher started this process as one of several ranks."""
    return "LOCAL_RANK" in os.environ and "WORLD_SIZE" in os.environ


def run_ranks(work: Callable[..., None], given: Any, ranks: int, device: str, seconds: float) -> None:
    """Run `work(given)` on every rank, with `torch.distributed` ready where there is more than one.

    Args:
        work: a function of a module.
        given: its argument; it is pickled.
        ranks: processes, one a GPU on CUDA.
        device: `cpu` (gloo) or `cuda` (NCCL).
        seconds: how long ranks wait for each other.

    Raises:
        RankError: a rank died, or raised what is no error of ours.
        RefnumError: the first error of a rank, as it was.
    """
    if under_torchrun():
        _require_equal(ranks)
        _initialise(device, seconds, "env://", int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        try:
            work(given)
        finally:
            dist.destroy_process_group()
    elif ranks == 1:
        work(given)
    else:
        _spawn(work, given, ranks, device, seconds)


def local_device(device: str) -> str:
    """Return the device of this rank: on CUDA, the one with the number of the rank on its machine."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device


def _require_equal(ranks: int) -> None:
    started = int(os.environ["WORLD_SIZE"])
    if ranks not in (1, started):
        raise ArgumentError(f"--ranks {ranks} was given, but the launcher started {started}; leave --ranks out")


def _initialise(device: str, seconds: float, method: str, rank: int, count: int) -> None:
    if device == "cuda":
        torch.cuda.set_device(local_device(device))
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=method, rank=rank, world_size=count, timeout=timedelta(seconds=seconds)
    )


def _spawn(work: Callable[..., None], given: Any, ranks: int, device: str, seconds: float) -> None:
    context = processes.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="refnum-ranks-") as name:
        folder = Path(name)
        started = [
            context.Process(
                target=_rank, args=(work, given, rank, ranks, device, seconds, folder, os.getpid()), daemon=True
            )
            for rank in range(ranks)
        ]
        resource_tracker.ensure_running()  # which would unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # of ranks: this process ends them
        try:
            for process in started:
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            ended = _watch(started)
        finally:
            _end(started)
        _tell(ended, folder)


def _rank(
    work: Callable[..., None], given: Any, rank: int, count: int, device: str, seconds: float, folder: Path, parent: int
) -> None:
    """Run one rank; an error is written to a file and ends the process with status 1."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    os.environ["LOCAL_RANK"] = str(rank)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        _initialise(device, seconds, f"file://{folder / 'store'}", rank, count)
        work(given)
        dist.destroy_process_group()
    except RefnumError as error:
        (folder / f"{rank}.error").write_text(f"{type(error).__name__}\n{error}")
        os._exit(1)
    except Exception as error:
        traceback.print_exc()
        words = (str(error).splitlines() or [""])[0]
        (folder / f"{rank}.error").write_text(f"RankError\nrank {rank} failed with {type(error).__name__}: {words}")
        os._exit(1)


def _watch(started: Sequence[BaseProcess]) -> dict[int, int]:
    """Return the exit status of each rank that ended by itself: all, or those that did some time after a failure."""
    while running := [process.sentinel for process in started if process.is_alive()]:
        wait(running, timeout=1.0)
        if any(process.exitcode for process in started):
            stop = time.monotonic() + GRACE
            while time.monotonic() < stop and any(process.is_alive() for process in started):
                time.sleep(0.05)
            break
    return {rank: process.exitcode for rank, process in enumerate(started) if process.exitcode is not None}


def _end(started: Sequence[BaseProcess]) -> None:
    for process in started:
        if process.is_alive():
            process.kill()
        process.join()


def _tell(ended: dict[int, int], folder: Path) -> None:
    """Raise what ended the ranks: an error of one, else a death, else that a rank lost another."""
    told = [(folder / f"{rank}.error") for rank in ended]
    errors = [path.read_text().partition("\n")[::2] for path in told if path.exists()]
    died = [rank for rank, status in ended.items() if status and not (folder / f"{rank}.error").exists()]
    for kind, words in errors:
        if kind != RankError.__name__:
            raise _error(kind, words)
    for rank in died:
        raise RankError(f"{_death(rank, ended[rank])}; give --resume to go on from the last checkpoint")
    for kind, words in errors:
        raise _error(kind, words)


def _death(rank: int, status: int) -> str:
    if status < 0:
        return f"rank {rank} was ended by {signal.Signals(-status).name}, and the run with it"
    return f"rank {rank} ended with status {status}, and the run with it"


def _error(kind: str, words: str) -> RefnumError:
    names = {one.__name__: one for one in _kinds(RefnumError)}
    return names.get(kind, RefnumError)(words)


def _kinds(base: type[RefnumError]) -> list[type[RefnumError]]:
    return [base, *(one for child in base.__subclasses__() for one in _kinds(child))]
