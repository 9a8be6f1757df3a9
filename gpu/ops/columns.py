"""Launchers of the conversions from rows to columns, dense and over ragged experts (clauses N9 and N10)."""

from __future__ import annotations

import bisect
import ctypes
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from refnum.errors import ShapeError

from .. import checks
from ..checks import BLOCK, MOST, TILE, tiles
from ..device import plans
from ..device.arrays import View
from ..device.driver import driver
from ..device.outputs import U8, Outputs
from ..device.plans import planned
from . import rowwise

__all__ = ["fp8_columns", "mxfp4_columns", "mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns"]

SEGMENTS, REACH = 1920, 0xFFFF
"""Blocks of rows of one launch over several experts, and units from its first row to the end of its last; more take
another. A unit is the largest power of two that divides all places.
"""
DOWN = 0xFFFF
"""CTAs of a grid's second axis, at most."""
VECTORS, SCALES = 1, 2
"""Bits of `ColumnArguments.aligned`."""


class Order(NamedTuple):
    """How a launch is cut: column tiles that neighbouring CTAs take of the same rows (0: all), CTAs that a
    multiprocessor must hold at once, columns of a tile, whether memory passes by the caches, CTAs below each other
    that store columns at the same time, groups of 32 columns that a warp takes one after another.
    """

    across: int
    blocks: int
    wide: int = 128
    stream: int = 0
    cluster: int = 1
    turns: int = 1

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
"""Function -> its order: measured, see docs/results."""


class Shape(NamedTuple):
    """Rows of a column block, blocks of rows of a CTA, threads of a CTA if not one a column, codes a byte."""

    tall: int = 128
    blocks: int = 1
    threads: int = 0
    codes: int = 1


SHAPES = {"fp8_columns": Shape(threads=256), "mxfp4_columns": Shape(32, 8, codes=2)}
"""Kernel file -> its shape, where it is not the usual one."""


class ColumnArguments(ctypes.Structure):
    """Mirror of `refnum::ColumnArguments` in kernels/columns.cuh."""

    _fields_ = [
        ("x", ctypes.c_void_p), ("scales", ctypes.c_void_p), ("rows", ctypes.c_void_p),
        ("row_scales", ctypes.c_void_p), ("out", ctypes.c_void_p), ("out_scales", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64), ("scale_stride", ctypes.c_int64), ("out_stride", ctypes.c_int64),
        ("k", ctypes.c_int64), ("first_row", ctypes.c_int64), ("first_segment", ctypes.c_int64),
        ("dense_rows", ctypes.c_int64),
        ("segments", ctypes.c_uint32), ("tiles", ctypes.c_uint32), ("aligned", ctypes.c_uint32),
        ("vector", ctypes.c_uint32), ("shift", ctypes.c_uint32), ("places", ctypes.c_uint16 * (SEGMENTS + 1)),
    ]  # fmt: skip


class RowColumnArguments(ColumnArguments):
    """The same for a kernel whose first two outputs are rows."""

    slots = ("x", "scales", "rows", "row_scales", "out", "out_scales")


def _vector(address: int, rows: int, ends: Sequence[int]) -> int:
    """Return the bytes that every store of a column may have: 16, 4 or 1."""
    places = (address, rows, *ends)
    return next(n for n in (16, 4, 1) if all(place % n == 0 for place in places))


def _aligned(x: View, scales: View, groups: int) -> int:
    """Return which inputs can be read by vectors; `groups` scales of a row go together."""

    def fits(view: View, size: int) -> bool:
        return view.address % size == 0 and (view.shape[0] == 1 or view.strides[0] % size == 0)

    return VECTORS * fits(x, 16) | SCALES * fits(scales, groups)


class Part(NamedTuple):
    """What one launch takes: its first row and column block, all rows if they are one expert's (else 0), blocks of
    rows, log2 of the unit of `places`, and those.
    """

    row: int
    segment: int
    dense_rows: int
    segments: int
    shift: int
    places: Any


