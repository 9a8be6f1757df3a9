"""Launches of the kernels that turn rows to columns, dense and over ragged experts."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refnum.errors import ShapeError

from ..checks import MOST
from ..device import plans
from ..device.arrays import View
from ..device.driver import driver
from ..device.outputs import Outputs

WINDOWS, EXPERTS = 512, 320
"""Windows of rows, and experts that meet them, of one launch by splits of the host; more take another."""
DOWN = 0xFFFF
"""CTAs of a grid's second axis, at most."""
VECTORS, SCALES = 1, 2
"""Bits of `ColumnArguments.aligned`."""


class Order(NamedTuple):
    """How a launch is cut: column tiles that neighbouring CTAs take of the same rows (0: all), CTAs that a
    multiprocessor must hold at once, columns of a tile, whether memory passes by the caches, CTAs below each other
    that store columns at the same time, groups of 32 columns that a warp takes one after another, whether experts may
    begin at any row; windows that a CTA walks, whether it fetches rows while it turns others,
    bytes of a column that it stores at the same time.
    """

    across: int
    blocks: int
    wide: int = 128
    stream: int = 0
    cluster: int = 1
    turns: int = 1
    ragged: int = 0
    strip: int = 1
    ahead: int = 0
    line: int = 32

    @property
    def defines(self) -> tuple[str, ...]:
        """The macros of kernels/columns.cuh."""
        return tuple(f"{name.upper()}={value}" for name, value in self._asdict().items())


TUNING: dict[str, Order] = {
    "mxfp4_to_fp8_columns_max": Order(2, 5, 256),
    "mxfp4_to_fp8_columns_amax": Order(2, 6, 256, turns=2),
    "mxfp4_to_fp8_rows_columns_max": Order(0, 4, 256, cluster=2),
    "mxfp4_to_fp8_rows_columns_amax": Order(0, 4, 256, cluster=2),
    "mxfp4_columns_max": Order(2, 3, 256),
    "mxfp4_columns_amax": Order(1, 3, 256),
    "fp8_columns_rne": Order(2, 8),
    "fp8_columns_te": Order(2, 8),
}
"""Function -> its order where all experts but the last are whole segments: measured, see docs/results."""
RAGGED: dict[str, Order] = {
    "mxfp4_to_fp8_columns_max": Order(2, 8, ragged=1, strip=8, ahead=1),
    "mxfp4_to_fp8_columns_amax": Order(2, 6, ragged=1, strip=8, ahead=1),
    "mxfp4_to_fp8_rows_columns_max": Order(0, 7, ragged=1, strip=8, ahead=1),
    "mxfp4_to_fp8_rows_columns_amax": Order(0, 6, ragged=1, strip=8, ahead=1),
    "mxfp4_columns_max": Order(2, 5, ragged=1, strip=14),
    "mxfp4_columns_amax": Order(2, 5, ragged=1, strip=14),
    "fp8_columns_rne": Order(2, 4, ragged=1),
    "fp8_columns_te": Order(2, 4, ragged=1),
}
"""The same where experts begin anywhere."""


class Shape(NamedTuple):
    """Rows of a segment, rows of a CTA's window, the same where experts begin anywhere, threads of a CTA if not one a
    column, codes a byte.
    """

    tall: int = 128
    window: int = 128
    ragged: int = 128
    threads: int = 0
    codes: int = 1


SHAPES = {"fp8_columns": Shape(threads=256), "mxfp4_columns": Shape(32, 256, 64, codes=2)}
"""Kernel file -> its shape, where it is not the usual one."""


class ColumnArguments(ctypes.Structure):
    """Mirror of `refnum::ColumnArguments` in kernels/columns.cuh."""

    _fields_ = [
        *[(name, ctypes.c_void_p) for name in
          ("x", "scales", "rows", "row_scales", "out", "out_scales", "table")],
        *[(name, ctypes.c_int64) for name in
          ("x_stride", "scale_stride", "out_stride", "k", "m", "first_window")],
        *[(name, ctypes.c_uint32) for name in ("windows", "tiles", "aligned", "vector", "experts", "blocks")],
        ("ends", ctypes.c_int32 * (EXPERTS + 1)), ("segments", ctypes.c_uint32 * EXPERTS),
        ("at", ctypes.c_uint16 * WINDOWS),
    ]  # fmt: skip


class RowColumnArguments(ColumnArguments):
    """The same for a kernel whose first two outputs are rows."""

    slots = ("x", "scales", "rows", "row_scales", "out", "out_scales")


def _vector(address: int, rows: int) -> int:
    """Return the bytes that every store of a column may have: 16, 4 or 1."""
    return next(n for n in (16, 4, 1) if address % n == 0 and rows % n == 0)


