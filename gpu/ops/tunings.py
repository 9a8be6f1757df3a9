"""Other cuts of the kernels' launches, for `refnum bench --tune`; the cut that ships is in each launcher's TUNING."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..device import compile as build
from ..device import plans
from ..device.driver import driver
from . import columns, compiled, logarithmic, rowwise, swiglu, tetrajet
from .columns import Order
from .rowwise import Grid
from .swiglu import Stay
from .tetrajet import Down

Context = Callable[[], contextlib.AbstractContextManager[None]]


def _grids(part: int, unrolls: tuple[int, ...], threads: tuple[int, ...] = (128, 256, 512)) -> list[Grid]:
    return [Grid(t, u, part, s) for t in threads for u in unrolls for s in (0, 1)]


def _rowwise(*parts: int) -> list[Grid]:
    return [grid for part in parts for grid in _grids(part, tuple(u for u in (1, 2, 4) if part * u <= 64))]


CUTS: Mapping[str, list[Any]] = {
    "quantize_mxfp4": _rowwise(16, 32),
    "quantize_mxfp4_stochastic": [Grid(t, u, part) for part in (16, 32) for t in (64, 128, 256) for u in (1, 2)],
    "dequantize_mxfp4": _rowwise(8),
    "quantize_fp8_tiles": _rowwise(8, 16),
    "dequantize_fp8_tiles": _rowwise(8),
    "fp8_to_mxfp4": _rowwise(16, 32),
    "mxfp4_to_fp8": _rowwise(16, 32),
    "luq": [Grid(256, 2, 8), Grid(256, 1, 8), Grid(128, 2, 8), *(Grid(256, 4, 4, s) for s in (0, 1))],
    "radix4": [Grid(256, 2, 16), Grid(128, 2, 16), Grid(256, 4, 8), Grid(256, 2, 8)],
    **{name: [Grid(t, u, p, s) for t in (256, 512) for u, p in ((4, 4), (8, 4), (2, 8), (1, 16)) for s in (0, 1)]
       for name in ("dequantize_luq", "dequantize_radix4")},
    "quantize_tetrajet": [Grid(256, 2, 32), Grid(128, 2, 32), Grid(128, 1, 32), Grid(128, 2, 16)],
    "quantize_tetrajet_stochastic": [Grid(128, 2, 32), Grid(256, 2, 32), Grid(128, 1, 32), Grid(256, 2, 16)],
    "q_ema": [Grid(128, 2, 16), Grid(128, 2, 32), Grid(128, 1, 32), Grid(256, 2, 16)],
    **{name: [Down(128, 3), Down(128, 4), Down(128, 5), Down(128, 6), Down(256, 2)] for name in tetrajet.DOWN},
    "payload_rows": _grids(16, (4, 8), (64, 128, 256, 512)),
    "payload_quantize": _grids(32, (1, 2)),
    "permute_sum": _grids(4, (4, 8), (128, 256)),
    "mxfp4_to_fp8_columns": [
        *(Order(across, 8, 128, stream) for across in (1, 2) for stream in (0, 1)),
        *(Order(across, blocks, 256) for across in (1, 2) for blocks in (3, 4, 5)),
        *(Order(across, blocks, 256, turns=2) for across in (1, 2) for blocks in (5, 6, 7)),
    ],
    "mxfp4_to_fp8_rows_columns": [
        Order(across, blocks, 256, 0, cluster) for across in (0, 1, 4) for blocks in (3, 4) for cluster in (1, 2, 4)
    ],
    "mxfp4_columns": [
        Order(across, blocks * 256 // wide, wide) for across in (1, 2) for wide in (128, 256) for blocks in (2, 3)
    ],
    "fp8_columns": [Order(across, blocks, 128, stream) for across in (1, 2) for blocks in (6, 8) for stream in (0, 1)],
    "swiglu_quantize": [Stay(*cut) for cut in ((384, 2), (256, 3), (512, 2), (256, 4), (1024, 1, 0), (512, 1))],
    "swiglu_backward": [
        Stay(threads, blocks, ahead, stream)
        for threads, blocks in ((256, 3), (256, 4), (256, 5), (256, 6), (512, 2), (512, 3))
        for ahead in (0, 1) for stream in (0, 1)
    ],
}  # fmt: skip
"""Kernel file -> cuts of its launch that are worth timing."""


def _slots(kernel: str) -> list[tuple[dict[str, Any], str]]:
    """Return the places of TUNING that hold a kernel file's cut: (table, key)."""
    tables: list[dict[str, Any]] = [rowwise.TUNING, swiglu.TUNING, logarithmic.TUNING, tetrajet.DOWN]
    found = [(table, name) for table in tables for name in table if name.partition(" ")[0] == kernel]
    return found or [(columns.TUNING, name) for name in columns.TUNING if name.rpartition("_")[0] == kernel]


@functools.cache
def _compile(kernel: str) -> None:
    """Compile a kernel file under all its cuts, several at a time; a cut that does not compile fails when it is run."""
    arch = build.architecture(driver().capability(0))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [pool.submit(build.compiled, kernel, arch, defines=cut.defines) for cut in CUTS[kernel]]
    for job in jobs:
        job.exception()


@contextlib.contextmanager
def _cut(kernel: str, cut: Any) -> Iterator[None]:
    """Launch a kernel by another cut; drop all plans before and after. No other thread may call meanwhile."""
    _compile(kernel)
    slots = [(table, key, table[key]) for table, key in _slots(kernel)]
    plans.forget()
    for table, key, _ in slots:
        table[key] = cut
    try:
        yield
    finally:
        for table, key, shipped in slots:
            table[key] = shipped
        plans.forget()


def tunings(operation: str) -> dict[str, Context]:
    """Return the cuts under which an operation can be timed, apart from the one that ships.

    Args:
        operation: its name.

    Returns:
        Kernel file and macros in words -> a function that returns a context in which the launcher uses the cut. Empty
        for an operation whose launch has one cut.
    """
    kernels = [kernel for kernel in CUTS if operation in compiled.operations(kernel)]
    return {
        f"{kernel} {' '.join(cut.defines)}": functools.partial(_cut, kernel, cut)
        for kernel in kernels
        for cut in CUTS[kernel] if any(table[key] != cut for table, key in _slots(kernel))
    }  # fmt: skip
