"""Launches of the kernels that turn rows to columns, dense and over ragged experts."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import plans
from .driver import driver
from .interop import View
from .launch import Outputs

SEGMENTS = 960
"""Blocks of rows of one launch; more take another."""
TALL = 128
"""Rows of a column block."""


class Order(NamedTuple):
    """How a launch is cut: column tiles that neighbouring CTAs take of the same rows, CTAs that a multiprocessor must
    hold at once, columns of a tile, whether memory passes by the caches.
    """

    across: int
    blocks: int
    wide: int = 128
    stream: int = 0

    @property
    def defines(self) -> tuple[str, ...]:
        """The macros of kernels/columns.cuh."""
        return tuple(f"{name.upper()}={value}" for name, value in self._asdict().items())


TUNING: dict[str, Order] = {
    "mxfp4_to_fp8_columns_max": Order(1, 5, 256),
    "mxfp4_to_fp8_columns_amax": Order(1, 7),
    "fp8_columns_rne": Order(1, 6),
    "fp8_columns_te": Order(2, 5),
}
"""Function -> its order: measured, see docs/results."""


class ColumnArguments(ctypes.Structure):
    """Mirror of `refnum::ColumnArguments` in kernels/columns.cuh."""

    _fields_ = [
        ("x", ctypes.c_void_p), ("scales", ctypes.c_void_p), ("out", ctypes.c_void_p), ("out_scales", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64), ("scale_stride", ctypes.c_int64), ("out_stride", ctypes.c_int64),
        ("k", ctypes.c_int64), ("first_row", ctypes.c_int64), ("first_segment", ctypes.c_int64),
        ("tiles", ctypes.c_uint32), ("aligned", ctypes.c_uint32), ("vector", ctypes.c_uint32),
        ("places", ctypes.c_uint32 * SEGMENTS),
    ]  # fmt: skip


def _vector(address: int, rows: int, ends: Sequence[int]) -> int:
    """Return the bytes that every store of a column may have: 16, 4 or 1."""
    places = (address, rows, *ends)
    return next(n for n in (16, 4, 1) if all(place % n == 0 for place in places))


def _segments(ends: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first row, rows) of every block of at most 128 rows; blocks restart at every expert's end."""
    return [
        (row, min(TALL, end - row))
        for start, end in itertools.pairwise([0, *ends]) for row in range(start, end, TALL)
    ]  # fmt: skip


def columns(kernel: str, name: str, x: View, scales: View, outputs: Outputs, k: int, splits: Sequence[int]) -> Any:
    """Launch a column kernel on the caller's current stream and return its results.

    splits: rows of each expert, checked; column blocks of 128 rows restart at every one.
    """
    m = x.shape[0]
    if m == 0 or k == 0:
        return outputs.finish()
    ends = list(itertools.accumulate(splits))
    codes, bytes_ = outputs.views
    order, device = TUNING[name], x.device
    tiles = -(-k // order.wide)
    vector = _vector(codes.address, m, ends)
    aligned = x.address % 16 == 0 and (m == 1 or x.strides[0] % 16 == 0)
    function = driver().function(kernel, name, device, order.defines)
    stream = x.library.stream(device)
    threads = 256 if kernel == "fp8_columns" else order.wide
    segments = _segments(ends)
    for first in range(0, len(segments), SEGMENTS):
        part = segments[first : first + SEGMENTS]
        row = part[0][0]
        places = (ctypes.c_uint32 * SEGMENTS)(*((start - row) << 8 | (rows - 1) for start, rows in part))
        arguments = ColumnArguments(
            x.address, scales.address, codes.address, bytes_.address, x.strides[0], scales.strides[0], m, k,
            row, first, tiles, aligned, vector, places,
        )  # fmt: skip
        grid = (len(part) * order.across, -(-tiles // order.across))
        plans.launch(function, device, grid, threads, stream, arguments)
    return outputs.finish()