def _aligned(x: View, scales: View, groups: int) -> int:
    """Return which inputs can be read by vectors; `groups` scales of a row go together."""

    def fits(view: View, size: int) -> bool:
        return view.address % size == 0 and (view.shape[0] == 1 or view.strides[0] % size == 0)

    return VECTORS * fits(x, 16) | SCALES * fits(scales, groups)


class Part(NamedTuple):
    """What one launch takes: its first window, windows, experts that meet them (0: segments lie as one expert's).

    Then, counted from the first window: where the segment begins in which it begins, and where each expert ends; the
    number of the first segment of each; the expert in which each window begins.
    """

    first: int
    windows: int
    experts: int = 0
    ends: Any = ()
    segments: Any = ()
    at: Any = ()


def _parts(ends: Sequence[int], shape: Shape) -> list[Part]:
    """Return the launches over windows of rows; segments of at most `tall` rows restart at every expert's end."""
    if all(end % shape.tall == 0 for end in ends[:-1]):
        return [Part(0, -(-ends[-1] // shape.window))]
    windows, height = -(-ends[-1] // shape.ragged), shape.ragged
    stops = np.array(ends, np.int64)
    starts = np.concatenate([[0], stops[:-1]])
    counts = -(-(stops - starts) // shape.tall)
    numbers = np.cumsum(counts) - counts
    at = np.searchsorted(stops, np.arange(windows, dtype=np.int64) * height, "right")
    parts, first = [], 0
    while first < windows:
        low, row = int(at[first]), first * height
        last = min(first + WINDOWS, windows)
        behind = np.searchsorted(starts, np.minimum(np.arange(first, last) * height + height, stops[-1]))
        last = first + int(np.searchsorted(behind, low + EXPERTS, "right"))
        high = int(behind[last - first - 1])
        done = (row - int(starts[low])) // shape.tall
        places = np.concatenate([[int(starts[low]) + done * shape.tall], stops[low:high]]) - row
        own = numbers[low:high].copy()
        own[0] += done
        parts.append(Part(first, last - first, high - low, np.minimum(places, MOST), own, at[first:last] - low))
        first = last
    return parts


def _grid(windows: int, order: Order, tiles: int) -> tuple[int, int]:
    """Return the CTAs of a launch, across and down."""
    across = order.across or tiles
    strips = -(-windows // order.strip)
    return -(-strips // order.cluster) * order.cluster * across, -(-tiles // across)


def columns(kernel: str, name: str, x: View, scales: View, outputs: Outputs, k: int, splits: Sequence[int]) -> Any:
    """Launch a column kernel on the caller's current stream and return its results.

    splits: rows of each expert, checked; segments restart at every one.
    """
    m = x.shape[0]
    if m == 0 or k == 0:
        return outputs.finish()
    shape, device = SHAPES.get(kernel, Shape()), x.device
    parts = _parts(list(itertools.accumulate(n for n in splits if n)), shape)
    order = (RAGGED if parts[0].experts else TUNING)[name]
    *rows, codes, bytes_ = outputs.views
    tiles = -(-k // order.wide)
    across = order.across or tiles
    if -(-tiles // across) > DOWN:
        raise ShapeError(f"{x.name} has rows of {k} elements; {name} takes at most {DOWN * across * order.wide}")
    grids = [_grid(part.windows, order, tiles) for part in parts]
    if any(grid[0] > MOST for grid in grids):
        raise ShapeError(f"{x.name} has shape {x.shape}; {name} launches at most {MOST} blocks of tiles across")
    function = driver().function(kernel, name, device, order.defines)
    stream = x.library.stream(device)
    threads = shape.threads or order.wide // order.turns
    first_two: list[int | None] = [view.address for view in rows] or [None, None]
    kind = RowColumnArguments if rows else ColumnArguments
    for part, grid in zip(parts, grids, strict=True):
        arguments = kind(
            x.address, scales.address, *first_two, codes.address, bytes_.address, None, x.strides[0],
            scales.strides[0], m // shape.codes, k, m, part.first, part.windows, tiles,
            _aligned(x, scales, order.wide // 32), _vector(codes.address, m // shape.codes), part.experts,
            bytes_.shape[0], _filled(ColumnArguments.ends.size // 4, ctypes.c_int32, part.ends),
            _filled(EXPERTS, ctypes.c_uint32, part.segments), _filled(WINDOWS, ctypes.c_uint16, part.at),
        )  # fmt: skip
        plans.launch(function, device, grid, threads, stream, arguments)
    return outputs.finish()


def _filled(count: int, kind: Any, values: Any) -> Any:
    """Return a ctypes array that begins with these values."""
    out = (kind * count)()
    if len(values):
        np.frombuffer(out, np.dtype(kind))[: len(values)] = values
    return out
