"""What payloads and permutations share: the row kernels' arguments, and the launch that moves rows."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

from refnum.errors import ArgumentError, UnsupportedError

from ..checks import MOST
from ..device import arrays
from ..device.arrays import View
from ..device.call import EXPERTS, DeviceCall
from .rowwise import TUNING, Grid

SHORT = Grid(64, 4, 16, rows=2)
"""The grid for rows so short that a warp reads a row with four loads of each thread."""


class Experts(ctypes.Structure):
    """Mirror of `refnum::Experts` in kernels/payload_memory.cuh."""

    _fields_ = [
        ("count", ctypes.c_uint32),
        ("first", ctypes.c_uint32 * EXPERTS),
        ("taken", ctypes.c_uint32 * (EXPERTS + 1)),
    ]


class RowArguments(ctypes.Structure):
    """Mirror of `refnum::RowArguments` in kernels/payload_memory.cuh. `slots`: see `frame.Launch`."""

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


def places(rows: Sequence[int], align: int) -> Experts:
    """Return the places of the experts, whose number and rows are checked (`DeviceCall.check_experts`)."""
    padded = [0, *itertools.accumulate(-(-m // align) * align for m in rows)]
    return Experts(len(rows), tuple(padded[:-1]), (0, *itertools.accumulate(rows)))


def item_bytes(view: View) -> int:
    """Return the bytes of each of a vector's integers, negative when they are signed."""
    return view.dtype.itemsize if view.dtype.kind == "u" else -view.dtype.itemsize


def on_device(splits: Any, out: Any = None, results: int = 0) -> bool:
    """Return whether splits are on the device; ArgumentError if they are and `out` does not give the number of rows.

    results: how many arrays of `out` must be given then, 0 where the number of rows does not depend on splits.
    """
    if type(splits) is list or not hasattr(splits, "__dlpack_device__"):
        return False
    if not arrays.on_gpu("splits", splits):
        return False
    if results and (not isinstance(out, tuple | list) or len(out) != results):
        raise ArgumentError(
            f"splits lie on the device but out is not a tuple of {results} arrays; its rows say how many there "
            f"are, which only the device knows: give it, or give splits of the host"
        )
    return True


def widest_piece(*places: int) -> int:
    """Return the widest access, of 16, 8, 4 or 1 bytes, that is aligned at all these addresses, strides and widths."""
    return next(n for n in (16, 8, 4, 1) if all(place % n == 0 for place in places))


def step(call: DeviceCall, arguments: RowArguments, name: str, blocks: int, threads: int) -> None:
    """Launch a kernel that prepares a move of rows."""
    call.launch("payload_rows", name, TUNING["payload_rows"].defines, (blocks, 1), threads, arguments)


def move_rows(
    call: DeviceCall, name: str, x: View, beside: View | None, arguments: RowArguments, warps: int | None = None,
    before: Sequence[tuple[str, int, int]] = (),
) -> None:  # fmt: skip
    """Launch a kernel that moves rows.

    Args:
        call: the call.
        name: the first part of the function's name.
        x: the matrix whose rows are moved.
        beside: a second matrix whose rows are moved with them, or None.
        arguments: the kernel's arguments.
        warps: one warp for each row of this many; None for a gather, whose warps take the rows that the grid says.
        before: (name, CTAs, threads) of the kernels to launch first, after all checks.

    Raises:
        UnsupportedError: more rows, or longer rows, than the kernels count.
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
    grid = SHORT if width <= SHORT.unroll * warp else TUNING["payload_rows"]
    slabs = -(-width // (warp * grid.unroll))
    arguments.span = -(-width // (slabs * warp)) * warp
    if slabs > 65535:
        raise UnsupportedError(f"a row of {width} bytes; the kernels move at most {65535 * warp * grid.unroll} of them")
    for first in before:
        step(call, arguments, *first)
    each = grid.threads // 32 * (grid.rows if warps is None else 1)
    blocks = (-(-rows // each), slabs)
    call.launch("payload_rows", f"{name}_{piece}", grid.defines, blocks, grid.threads, arguments)
