"""What payloads and permutations share: the row kernels' arguments, checks of row maps, the launch that moves rows."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

from refnum.errors import ArgumentError, DtypeError, ShapeError, UnsupportedError

from ..checks import BLOCK, MOST
from ..device import arrays, plans
from ..device.arrays import View
from ..device.driver import driver
from . import rowwise

UNIT = BLOCK // 2 + 1
"""Payload bytes of one MX block: 16 of codes and one of scale."""
EXPERTS = 1024
"""Experts whose places fit a launch's parameters."""
SHORT = rowwise.Grid(64, 4, 16, rows=2)
"""The grid of rows so short that four loads a thread take one."""


class Experts(ctypes.Structure):
    """Mirror of `refnum::Experts` in kernels/payload_memory.cuh."""

    _fields_ = [
        ("count", ctypes.c_uint32),
        ("first", ctypes.c_uint32 * EXPERTS),
        ("taken", ctypes.c_uint32 * (EXPERTS + 1)),
    ]


class RowArguments(ctypes.Structure):
    """Mirror of `refnum::RowArguments` in kernels/payload_memory.cuh. `slots`: see `ready.Launch`."""

    slots: tuple[str, ...] = ()
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in
          ("x", "scales", "map", "splits", "out", "out_scales", "offsets", "scratch")],
        *[(name, ctypes.c_int64) for name in ("x_stride", "scale_stride", "map_stride", "split_stride")],
        *[(name, ctypes.c_uint64) for name in ("rows", "tokens", "mapped", "align")],
        *[(name, ctypes.c_uint32) for name in ("width", "codes", "span")],
        ("map_bytes", ctypes.c_int32), ("split_bytes", ctypes.c_int32), ("all_experts", ctypes.c_uint32),
        ("experts", Experts),
    ]  # fmt: skip


def places(rows: Sequence[int], align: int) -> tuple[Experts, int, int]:
    """Return (places of the experts, padded rows, rows)."""
    if len(rows) > EXPERTS:
        raise UnsupportedError(f"splits holds {len(rows)} experts; the kernels have room for {EXPERTS}")
    padded = [0, *itertools.accumulate(-(-m // align) * align for m in rows)]
    taken = [0, *itertools.accumulate(rows)]
    if padded[-1] > MOST:
        raise UnsupportedError(f"splits at align={align} need {padded[-1]} rows; the kernels count to {MOST}")
    return Experts(len(rows), tuple(padded[:-1]), tuple(taken)), padded[-1], taken[-1]


def vector(name: str, x: Any, beside: View, count: int | None, what: str) -> View:
    """Return the view of a 1-D device array beside another: every item at a multiple of its size, any stride."""
    view = arrays.look(name, x)
    if len(view.shape) != 1 or (count is not None and view.shape != (count,)):
        wanted = "[n]" if count is None else f"({count},)"
        raise ShapeError(f"{name} has shape {view.shape}; {what}, so it must be {wanted}")
    together(view, beside)
    size = view.dtype.itemsize
    if view.address % size or (view.shape[0] > 1 and view.strides[0] % size):
        raise ArgumentError(
            f"{name} lies at {view.address:#x} with a stride of {view.strides[0]} bytes; allowed are multiples of its "
            f"items' {size} bytes"
        )
    return view


def together(view: View, beside: View) -> None:
    """Raise ArgumentError unless both arrays are of one library and on one device."""
    if view.device != beside.device or view.library.name != beside.library.name:
        raise ArgumentError(
            f"{view.name} is an array of {view.library.name} on device {view.device} and {beside.name} one of "
            f"{beside.library.name} on device {beside.device}; give both of one library, on one device"
        )


def indices(name: str, x: Any, beside: View, count: int | None, what: str) -> tuple[View, int]:
    """Return the view of a 1-D array of integers, and its items' width in bytes, negative when they are signed."""
    view = vector(name, x, beside, count, what)
    if view.dtype.kind not in "iu" or not view.dtype.isnative:
        raise DtypeError(f"{name} has dtype {view.dtype}; allowed are integers in the machine's byte order")
    size = view.dtype.itemsize
    return view, size if view.dtype.kind == "u" else -size


def widest_piece(*places: int) -> int:
    """Return the bytes that every load and store of rows at these places may have: 16, 8, 4 or 1."""
    return next(n for n in (16, 8, 4, 1) if all(place % n == 0 for place in places))


def step(x: View, arguments: RowArguments, name: str, blocks: int, threads: int) -> None:
    """Launch a kernel that prepares a move of rows."""
    function = driver().function("payload_rows", name, x.device, rowwise.TUNING["payload_rows"].defines)
    plans.launch(function, x.device, (blocks, 1), threads, x.library.stream(x.device), arguments)


def move_rows(
    name: str, x: View, beside: View | None, arguments: RowArguments, warps: int | None = None,
    before: Sequence[tuple[str, int, int]] = (),
) -> None:  # fmt: skip
    """Launch a kernel that moves rows; without `warps`, a gather, whose warps take as many rows as the grid says.

    `beside` is a second matrix whose rows are moved along. `before`: names, CTAs and threads of the steps that go
    before it, once nothing is left to refuse.
    """
    rows, width = arguments.rows if warps is None else warps, arguments.width
    if rows == 0:
        return
    if rows > MOST or width > MOST:
        raise UnsupportedError(f"{rows} rows of {width} bytes; the kernels count each to {MOST}")
    places = [x.address, x.strides[0] if x.shape[0] > 1 else 0, width, arguments.codes]
    if beside is not None:
        places += [beside.address, beside.strides[0] if beside.shape[0] > 1 else 0]
    piece = widest_piece(*places)
    warp = 32 * piece
    grid = SHORT if width <= SHORT.unroll * warp else rowwise.TUNING["payload_rows"]
    slabs = -(-width // (warp * grid.unroll))
    arguments.span = -(-width // (slabs * warp)) * warp
    if slabs > 65535:
        raise UnsupportedError(f"a row of {width} bytes; the kernels move at most {65535 * warp * grid.unroll} of them")
    for first in before:
        step(x, arguments, *first)
    function = driver().function("payload_rows", f"{name}_{piece}", x.device, grid.defines)
    each = grid.threads // 32 * (grid.rows if warps is None else 1)
    blocks = (-(-rows // each), slabs)
    plans.launch(function, x.device, blocks, grid.threads, x.library.stream(x.device), arguments)
