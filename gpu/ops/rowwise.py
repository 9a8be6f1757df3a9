"""Launches of the kernels that work along rows: the grid, the structure of arguments, and the choice of function."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

from refnum.errors import ShapeError

from .. import checks
from ..device.arrays import View
from ..device.call import DeviceCall
from ..interface.call import PLAIN, Layouts, Rows

NAMES = ("float32", "bfloat16", "float16")
"""`FloatKind` of the headers -> the word for it in a kernel's name."""


class Grid(NamedTuple):
    """The cut of a launch: threads of a CTA, chunks of a thread, elements of a chunk, whether memory accesses bypass
    the caches, and the rows that a warp moves at once if it moves whole rows.
    """

    threads: int
    unroll: int
    part: int
    stream: int = 0
    rows: int = 1

    @property
    def defines(self) -> tuple[str, ...]:
        """The macros of kernels/memory.cuh, and of kernels/payload_rows.cu if it moves several rows."""
        macros = (
            {**self._asdict(), "rows": self.rows} if self.rows > 1 else dict(zip(self._fields[:4], self, strict=False))
        )
        return tuple(f"{name.upper()}={value}" for name, value in macros.items())


TUNING: dict[str, Grid] = {
    "quantize_mxfp4": Grid(128, 2, 32),
    "dequantize_mxfp4": Grid(512, 2, 8, stream=1),
    "quantize_fp8_tiles": Grid(512, 1, 16),
    "dequantize_fp8_tiles": Grid(128, 2, 8),
    "fp8_to_mxfp4": Grid(128, 2, 32),
    "mxfp4_to_fp8": Grid(512, 2, 16),
    "quantize_mxfp4_stochastic": Grid(256, 2, 32),
    "quantize_tetrajet": Grid(256, 2, 32),
    "quantize_tetrajet_stochastic": Grid(128, 2, 32),
    "q_ema": Grid(128, 2, 16),
    "payload_rows": Grid(256, 8, 16),
    "payload_quantize": Grid(128, 2, 32),
    "permute_sum": Grid(128, 4, 4),
}
"""Kernel file -> its grid: measured, see docs/results."""


class Arguments(ctypes.Structure):
    """Mirror of `refnum::Arguments` in kernels/memory.cuh."""

    _fields_ = [
        ("x", ctypes.c_void_p), ("scales", ctypes.c_void_p), ("out", ctypes.c_void_p), ("out_scales", ctypes.c_void_p),
        ("chunks", ctypes.c_int64), ("x_stride", ctypes.c_int64), ("scale_stride", ctypes.c_int64),
        ("per_row", ctypes.c_uint32), ("valid", ctypes.c_uint32), ("tall", ctypes.c_uint32),
        ("aligned", ctypes.c_uint32),
        ("rule", ctypes.c_int32), ("satfinite", ctypes.c_uint32), ("zero_byte", ctypes.c_uint32),
        ("scale_rows", ctypes.c_uint32), ("out_scale_rows", ctypes.c_uint32), ("per_row_inverse", ctypes.c_uint64),
    ]  # fmt: skip


def layout_defines(layouts: Layouts) -> tuple[str, ...]:
    """Return the macros of kernels/memory.cuh for these layouts: none for bytes."""
    names = zip(("LAYOUT_IN", "LAYOUT_OUT"), layouts, strict=True)
    return tuple(f"{name}={checks.LAYOUTS.index(layout)}" for name, layout in names if layout != "bytes")


class Cut(NamedTuple):
    """A row-wise launch: arguments, whether the number of a chunk is its position in memory, CTAs, and grid."""

    arguments: Arguments
    flat: bool
    blocks: int
    grid: Grid


def cut(kernel: str, given: Rows[View], results: Sequence[View], group: int, halved: bool = False) -> Cut:
    """Return the launch of a row-wise kernel.

    Args:
        kernel: the kernel file.
        given: the checked arguments.
        results: the outputs.
        group: elements that must lie in one row of whole chunks (a block or a tile).
        halved: whether a chunk is half of the grid's part.

    Returns:
        The launch.

    Raises:
        ShapeError: more elements a row, or rows, than the kernel counts.
    """
    x, scale, k, grid = given.x, given.scales, given.k, TUNING[kernel]
    m, chunk = x.shape[0], grid.part // 2 if halved else grid.part
    bytes_ = x.shape[1] * x.dtype.itemsize * chunk // k
    vector = min(bytes_, 16)
    aligned = x.address % vector == 0 and (m == 1 or x.strides[0] % vector == 0)
    per_row, valid = -(-k // group) * (group // chunk), k // chunk
    if per_row >> 32:
        raise ShapeError(f"{x.name} has rows of {k} elements; allowed are fewer than 2**32 times {chunk}")
    flat = aligned and given.tall == 1 and k % group == 0 and x.contiguous and (scale is None or scale.contiguous)
    if given.layouts != PLAIN:  # rows are found by a product with the inverse, exact below 2**64 (memory.cuh)
        flat = flat and per_row > 1 and m * per_row * per_row < 1 << 64
        if m >= 1 << 31:
            raise ShapeError(f"{x.name} has {m} rows; with layouts other than bytes allowed are less than 2**31")
    out = [view.address for view in results]
    arguments = Arguments(
        x.address, scale.address if scale else None, out[0], out[1] if len(out) > 1 else None,
        m * per_row, x.strides[0], scale.strides[0] if scale else 0, per_row, valid, given.tall, aligned,
        *given.rules, -(-m // given.tall), m, (1 << 64) // per_row + 1 if per_row > 1 else 0,
    )  # fmt: skip
    return Cut(arguments, flat, -(-m * per_row // (grid.threads * grid.unroll)), grid)


def launch(
    call: DeviceCall, kernel: str, name: str, given: Rows[View], group: int, rceil: bool = False, halved: bool = False
) -> None:
    """Launch a row-wise kernel unless there is nothing to do.

    rceil: whether there is a function for that scale rule alone; the rest as `cut`.
    """
    if given.x.shape[0] and given.k:
        made = cut(kernel, given, call.results, group, halved)
        suffix = ("_flat_rceil" if rceil and given.rules[0] == 0 else "_flat") if made.flat else ""
        run(call, kernel, name + suffix, made, made.arguments, given.layouts)


def run(call: DeviceCall, kernel: str, name: str, made: Cut, arguments: ctypes.Structure, layouts: Layouts) -> None:
    """Launch a function of a kernel file with a cut."""
    defines = (*made.grid.defines, *layout_defines(layouts))
    call.launch(kernel, name, defines, (made.blocks, 1), made.grid.threads, arguments)
