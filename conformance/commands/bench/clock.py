"""Time on a device: launches queued ahead of it, between events, and a copy of the same bytes beside them.

The clock is the default stream of CuPy, on which torch, and whatever builds on it, works as well unless told not to.
Before the first launch the device is kept waiting until the host has queued all of them, so that what is timed is
the device and not the host.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnum.errors import UnsupportedError

Call = Callable[[], Any]

COPY_BYTES = 1 << 29
"""Bytes that the reference copy reads, and writes."""
PAGE = 4096
"""Bytes that a copy is a multiple of."""
WARM_UP = 3
LEAD = 0.01
"""Seconds that the device is kept waiting at least: after a pause its clocks are low."""
SETS_BYTES = 1 << 28
"""Sets of buffers are used in turn, until together they have this many bytes: several times any cache."""
SETS = (2, 32)

_WAIT = r"""
extern "C" __global__ void wait(long long nanoseconds) {
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}
"""


@dataclass(frozen=True)
class Times:
    """Microseconds of each launch, in order."""

    us: tuple[float, ...]

    def summary(self) -> dict[str, float]:
        """Return median, quartiles, least and greatest."""
        quartiles = statistics.quantiles(self.us, n=4, method="inclusive") if len(self.us) > 1 else self.us * 3
        low, middle, high = quartiles  # of the calls that were made: none lies outside them
        return {
            "median": round(middle, 2),
            "q1": round(low, 2),
            "q3": round(high, 2),
            "min": round(min(self.us), 2),
            "max": round(max(self.us), 2),
        }


def in_turn(calls: Sequence[Call]) -> Iterator[None]:
    """Make the next call with every step, the first after the last; a call's results live until its next turn.

    A library's allocator hands out again what was let go: without that, calls that allocate their results would all
    write to one place, which a cache may hold, beside calls with an `out` that write to places in turn.
    """
    held: list[Any] = [None] * len(calls)
    for number in itertools.cycle(range(len(calls))):
        held[number] = calls[number]()
        yield


def sets_for(nbytes: int) -> int:
    """Return how many sets of buffers a call that moves this many bytes needs, so that no cache holds them all."""
    return min(max(-(-SETS_BYTES // max(nbytes, 1)), SETS[0]), SETS[1])


class Clock:
    """The device of CuPy: its arrays, its time, its copy and its facts. UnsupportedError where there is none."""

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise UnsupportedError("refnum bench needs CuPy and a CUDA GPU: install refnum[gpu].") from error
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise UnsupportedError(f"refnum bench needs a CUDA GPU, and there is none here: {error}.") from error
        if not count:
            raise UnsupportedError("refnum bench needs a CUDA GPU, and there is none here.")
        self.xp = cupy
        self._wait = cupy.RawKernel(_WAIT, "wait")
        self._copies: dict[int, Times] = {}

    def synchronize(self) -> None:
        """Wait until the device is done."""
        self.xp.cuda.Device().synchronize()

    def free(self) -> None:
        """Give unused memory back, CuPy's and torch's."""
        import sys

        self.xp.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()

    def time(self, calls: Sequence[Call], repeat: int) -> Times:
        """Return the device's time of `repeat` calls, taking the calls in turn."""
        turns = in_turn(calls)
        for _ in calls:
            next(turns)
        start = time.perf_counter()
        for _ in range(WARM_UP):
            next(turns)
        host = (time.perf_counter() - start) / WARM_UP
        self.synchronize()
        cuda = self.xp.cuda
        events = [(cuda.Event(), cuda.Event()) for _ in range(repeat)]
        waiting = int(1e9 * min(2 * host * repeat + LEAD, 1.0))
        self._wait((1,), (1,), (np.int64(waiting),))
        for before, after in events:
            before.record()
            next(turns)
            after.record()
        self.synchronize()
        return Times(tuple(1000 * cuda.get_elapsed_time(before, after) for before, after in events))

    def host_time(self, call: Call, repeat: int = 1000) -> float:
        """Return microseconds of host time a call, the device being faster than the host."""
        for _ in range(repeat // 5):
            call()
        self.synchronize()
        start = time.perf_counter()
        for _ in range(repeat):
            call()
        took = time.perf_counter() - start
        self.synchronize()
        return 1e6 * took / repeat

    def copy(self, nbytes: int, repeat: int) -> float:
        """Return bytes a second, read plus written, of a copy that moves this many bytes in all."""
        half = max(nbytes // 2 // PAGE, 1) * PAGE
        if half not in self._copies:
            self._copies[half] = self._time_copy(half, repeat)
        return 2 * half / (self._copies[half].summary()["median"] * 1e-6)

    def copy_again(self, nbytes: int, repeat: int) -> float:
        """Return the same, measured anew."""
        self._copies.clear()
        return self.copy(nbytes, repeat)

    def _time_copy(self, half: int, repeat: int) -> Times:
        xp, runtime = self.xp, self.xp.cuda.runtime
        page = xp.random.default_rng(0).integers(0, 256, PAGE, dtype=np.uint8)
        pairs = [(xp.empty(half, np.uint8), xp.empty(half, np.uint8)) for _ in range(sets_for(2 * half))]
        for source, _ in pairs:
            source.reshape(-1, PAGE)[...] = page
        stream = xp.cuda.get_current_stream().ptr

        def call(source: Any, target: Any) -> Call:
            kind = runtime.memcpyDeviceToDevice
            return lambda: runtime.memcpyAsync(target.data.ptr, source.data.ptr, half, kind, stream)

        return self.time([call(*pair) for pair in pairs], repeat)

    def facts(self) -> dict[str, Any]:
        """Return what the device, its driver and its libraries are."""
        runtime = self.xp.cuda.runtime
        found = runtime.getDeviceProperties(self.xp.cuda.Device().id)
        return {
            "name": found["name"].decode(),
            "compute_capability": f"{found['major']}.{found['minor']}",
            "multiprocessors": found["multiProcessorCount"],
            "memory_bytes": found["totalGlobalMem"],
            "l2_bytes": found["l2CacheSize"],
            "driver": _driver_version(),
            "cuda_driver": runtime.driverGetVersion(),
            "cuda_runtime": runtime.runtimeGetVersion(),
        }


def _driver_version() -> str:
    """Return the version that the driver gives itself, or an empty string where it cannot be read."""
    from pathlib import Path

    try:
        words = Path("/proc/driver/nvidia/version").read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")
