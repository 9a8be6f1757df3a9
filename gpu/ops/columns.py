"""Launchers of the conversions from rows to columns, dense and over ragged experts (clauses N9 and N10)."""

from __future__ import annotations

import bisect
import ctypes
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from refnum.errors import ShapeError

from ..checks import MOST
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import columns
from ..interface.columns import Columns

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


def _launch(call: DeviceCall, given: Columns[View]) -> None:
    """Launch a column kernel; column blocks restart at every expert."""
    x, scales, k, kernel, name = given.x, given.scales, given.k, call.operation, f"{call.operation}_{given.mode}"
    m = x.shape[0]
    if m == 0 or k == 0:
        return
    shape, order = SHAPES.get(kernel, Shape()), TUNING[name]
    ends = list(itertools.accumulate(n for n in given.splits.tolist() if n))
    *rows, codes, bytes_ = call.results
    tiles = -(-k // order.wide)
    across = order.across or tiles
    if -(-tiles // across) > DOWN:
        raise ShapeError(f"{x.name} has rows of {k} elements; {name} takes at most {DOWN * across * order.wide}")
    parts = _parts(ends, shape.tall)
    grids = [_grid(part, shape, order, across, tiles) for part in parts]
    if any(grid[0] > MOST for grid in grids):
        raise ShapeError(f"{x.name} has shape {x.shape}; {name} launches at most {MOST} blocks of tiles across")
    vector = _vector(codes.address, m // shape.codes, [end // shape.codes for end in ends])
    aligned = _aligned(x, scales, order.wide // 32)
    threads = shape.threads or order.wide // order.turns
    first_two: list[int | None] = [view.address for view in rows] or [None, None]
    addresses = [x.address, scales.address, *first_two, codes.address, bytes_.address]
    kind = RowColumnArguments if rows else ColumnArguments
    for part, grid in zip(parts, grids, strict=True):
        sizes = x.strides[0], scales.strides[0], m // shape.codes, k
        arguments = kind(*addresses, *sizes, *part[:4], tiles, aligned, vector, *part[4:])
        call.launch(kernel, name, order.defines, grid, threads, arguments)


mxfp4_to_fp8_columns = planned(columns.mxfp4_to_fp8_columns, 2)(_launch)
mxfp4_to_fp8_rows_columns = planned(columns.mxfp4_to_fp8_rows_columns, 2)(_launch)
mxfp4_columns = planned(columns.mxfp4_columns, 2)(_launch)
fp8_columns = planned(columns.fp8_columns, 2)(_launch)
