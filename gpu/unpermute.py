"""Launches of the weighted way back from expert order to tokens (clause N12)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from refnum.errors import DtypeError, ShapeError, UnsupportedError

from . import checks, interop, launch, plans
from .driver import driver
from .interop import View
from .launch import U8, Outputs
from .payload_rows import MOST, Experts, count, indices, places, row_counts, vector, widest_piece
from .plans import planned

HELD = 32 * 8 + 4
"""Bytes that `unpermute` holds of a token: a list of 32 rows and weights, and their count."""
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
    """Of a sum with weights."""

    slots = ("x", "map", "weights", "out", "scratch")


def sum_rows(rows: Any, row_map: Any, splits: Any, weights: Any, tokens: int, align: int, out: Any) -> Any:
    """Sum each token's expert rows; the last result of the planned call is scratch."""
    if out is not None:
        view, out = interop.look("rows", rows), out[0] if isinstance(out, tuple | list) and len(out) == 1 else out
        out = (out, view.library.empty((count("tokens", tokens, 0) * HELD,), U8, view.device))
    if weights is None:
        return _sum_plain(rows, row_map, splits, tokens, align, out=out)[0]
    return _sum_weighted(rows, row_map, weights, splits, tokens, align, out=out)[0]


@planned(2)
def _sum_plain(rows: Any, row_map: Any, splits: Any, tokens: int, align: int, *, out: Any = None) -> Any:
    return _sum(rows, row_map, None, splits, tokens, align, out)


@planned(3)
def _sum_weighted(
    rows: Any, row_map: Any, weights: Any, splits: Any, tokens: int, align: int, *, out: Any = None
) -> Any:
    return _sum(rows, row_map, weights, splits, tokens, align, out)


def _sum(rows: Any, row_map: Any, weights: Any, splits: Any, tokens: Any, align: Any, out: Any) -> Any:
    view = launch.matrix("rows", rows, 1)
    if view.dtype not in checks.KINDS or view.dtype == np.float16:
        raise DtypeError(f"rows has dtype {view.dtype}; allowed are float32, bfloat16 and uint16 (bfloat16 bits)")
    tokens, align = count("tokens", tokens, 0), count("align", align, 1)
    experts, total, taken = places(row_counts(splits), align)
    if view.shape[0] != total:
        raise ShapeError(f"rows has shape {view.shape}; splits at align={align} need {total} rows")
    index, index_width = indices("row_map", row_map, view, taken, f"splits sum to {taken}")
    inputs, factors = [view, index], None
    if weights is not None:
        factors = vector("weights", weights, view, taken, f"splits sum to {taken}")
        if factors.dtype != np.float32:
            raise DtypeError(f"weights has dtype {factors.dtype}; allowed is float32")
        inputs.append(factors)
    width = view.shape[1]
    outputs = Outputs(out, [((tokens, width), np.dtype(np.float32)), ((tokens * HELD,), U8)], inputs)
    if tokens == 0 or width == 0:
        return outputs.finish()
    arguments = (WeightedArguments if factors else SumArguments)(
        x=view.address, map=index.address, weights=factors.address if factors else None,
        out=outputs.views[0].address, scratch=outputs.views[1].address, x_stride=view.strides[0],
        map_stride=index.strides[0],
        weight_stride=factors.strides[0] if factors else 0, tokens=tokens, mapped=taken, width=width,
        map_bytes=index_width, experts=experts,
    )  # fmt: skip
    _launch_sums(view, arguments)
    return outputs.finish()


def _launch_sums(view: View, arguments: SumArguments) -> None:
    """Launch the three kernels: counts of zero, lists of rows, sums."""
    tokens, width, taken = arguments.tokens, arguments.width, arguments.mapped
    size = view.dtype.itemsize
    lanes = 4 if width % 4 == 0 and widest_piece(view.address, view.strides[0]) >= 4 * size else 1
    step = 32 * lanes
    arguments.warps = -(-width // COLUMNS)
    arguments.span = -(-width // (arguments.warps * step)) * step
    arguments.warps = -(-width // arguments.span)
    grid, stream = launch.TUNING["permute_sum"], view.library.stream(view.device)
    if tokens * arguments.warps > MOST * (grid.threads // 32):
        raise UnsupportedError(f"{tokens} tokens of {width} columns; give fewer at a time")
    kind = "float32" if view.dtype == np.float32 else "bfloat16"
    for name, items in (
        ("unpermute_clear", tokens), ("unpermute_list", taken),
        (f"unpermute_{kind}" + ("_vector" if lanes > 1 else ""), 32 * tokens * arguments.warps),
    ):  # fmt: skip
        if items:
            function = driver().function("permute_sum", name, view.device, grid.defines)
            plans.launch(function, view.device, (-(-items // grid.threads), 1), grid.threads, stream, arguments)
