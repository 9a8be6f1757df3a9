"""Launchers of the conversions from rows to columns, dense and over ragged experts (clauses N9 and N10)."""

from __future__ import annotations

import ctypes
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, cast

import numpy as np

from refnum.errors import ShapeError

from .. import checks
from ..checks import MOST
from ..device import arrays
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import columns
from ..interface.call import U8, public
from ..interface.columns import MODES, Columns
from .payload_rows import item_bytes, on_device

__all__ = ["fp8_columns", "mxfp4_columns", "mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns"]

WINDOWS, EXPERTS = 512, 320
"""Windows of rows, and experts that meet them, of one launch by splits of the host; more take another."""
DOWN = WORD = 0xFFFF
"""CTAs of a grid's second axis, at most, and the largest number in two bytes."""
CROWDED = 4
"""Up to so many segments a window, each has a CTA of its own."""
VECTORS, SCALES = 1, 2
"""Bits of `ColumnArguments.aligned`."""
PLACES = "column_places"
"""Kernel file and function that find experts' places by splits on the device."""
MARKS = "column_marks"
"""Function of that file that marks where column bytes will be."""
SECTOR, SHARES = 32, 4
"""Rows of a sector of an output's columns, and threads that have eight columns of one (kernels/column_seams.cuh)."""
P = ParamSpec("P")


