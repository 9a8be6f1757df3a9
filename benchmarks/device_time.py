"""What benches of kernels on one GPU share: arrays on the device, equality, the time of a call, the speed of a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np


def device(x: Any) -> Any:
    """An array on the device; bfloat16 as its bits."""
    if not isinstance(x, np.ndarray):
        return x
    return cupy.asarray(x.view(np.uint16) if x.dtype.name == "bfloat16" else x)


def equal(want: Any, got: Any) -> bool:
    """Whether two results, arrays or tuples of arrays, are equal byte for byte."""
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (want, got)), strict=True)
    return all(bool((cupy.asarray(a).view(np.uint8) == cupy.asarray(b).view(np.uint8)).all()) for a, b in pairs)


def seconds(call: Callable[[], Any], repeats: int = 30) -> float:
    """Median of the seconds of a call."""
    call(), call()
    found = []
    for _ in range(repeats):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        found.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return float(np.median(found))


def copy_rate(size: int) -> float:
    """Bytes a second, read plus written, of a copy of so many bytes; printed."""
    source, target = cupy.empty(size, np.uint8), cupy.empty(size, np.uint8)
    stream = cupy.cuda.get_current_stream().ptr
    took = seconds(lambda: cupy.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, size, 3, stream))
    print(f"copy {2 * size / took / 1e12:.3f} TB/s")
    return 2 * size / took
