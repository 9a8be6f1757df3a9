"""Launcher of the weighted way back from expert order to tokens (clause N12)."""

from __future__ import annotations

import ctypes
from typing import Any, cast

import numpy as np

from refnum.errors import UnsupportedError

from ..checks import MOST, count
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import payload
from ..interface.call import F32, public
from ..interface.payload import Sum
from .payload_rows import Experts, item_bytes, on_device, places, widest_piece
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
        ("splits", ctypes.c_void_p), ("split_stride", ctypes.c_int64),
        *[(name, ctypes.c_uint64) for name in ("align", "rows", "lists")],
        ("split_bytes", ctypes.c_int32), ("all_experts", ctypes.c_uint32),
    ]  # fmt: skip


class WeightedArguments(SumArguments):
    """The arguments of a sum with weights."""

    slots = ("x", "map", "weights", "out", "scratch")


class SumDeviceArguments(SumArguments):
    """The arguments of a sum by splits on the device."""

    slots = ("x", "map", "splits", "out", "scratch")


class WeightedDeviceArguments(SumArguments):
    """The arguments of a sum with weights by splits on the device."""

    slots = ("x", "map", "splits", "weights", "out", "scratch")


SUMS = {
    (False, False): SumArguments, (True, False): WeightedArguments,
    (False, True): SumDeviceArguments, (True, True): WeightedDeviceArguments,
}  # fmt: skip
"""(Whether there are weights, whether splits lie on the device) -> the arguments."""


def _sum(call: DeviceCall, given: Sum[View], counts: View | None = None) -> None:
    """Launch one kernel that has no lists in memory, or three: counts of zero, lists of rows, sums.

    counts: splits on the device, for which a kernel before these finds the experts' places.
    """
    view, index, factors, tokens = given.rows, given.row_map, given.weights, given.tokens
    width, taken = view.shape[1], index.shape[0]
    lanes, span, warps = _columns(view)
    if tokens == 0 or width == 0:
        return
    together = taken <= TOGETHER and _blocks(tokens * warps) * taken <= WALKED
    arguments = SUMS[factors is not None, counts is not None](
        x=view.address, map=index.address, weights=factors.address if factors else None,
        out=call.results[0].address, x_stride=view.strides[0], map_stride=index.strides[0],
        weight_stride=factors.strides[0] if factors else 0, tokens=tokens, mapped=taken, width=width,
        map_bytes=item_bytes(index), span=span, warps=warps,
    )  # fmt: skip
    held = 0 if together else tokens * HELD
    if counts is None:
        arguments.experts = places(given.splits, given.align)
    else:
        arguments.splits, arguments.split_stride = counts.address, counts.strides[0]
        arguments.split_bytes, arguments.all_experts = item_bytes(counts), counts.shape[0]
        arguments.align, arguments.rows, arguments.lists = given.align, view.shape[0], -(-held // 8) * 8
        held = arguments.lists + 8 * (2 * counts.shape[0] + 1)
    arguments.scratch = call.scratch(held)
    grid = TUNING["permute_sum"]
    if _blocks(tokens * warps) > MOST:
        raise UnsupportedError(f"{tokens} tokens of {width} columns; give fewer at a time")
    kind, by = "float32" if view.dtype == np.float32 else "bfloat16", "" if counts is None else "_device"
    name = f"unpermute_{kind}{'_vector' * (lanes > 1)}{by}{'_single' * together}"
    lists = [] if together else [("unpermute_clear", tokens), (f"unpermute_list{by}", taken)]
    if counts is not None:
        call.launch("permute_sum", "unpermute_places", grid.defines, (1, 1), 1024, arguments)
    for function, items in (*lists, (name, 32 * tokens * warps)):
        call.launch("permute_sum", function, grid.defines, (-(-items // grid.threads), 1), grid.threads, arguments)


def _described_on_device(
    call: DeviceCall, rows: Any, row_map: Any, splits: Any, weights: Any, tokens: Any, align: Any, *, out: Any = None
) -> tuple[Sum[View], View]:
    """Check the arguments of a sum by splits that lie on the device."""
    view = payload.summed_rows(call, rows)
    tokens, align = count("tokens", tokens, 0), count("align", align, 1)
    index = call.indices("row_map", row_map, view, None, "it is a list of rows", None, "")
    if view.shape[0] > MOST:
        raise UnsupportedError(f"rows has {view.shape[0]} rows; the kernels count to {MOST}")
    counts = call.indices("splits", splits, view, None, "it is a list of counts", None, "")
    taken = index.shape[0]
    factors = [] if weights is None else [payload.row_weights(call, weights, view, taken, f"row_map has {taken} rows")]
    call.outputs(out, [((tokens, view.shape[1]), F32)], [view, index, counts, *factors])
    return Sum(view, index, factors[0] if factors else None, [], tokens, align), counts


def _sum_on_device(call: DeviceCall, given: tuple[Sum[View], View]) -> None:
    """Launch a sum by splits on the device."""
    _sum(call, *given)


_by_host = cast(Any, planned(payload.unpermute, 2, "weights")(_sum))
_by_device = planned(_described_on_device, 3, "weights", operation="unpermute")(_sum_on_device)


@public(payload.unpermute, _sum)
def unpermute(
    rows: Any, row_map: Any, splits: Any, weights: Any, tokens: Any, align: Any = 32, *, out: Any = None
) -> Any:
    """Launch a sum by splits of the host or on the device."""
    by = _by_device if on_device(splits) else _by_host
    return by(rows, row_map, splits, weights, tokens, align, out=out)


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
