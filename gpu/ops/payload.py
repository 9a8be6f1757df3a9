"""Launchers of payloads: joined, parted, and quantised straight into (clause N12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refnum.errors import ShapeError, UnsupportedError
from refnum.profiles import HOPPER, Profile

from .. import checks
from ..checks import BLOCK, MOST
from ..device import plans
from ..device.arrays import View
from ..device.driver import driver
from ..device.outputs import U8, Outputs
from ..device.plans import planned
from . import rowwise
from .payload_rows import UNIT, RowArguments, move_rows, together, widest_piece
from .rowwise import Arguments

__all__ = ["fp8_to_payload", "pack_payload", "quantize_payload", "unpack_payload"]


class PackArguments(RowArguments):
    """Of `pack_payload`."""

    slots = ("x", "scales", "out")


class UnpackArguments(RowArguments):
    """Of `unpack_payload`."""

    slots = ("x", "out", "out_scales")


@planned(2)
def pack_payload(packed: Any, scales: Any, *, out: Any = None) -> Any:
    """Join MXFP4 codes u8 [T, K/2] and scales u8 [T, K/32] row by row (N12) -> u8 [T, 17 * K/32]."""
    view = rowwise.codes("packed", packed, BLOCK // 2)
    rows, half = view.shape
    beside, blocks = rowwise.codes("scales", scales, 1), 2 * half // BLOCK
    together(beside, view)
    if beside.shape != (rows, blocks):
        raise ShapeError(f"scales has shape {beside.shape}; packed of {view.shape} needs {(rows, blocks)}")
    width = half + blocks
    outputs = Outputs(out, [((rows, width), U8)], [view, beside])
    arguments = PackArguments(
        x=view.address, scales=beside.address, out=outputs.views[0].address, x_stride=view.strides[0],
        scale_stride=beside.strides[0], rows=rows, tokens=rows, width=width, codes=half,
    )  # fmt: skip
    if width:
        move_rows("pack_payload", view, beside, arguments, rows)
    return outputs.finish()


@planned(1)
def unpack_payload(payload: Any, *, out: Any = None) -> Any:
    """Split a payload u8 [T, 17 * K/32] into (packed u8 [T, K/2], scales u8 [T, K/32]) (N12)."""
    view = rowwise.codes("payload", payload, UNIT)
    rows, width = view.shape
    codes = width // UNIT * (UNIT - 1)
    outputs = Outputs(out, [((rows, codes), U8), ((rows, width - codes), U8)], [view])
    first, second = outputs.views
    arguments = UnpackArguments(
        x=view.address, out=first.address, out_scales=second.address, x_stride=view.strides[0], rows=rows, tokens=rows,
        width=width, codes=codes,
    )  # fmt: skip
    if width:
        move_rows("unpack_payload", view, None, arguments, rows)
    return outputs.finish()


@planned(1)
def quantize_payload(x: Any, profile: Profile | str = HOPPER, *, out: Any = None) -> Any:
    """Quantise [T, K] floats straight into MXFP4 payload rows (N12) -> u8 [T, 17 * K/32]."""
    view = rowwise.floats("x", x)
    name = f"quantize_payload_{rowwise.NAMES[checks.KINDS[view.dtype]]}"
    return _fused(name, [view], out, view.shape[1], rowwise.rules(profile))


@planned(2)
def fp8_to_payload(codes: Any, scales: Any, profile: Profile | str = HOPPER, *, out: Any = None) -> Any:
    """Quantise E4M3 1x128 tiles [T, K] straight into MXFP4 payload rows (N12) -> u8 [T, 17 * K/32]."""
    view = rowwise.codes("codes", codes, BLOCK)
    beside = rowwise.scales(scales, (view.shape[0], checks.tiles(view.shape[1])), view)
    return _fused("fp8_to_payload", [view, beside], out, view.shape[1], rowwise.rules(profile))


def _fused(name: str, inputs: Sequence[View], out: Any, k: int, rules: tuple[int, int, int]) -> Any:
    """Launch a kernel that quantises rows of k elements straight into payload rows."""
    x, width, grid = inputs[0], k // BLOCK * UNIT, rowwise.TUNING["payload_quantize"]
    m = x.shape[0]
    part = grid.part // 2 if x.dtype == np.float32 else grid.part
    if width > MOST or m * (k // part) ** 2 >= 1 << 64:  # rows are found by a product with the inverse
        raise UnsupportedError(f"{m} rows of {width} bytes; the kernels count a row's to {MOST}: give fewer at a time")
    outputs = Outputs(out, [((m, width), U8)], inputs)
    if m == 0 or k == 0:
        return outputs.finish()
    aligned = widest_piece(x.address, x.strides[0] if m > 1 else 0) == 16
    whole = aligned and width % 16 == 0
    arguments = Arguments(
        x=x.address, scales=inputs[1].address if len(inputs) > 1 else None, out=outputs.views[0].address,
        chunks=m * (k // part), x_stride=x.strides[0], scale_stride=inputs[1].strides[0] if len(inputs) > 1 else 0,
        per_row=k // part, valid=k // part, tall=1, aligned=aligned,
        per_row_inverse=((1 << 64) // (k // part) + 1) & ((1 << 64) - 1),
        rule=rules[0], satfinite=rules[1], zero_byte=rules[2],
    )  # fmt: skip
    suffix = ("_aligned_rceil" if rules[0] == 0 else "_aligned") if whole else ""
    function = driver().function("payload_quantize", name + suffix, x.device, grid.defines)
    blocks = -(-m * (k // part) // (grid.threads * grid.unroll))
    plans.launch(function, x.device, (blocks, 1), grid.threads, x.library.stream(x.device), arguments)
    return outputs.finish()