class Order(NamedTuple):
    """How a launch is cut: column tiles that neighbouring CTAs take of the same rows (0: all), CTAs that a
    multiprocessor must hold at once, columns of a tile, whether memory passes by the caches, CTAs below each other
    that store columns at the same time, groups of 32 columns that a warp takes one after another, whether experts may
    begin at any row; windows that a CTA walks, whether it fetches rows while it turns others,
    bytes of a column that it stores at the same time; whether
    windows are segments of several experts, which begin at multiples of 32 (1) or anywhere (2).
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
    split: int = 0

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
    "mxfp4_to_fp8_columns_max": Order(2, 6, 256, turns=2, ragged=1),
    "mxfp4_to_fp8_columns_amax": Order(2, 5, ragged=1, strip=8, ahead=1),
    "mxfp4_to_fp8_rows_columns_max": Order(0, 4, 256, cluster=2, ragged=1),
    "mxfp4_to_fp8_rows_columns_amax": Order(0, 5, ragged=1, strip=6, ahead=1, line=64),
    "mxfp4_columns_max": Order(4, 7, ragged=1, strip=4),
    "mxfp4_columns_amax": Order(2, 4, ragged=1, strip=14),
    "fp8_columns_rne": Order(2, 8, ragged=1),
    "fp8_columns_te": Order(2, 8, ragged=1),
}
"""The same where experts begin anywhere."""
SEGMENTS: dict[str, Order] = {
    "mxfp4_to_fp8_columns_amax": Order(2, 6, 256, turns=2, split=2),
    "mxfp4_to_fp8_rows_columns_amax": Order(1, 4, 256, cluster=2, split=2),
}
"""The same by splits of the host, where columns are whole sixteens of bytes and segments not too many."""


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
          ("x", "scales", "rows", "row_scales", "out", "out_scales", "splits", "table")],
        *[(name, ctypes.c_int64) for name in
          ("x_stride", "scale_stride", "out_stride", "split_stride", "k", "m", "first_window")],
        *[(name, ctypes.c_uint32) for name in
          ("windows", "tiles", "aligned", "vector", "experts", "blocks", "tall", "height")],
        ("split_bytes", ctypes.c_int32),
        ("ends", ctypes.c_int32 * (EXPERTS + 1)), ("segments", ctypes.c_uint32 * EXPERTS),
        ("at", ctypes.c_uint16 * WINDOWS),
    ]  # fmt: skip


class RowColumnArguments(ColumnArguments):
    """The same for a kernel whose first two outputs are rows."""

    slots = ("x", "scales", "rows", "row_scales", "out", "out_scales")


class ColumnDeviceArguments(ColumnArguments):
    """The same for splits on the device."""

    slots = ("x", "scales", "splits", "out", "out_scales", "table")


class RowColumnDeviceArguments(ColumnArguments):
    """The same for splits on the device and a kernel whose first two outputs are rows."""

    slots = ("x", "scales", "splits", "rows", "row_scales", "out", "out_scales", "table")


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


def _whole_parts(ends: Sequence[int], shape: Shape) -> list[Part]:
    """Return the launches over segments: each is a window. Experts are told from a multiple of `SECTOR` rows on."""
    stops = np.array(ends, np.int64)
    starts = np.concatenate([[0], stops[:-1]])
    counts = -(-(stops - starts) // shape.tall)
    numbers, expert_of = np.cumsum(counts) - counts, np.repeat(np.arange(len(ends)), counts)
    parts, first = [], 0
    while first < len(expert_of):
        low, done = int(expert_of[first]), first - int(numbers[expert_of[first]])
        low = int(np.searchsorted(stops, (int(starts[low]) + done * shape.tall) // SECTOR * SECTOR, "right"))
        last = min(first + WINDOWS, int(np.searchsorted(expert_of, low + EXPERTS)))
        high = int(expert_of[last - 1]) + 1
        places = np.concatenate([starts[low : low + 1], stops[low:high]])
        parts.append(Part(first, last - first, high - low, places, numbers[low:high], expert_of[first:last] - low))
        first = last
    return parts


def _cut(name: str, ends: Sequence[int], shape: Shape, vector: int = 1) -> tuple[Order, list[Part]]:
    """Return the order of a function for experts that end at these rows, and its launches; `vector`: see `_vector`."""
    parts = _parts(ends, shape)
    if not parts[0].experts:
        return TUNING[name], parts
    if shape.tall == 128 and ends[-1] <= MOST and all(end % 32 == 0 for end in ends[:-1]):
        return TUNING[name]._replace(split=1), _whole_parts(ends, shape)
    if name in SEGMENTS and ends[-1] <= MOST and vector == 16:
        whole = _whole_parts(ends, shape)
        if sum(part.windows for part in whole) * shape.tall <= CROWDED * ends[-1]:
            return SEGMENTS[name], whole
    return RAGGED[name], parts


def _grid(windows: int, order: Order, tiles: int) -> tuple[int, int]:
    """Return the CTAs of a launch, across and down."""
    across = order.across or tiles
    strips = -(-windows // order.strip)
    ctas, down = -(-strips // order.cluster) * order.cluster * across, -(-tiles // across)
    if order.split < 2:
        return ctas, down
    seams = -(-windows * across * order.turns * SHARES // (8 * order.cluster))  # threads: a stripe's, of WIDE / TURNS a CTA
    return ctas + seams * order.cluster, down + 1


def _sized(call: DeviceCall, kernel: str, name: str, order: Order, given: Columns[View], counts: Sequence[int]) -> Any:
    """Return the arguments that all launches of a call share, and the grid of each number of windows."""
    x, scales, k, m = given.x, given.scales, given.k, given.x.shape[0]
    shape, tiles = SHAPES.get(kernel, Shape()), -(-k // order.wide)
    across = order.across or tiles
    if -(-tiles // across) + (order.split == 2) > DOWN:
        raise ShapeError(f"{x.name} has rows of {k} elements; {name} takes at most {DOWN * across * order.wide}")
    grids = [_grid(count, order, tiles) for count in counts]
    if any(grid[0] > MOST for grid in grids):
        raise ShapeError(f"{x.name} has shape {x.shape}; {name} launches at most {MOST} blocks of tiles across")
    *rows, codes, bytes_ = call.results
    shared = {
        "x": x.address, "scales": scales.address, "out": codes.address, "out_scales": bytes_.address,
        **dict(zip(("rows", "row_scales"), (view.address for view in rows), strict=False)),
        "x_stride": x.strides[0], "scale_stride": scales.strides[0], "out_stride": m // shape.codes, "k": k, "m": m,
        "tiles": tiles, "aligned": _aligned(x, scales, order.wide // 32),
        "vector": _vector(codes.address, m // shape.codes), "blocks": bytes_.shape[0],
    }  # fmt: skip
    return shared, grids, shape.threads or order.wide // order.turns


def _launch(call: DeviceCall, given: Columns[View]) -> None:
    """Launch a column kernel; column blocks restart at every expert."""
    kernel, name = call.operation, f"{call.operation}_{given.mode}"
    if given.x.shape[0] == 0 or given.k == 0:
        return
    ends = list(itertools.accumulate(n for n in given.splits.tolist() if n))
    shape = SHAPES.get(kernel, Shape())
    order, parts = _cut(name, ends, shape, _vector(call.results[-2].address, given.x.shape[0] // shape.codes))
    shared, grids, threads = _sized(call, kernel, name, order, given, [part.windows for part in parts])
    kind = RowColumnArguments if len(call.results) > 2 else ColumnArguments
    if order.split == 2:
        marked = -(-shared["blocks"] * given.k // (8 * 1024))
        call.launch(PLACES, MARKS, (), (marked, 1), 1024, kind(**shared))
    for part, grid in zip(parts, grids, strict=True):
        arguments = kind(
            **shared, first_window=part.first, windows=part.windows, experts=part.experts,
            ends=_filled(ColumnArguments.ends.size // 4, ctypes.c_int32, part.ends),
            segments=_filled(EXPERTS, ctypes.c_uint32, part.segments),
            at=_filled(WINDOWS, ctypes.c_uint16, part.at),
        )  # fmt: skip
        call.launch(kernel, name, order.defines, grid, threads, arguments)


def _launch_on_device(call: DeviceCall, given: tuple[Columns[View], View]) -> None:
    """Launch a column kernel behind one that finds the experts' places by splits on the device."""
    columns_, counts = given
    kernel, name = call.operation, f"{call.operation}_{columns_.mode}"
    m, experts, shape = columns_.x.shape[0], counts.shape[0], SHAPES.get(kernel, Shape())
    if m == 0 or columns_.k == 0:
        return
    windows, order = -(-m // shape.ragged), RAGGED[name]
    shared, (grid,), threads = _sized(call, kernel, name, order, columns_, [windows])
    kind = RowColumnDeviceArguments if len(call.results) > 2 else ColumnDeviceArguments
    arguments = kind(
        **shared, windows=windows, experts=experts, tall=shape.tall, height=shape.ragged,
        splits=counts.address, split_stride=counts.strides[0], split_bytes=item_bytes(counts),
        table=call.scratch(4 * (2 * experts + 1 + windows)),
    )  # fmt: skip
    call.launch(PLACES, PLACES, (), (1, 1), 1024, arguments)
    call.launch(kernel, name, order.defines, grid, threads, arguments)


def _filled(count: int, kind: Any, values: Any) -> Any:
    """Return a ctypes array that begins with these values."""
    out = (kind * count)()
    if len(values):
        np.frombuffer(out, np.dtype(kind))[: len(values)] = values
    return out


def _described_on_device(
    call: DeviceCall, codes: Any, scales: Any, splits: Any, mode: str, *, out: Any
) -> tuple[Columns[View], View]:
    """Check the arguments of a call by splits that lie on the device; `out` says how many scale blocks there may be."""
    fp8 = call.operation == "fp8_columns"
    checks.choice("underflow" if fp8 else "scale", mode, columns.UNDERFLOWS if fp8 else MODES)
    x, beside, m, k = call.tiles(codes, scales) if fp8 else call.mxfp4(codes, scales)
    counts = call.indices("splits", splits, x, None, "it is a list of counts", None, "")
    blocks = next(iter(arrays.look(f"out[{len(out) - 1}]", out[-1]).shape), 0)
    wanted = [((k, m // SHAPES.get(call.operation, Shape()).codes), U8), ((blocks, k), U8)]
    if call.operation == "mxfp4_to_fp8_rows_columns":
        wanted = [((m, k), U8), ((m, checks.tiles(k)), U8), *wanted]
    call.outputs(out, wanted, [x, beside, counts])
    return Columns(x, beside, k, np.empty(0, np.int64), mode), counts


def _by_splits(described: Callable[Concatenate[DeviceCall, P], Columns[View]], results: int = 2) -> Callable[P, Any]:
    """Return the launcher of a conversion, which takes splits of the host or on the device."""
    by_host = cast(Any, planned(described, 2)(_launch))
    by_device = planned(_described_on_device, 3, operation=described.__name__)(_launch_on_device)
    signature = inspect.signature(described)

    @public(described, _launch)
    def launcher(*args: Any, **kwargs: Any) -> Any:
        splits = args[2] if len(args) > 2 else kwargs.get("splits")
        if splits is None or not on_device(splits, kwargs.get("out"), results):
            return by_host(*args, **kwargs)
        bound = signature.bind(None, *args, **kwargs)
        bound.apply_defaults()
        _, x, scales, counts, mode = bound.args
        return by_device(x, scales, counts, mode, out=kwargs["out"])

    return cast(Callable[P, Any], launcher)


mxfp4_to_fp8_columns = _by_splits(columns.mxfp4_to_fp8_columns)
mxfp4_to_fp8_rows_columns = _by_splits(columns.mxfp4_to_fp8_rows_columns, 4)
mxfp4_columns = _by_splits(columns.mxfp4_columns)
fp8_columns = _by_splits(columns.fp8_columns)
