"""Launcher of the weighted way back from expert order to tokens (clause N12)."""

from __future__ import annotations

import ctypes

import numpy as np

from refnum.errors import UnsupportedError

from ..checks import MOST
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import payload
from ..interface.payload import Sum
from .payload_rows import Experts, item_bytes, places, widest_piece
from .rowwise import TUNING

__all__ = ["unpermute"]

HELD = 32 * 8 + 4
"""Bytes of scratch that `unpermute` needs for a token: a list of 32 rows and weights, and their count."""
TOGETHER = 4096
"""Rows in expert order up to which one launch may compute all sums, every CTA reading the whole row map: measured, see
docs/results.
"""
WALKED = 1 << 22
"""Items of the row map that all CTAs of that launch may read together. The number of CTAs grows with tokens and
columns, even if few tokens have a row; then most CTAs read the map in vain, and three launches cost less. Up to this
bound one launch took 0.42 to 0.98 of the time of three, beyond it 0.89 to 1.64.
"""
COLUMNS = 1024
"""Columns of `unpermute` that a warp takes at most: measured, see docs/results."""


class SumArguments(ctypes.Structure):
    """Mirror of `refnum::SumArguments` in kernels/permute_sum.cu."""

    slots: tuple[str, ...] = ("x", "map", "out", "scratch")
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("x", "map", "weights", "out", "scratch")],
        *[(name, ctypes.c_int64) for name in ("x_stride", "map_stride", "weight_stride")],
        ("tokens", ctypes.c_uint64), ("mapped", ctypes.c_uint64),
        *[(name, ctypes.c_uint32) for name in ("width", "span", "warps")],
        ("map_bytes", ctypes.c_int32), ("experts", Experts),
    ]  # fmt: skip


class WeightedArguments(SumArguments):
    """The arguments of a sum with weights."""

    slots = ("x", "map", "weights", "out", "scratch")


@planned(payload.unpermute, 2, optional="weights")
def unpermute(call: DeviceCall, given: Sum[View]) -> None:
    """Launch one kernel that has no lists in memory, or three: counts of zero, lists of rows, sums."""
    view, index, factors, tokens = given.rows, given.row_map, given.weights, given.tokens
    width, taken = view.shape[1], index.shape[0]
    lanes, span, warps = _columns(view)
    if tokens == 0 or width == 0:
        return
    together = taken <= TOGETHER and _blocks(tokens * warps) * taken <= WALKED
    arguments = (WeightedArguments if factors else SumArguments)(
        x=view.address, map=index.address, weights=factors.address if factors else None,
        out=call.results[0].address, scratch=call.scratch(0 if together else tokens * HELD),
        x_stride=view.strides[0], map_stride=index.strides[0],
        weight_stride=factors.strides[0] if factors else 0, tokens=tokens, mapped=taken, width=width,
        map_bytes=item_bytes(index), experts=places(given.splits, given.align), span=span, warps=warps,
    )  # fmt: skip
    grid = TUNING["permute_sum"]
    if _blocks(tokens * warps) > MOST:
        raise UnsupportedError(f"{tokens} tokens of {width} columns; give fewer at a time")
    kind = "float32" if view.dtype == np.float32 else "bfloat16"
    name = f"unpermute_{kind}{'_vector' * (lanes > 1)}{'_single' * together}"
    lists = [] if together else [("unpermute_clear", tokens), ("unpermute_list", taken)]
    for function, items in (*lists, (name, 32 * tokens * warps)):
        call.launch("permute_sum", function, grid.defines, (-(-items // grid.threads), 1), grid.threads, arguments)


def _columns(view: View) -> tuple[int, int, int]:
    """Return (columns that a lane takes at a time, columns of a warp, warps of a token)."""
    width = view.shape[1]
    if width > MOST:
        raise UnsupportedError(f"rows of {width} columns; the kernels count to {MOST}")
    lanes = 4 if width % 4 == 0 and widest_piece(view.address, view.strides[0]) >= 4 * view.dtype.itemsize else 1
    step, warps = 32 * lanes, max(-(-width // COLUMNS), 1)
    span = max(-(-width // (warps * step)), 1) * step
    return lanes, span, -(-width // span)


def _blocks(warps: int) -> int:
    """Return the number of CTAs for a number of warps."""
    return -(-32 * warps // TUNING["permute_sum"].threads)
