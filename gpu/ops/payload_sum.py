"""Launcher of the weighted way back from expert order to tokens (clause N12)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from refnum.errors import DtypeError, ShapeError, UnsupportedError

from .. import checks
from ..checks import MOST, count, row_counts
from ..device import plans
from ..device.arrays import View
from ..device.driver import driver
from ..device.outputs import Outputs
from ..device.plans import planned
from . import rowwise
from .payload_rows import Experts, indices, places, vector, widest_piece

__all__ = ["unpermute"]

HELD = 32 * 8 + 4
"""Bytes that `unpermute` holds of a token: a list of 32 rows and weights, and their count."""
TOGETHER = 4096
"""Rows in expert order up to which one launch may do it all, every CTA reading the whole row map: measured, see
docs/results.
"""
WALKED = 1 << 22
"""Items of the row map that all CTAs of that launch may read together. CTAs grow with tokens and columns, also where
few of the tokens have a row here: then nearly every walk finds nothing, and two more launches cost less. Up to here one
launch took 0.42 to 0.98 of the time of three, beyond it 0.89 to 1.64.
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
    """Of a sum with weights."""

    slots = ("x", "map", "weights", "out", "scratch")


@planned(2, optional="weights")
def unpermute(
    rows: Any, row_map: Any, splits: Sequence[int], weights: Any | None, tokens: int, align: int = 32,
    *, out: Any = None,
) -> Any:  # fmt: skip
    """Sum each token's expert rows, weighted, in float32 and in ascending expert order (N12) -> float32 [tokens, H].

    The host must know splits and tokens. Nothing on the device is looked at before the launch: a row whose row_map
    item is no token is left out.
    """
    view = rowwise.matrix("rows", rows, 1)
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
    lanes, span, warps = _columns(view)
    together = taken <= TOGETHER and _blocks(tokens * warps) * taken <= WALKED
    outputs = Outputs(out, [((tokens, width), np.dtype(np.float32))], inputs, 0 if together else tokens * HELD)
    if tokens == 0 or width == 0:
        return outputs.finish()
    arguments = (WeightedArguments if factors else SumArguments)(
        x=view.address, map=index.address, weights=factors.address if factors else None,
        out=outputs.views[0].address, scratch=outputs.scratch, x_stride=view.strides[0],
        map_stride=index.strides[0],
        weight_stride=factors.strides[0] if factors else 0, tokens=tokens, mapped=taken, width=width,
        map_bytes=index_width, experts=experts, span=span, warps=warps,
    )  # fmt: skip
    _launch_sums(view, lanes, arguments)
    return outputs.finish()


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
    """Return the CTAs that so many warps make."""
    return -(-32 * warps // rowwise.TUNING["permute_sum"].threads)


def _launch_sums(view: View, lanes: int, arguments: SumArguments) -> None:
    """Launch the three kernels, counts of zero, lists of rows, sums; or the one that has no lists in memory."""
    tokens, width, taken = arguments.tokens, arguments.width, arguments.mapped
    grid, stream = rowwise.TUNING["permute_sum"], view.library.stream(view.device)
    if _blocks(tokens * arguments.warps) > MOST:
        raise UnsupportedError(f"{tokens} tokens of {width} columns; give fewer at a time")
    kind = "float32" if view.dtype == np.float32 else "bfloat16"
    name = f"unpermute_{kind}{'_vector' * (lanes > 1)}{'_single' * (not arguments.scratch)}"
    lists = [("unpermute_clear", tokens), ("unpermute_list", taken)] if arguments.scratch else []
    for function_name, items in (*lists, (name, 32 * tokens * arguments.warps)):
        function = driver().function("permute_sum", function_name, view.device, grid.defines)
        plans.launch(function, view.device, (-(-items // grid.threads), 1), grid.threads, stream, arguments)
