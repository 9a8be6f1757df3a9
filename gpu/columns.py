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

EXPERTS = 256
"""Experts of one launch; more take another."""
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
        ("tiles", ctypes.c_uint32), ("segments", ctypes.c_uint32), ("aligned", ctypes.c_uint32),
        ("vector", ctypes.c_uint32), ("experts", ctypes.c_uint32),
        ("rows_end", ctypes.c_uint32 * EXPERTS), ("segments_end", ctypes.c_uint32 * EXPERTS),
    ]  # fmt: skip


def _vector(address: int, rows: int, ends: Sequence[int]) -> int:
    """Return the bytes that every store of a column may have: 16, 4 or 1."""
    places = (address, rows, *ends)
    return next(n for n in (16, 4, 1) if all(place % n == 0 for place in places))


def columns(kernel: str, name: str, x: View, scales: View, outputs: Outputs, k: int, splits: Sequence[int]) -> Any:
    """Launch a column kernel on the caller's current stream and return its results.

    splits: rows of each expert, checked; column blocks of 128 rows restart at every one.
    """
    m = x.shape[0]
    if m == 0 or k == 0:
        return outputs.finish()
    lengths = [n for n in splits if n]
    ends = list(itertools.accumulate(lengths))
    codes, bytes_ = outputs.views
    order, device = TUNING[name], x.device
    tiles = -(-k // order.wide)
    vector = _vector(codes.address, m, ends)
    aligned = x.address % 16 == 0 and (m == 1 or x.strides[0] % 16 == 0)
    function = driver().function(kernel, name, device, order.defines)
    stream = x.library.stream(device)
    threads = 256 if kernel == "fp8_columns" else order.wide
    row = segment = 0
    for first in range(0, len(lengths), EXPERTS):
        part = lengths[first : first + EXPERTS]
        rows_end = list(itertools.accumulate(part))
        segments_end = list(itertools.accumulate(-(-n // TALL) for n in part))
        arguments = ColumnArguments(
            x.address, scales.address, codes.address, bytes_.address, x.strides[0], scales.strides[0], m, k,
            row, segment, tiles, segments_end[-1], aligned, vector, len(part),
            (ctypes.c_uint32 * EXPERTS)(*rows_end), (ctypes.c_uint32 * EXPERTS)(*segments_end),
        )  # fmt: skip
        plans.launch(function, device, tiles * segments_end[-1], threads, stream, arguments)
        row, segment = row + rows_end[-1], segment + segments_end[-1]
    return outputs.finish()