def _parts(ends: Sequence[int], tall: int) -> list[Part]:
    """Return the launches over blocks of at most `tall` rows; blocks restart at every expert's end."""
    kind = ctypes.c_uint16 * (SEGMENTS + 1)
    if len(ends) == 1:
        return [Part(0, 0, ends[0], -(-ends[0] // tall), 0, kind())]
    unit = math.gcd(tall, *ends)  # a power of two, as `tall` is
    places = [row for start, end in itertools.pairwise([0, *ends]) for row in range(start, end, tall)] + [ends[-1]]
    parts, first = [], 0
    while first < len(places) - 1:
        row, most = places[first], min(first + SEGMENTS, len(places) - 1)
        last = bisect.bisect_right(places, row + REACH * unit, first, most + 1) - 1
        packed = kind(*((place - row) // unit for place in places[first : last + 1]))
        parts.append(Part(row, first, 0, last - first, unit.bit_length() - 1, packed))
        first = last
    return parts


def _grid(part: Part, shape: Shape, order: Order, across: int, tiles: int) -> tuple[int, int]:
    """Return the CTAs of a part's launch, across and down."""
    turns = -(-part.segments // (shape.blocks * order.cluster)) * order.cluster
    return turns * across, -(-tiles // across)


def _launch(kernel: str, name: str, x: View, scales: View, outputs: Outputs, k: int, splits: Sequence[int]) -> Any:
    """Launch a column kernel on the caller's current stream and return its results.

    splits: rows of each expert, checked; column blocks restart at every one.
    """
    m = x.shape[0]
    if m == 0 or k == 0:
        return outputs.finish()
    shape, order, device = SHAPES.get(kernel, Shape()), TUNING[name], x.device
    ends = list(itertools.accumulate(n for n in splits if n))
    *rows, codes, bytes_ = outputs.views
    groups = -(-k // order.wide)
    across = order.across or groups
    if -(-groups // across) > DOWN:
        raise ShapeError(f"{x.name} has rows of {k} elements; {name} takes at most {DOWN * across * order.wide}")
    parts = _parts(ends, shape.tall)
    grids = [_grid(part, shape, order, across, groups) for part in parts]
    if any(grid[0] > MOST for grid in grids):
        raise ShapeError(f"{x.name} has shape {x.shape}; {name} launches at most {MOST} blocks of tiles across")
    vector = _vector(codes.address, m // shape.codes, [end // shape.codes for end in ends])
    aligned = _aligned(x, scales, order.wide // 32)
    function = driver().function(kernel, name, device, order.defines)
    stream = x.library.stream(device)
    threads = shape.threads or order.wide // order.turns
    first_two: list[int | None] = [view.address for view in rows] or [None, None]
    addresses = [x.address, scales.address, *first_two, codes.address, bytes_.address]
    kind = RowColumnArguments if rows else ColumnArguments
    for part, grid in zip(parts, grids, strict=True):
        sizes = x.strides[0], scales.strides[0], m // shape.codes, k
        arguments = kind(*addresses, *sizes, *part[:4], groups, aligned, vector, *part[4:])
        plans.launch(function, device, grid, threads, stream, arguments)
    return outputs.finish()


@planned(2)
def mxfp4_to_fp8_columns(
    packed: Any, scales: Any, splits: Sequence[int] | None = None, scale: str = "max", *, out: Any = None
) -> Any:
    """Turn row-wise MXFP4 into column-wise E4M3 (N9) -> (codes u8 [K, M], scales u8 [sum_i ceil(m_i/128), K])."""
    view = rowwise.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    checks.choice("scale", scale, ("max", "amax"))
    beside = rowwise.scales(scales, (m, k // BLOCK), view)
    rows = checks.row_splits(splits, m)
    outputs = Outputs(out, [((k, m), U8), ((checks.segments(rows, TILE), k), U8)], [view, beside])
    name = f"mxfp4_to_fp8_columns_{scale}"
    return _launch("mxfp4_to_fp8_columns", name, view, beside, outputs, k, rows.tolist())


@planned(2)
def mxfp4_to_fp8_rows_columns(
    packed: Any, scales: Any, splits: Sequence[int] | None = None, scale: str = "max", *, out: Any = None
) -> Any:
    """Turn row-wise MXFP4 into E4M3 rows and columns in one pass (N9).

    Returns (row codes u8 [M, K], row scales u8 [M, ceil(K/128)], column codes u8 [K, M], column scales u8
    [sum_i ceil(m_i/128), K]).
    """
    view = rowwise.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    checks.choice("scale", scale, ("max", "amax"))
    beside = rowwise.scales(scales, (m, k // BLOCK), view)
    rows = checks.row_splits(splits, m)
    wanted = [((m, k), U8), ((m, tiles(k)), U8), ((k, m), U8), ((checks.segments(rows, TILE), k), U8)]
    outputs = Outputs(out, wanted, [view, beside])
    name = f"mxfp4_to_fp8_rows_columns_{scale}"
    return _launch("mxfp4_to_fp8_rows_columns", name, view, beside, outputs, k, rows.tolist())


@planned(2)
def mxfp4_columns(
    packed: Any, scales: Any, splits: Sequence[int] | None = None, scale: str = "amax", *, out: Any = None
) -> Any:
    """Turn row-wise MXFP4 into 32x1 blocks (N9) -> (packed u8 [K, M/2], scales u8 [sum_i ceil(m_i/32), K])."""
    view = rowwise.codes("packed", packed, BLOCK // 2)
    m, k = view.shape[0], 2 * view.shape[1]
    checks.choice("scale", scale, ("max", "amax"))
    beside = rowwise.scales(scales, (m, k // BLOCK), view)
    rows = checks.row_splits(splits, m, even=True)
    outputs = Outputs(out, [((k, m // 2), U8), ((checks.segments(rows, BLOCK), k), U8)], [view, beside])
    return _launch("mxfp4_columns", f"mxfp4_columns_{scale}", view, beside, outputs, k, rows.tolist())


@planned(2)
def fp8_columns(
    codes: Any, scales: Any, splits: Sequence[int] | None = None, underflow: str = "rne", *, out: Any = None
) -> Any:
    """Turn E4M3 1x128 tiles into column tiles (N10) -> (codes u8 [K, M], scales u8 [sum_i ceil(m_i/128), K])."""
    view = rowwise.codes("codes", codes, BLOCK)
    m, k = view.shape
    checks.choice("underflow", underflow, ("rne", "te"))
    beside = rowwise.scales(scales, (m, tiles(k)), view)
    rows = checks.row_splits(splits, m)
    outputs = Outputs(out, [((k, m), U8), ((checks.segments(rows, TILE), k), U8)], [view, beside])
    return _launch("fp8_columns", f"fp8_columns_{underflow}", view, beside, outputs, k, rows.tolist())
