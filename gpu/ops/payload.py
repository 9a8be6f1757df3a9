"""Launchers of payloads: joined, split, and quantised straight into (clause N12)."""

from __future__ import annotations

import numpy as np

from refnum.errors import UnsupportedError

from .. import checks
from ..checks import BLOCK, MOST, UNIT
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import payload
from ..interface.call import Rows
from ..interface.payload import Packed
from .payload_rows import RowArguments, move_rows, widest_piece
from .rowwise import NAMES, TUNING, Arguments

__all__ = ["fp8_to_payload", "pack_payload", "quantize_payload", "unpack_payload"]


class PackArguments(RowArguments):
    """The arguments of `pack_payload`."""

    slots = ("x", "scales", "out")


class UnpackArguments(RowArguments):
    """The arguments of `unpack_payload`."""

    slots = ("x", "out", "out_scales")


@planned(payload.pack_payload, 2)
def pack_payload(call: DeviceCall, given: Packed[View]) -> None:
    """Launch the kernel that moves a row of codes and a row of scales into one."""
    view, beside = given
    rows, half = view.shape
    width = half + beside.shape[1]
    arguments = PackArguments(
        x=view.address, scales=beside.address, out=call.results[0].address, x_stride=view.strides[0],
        scale_stride=beside.strides[0], rows=rows, tokens=rows, width=width, codes=half,
    )  # fmt: skip
    if width:
        move_rows(call, "pack_payload", view, beside, arguments, rows)


@planned(payload.unpack_payload, 1)
def unpack_payload(call: DeviceCall, given: View) -> None:
    """Launch the kernel that moves a row into one of codes and one of scales."""
    rows, width = given.shape
    first, second = call.results
    arguments = UnpackArguments(
        x=given.address, out=first.address, out_scales=second.address, x_stride=given.strides[0], rows=rows,
        tokens=rows, width=width, codes=first.shape[1],
    )  # fmt: skip
    if width:
        move_rows(call, "unpack_payload", given, None, arguments, rows)


@planned(payload.quantize_payload, 1)
def quantize_payload(call: DeviceCall, given: Rows[View]) -> None:
    """Launch the quantiser of floats."""
    _quantize(call, f"quantize_payload_{NAMES[checks.KINDS[given.x.dtype]]}", given)


@planned(payload.fp8_to_payload, 2)
def fp8_to_payload(call: DeviceCall, given: Rows[View]) -> None:
    """Launch the quantiser of tiles."""
    _quantize(call, "fp8_to_payload", given)


def _quantize(call: DeviceCall, name: str, given: Rows[View]) -> None:
    """Launch a kernel that quantises rows straight into payload rows."""
    x, k, scales, rules = given.x, given.k, given.scales, given.rules
    width, grid, m = k // BLOCK * UNIT, TUNING["payload_quantize"], x.shape[0]
    part = grid.part // 2 if x.dtype == np.float32 else grid.part
    if width > MOST or m * (k // part) ** 2 >= 1 << 64:  # rows are found by a product with the inverse
        raise UnsupportedError(f"{m} rows of {width} bytes; the kernels count a row's to {MOST}: give fewer at a time")
    if m == 0 or k == 0:
        return
    aligned = widest_piece(x.address, x.strides[0] if m > 1 else 0) == 16
    whole = aligned and width % 16 == 0
    arguments = Arguments(
        x=x.address, scales=scales.address if scales else None, out=call.results[0].address,
        chunks=m * (k // part), x_stride=x.strides[0], scale_stride=scales.strides[0] if scales else 0,
        per_row=k // part, valid=k // part, tall=1, aligned=aligned,
        per_row_inverse=((1 << 64) // (k // part) + 1) & ((1 << 64) - 1),
        rule=rules[0], satfinite=rules[1], zero_byte=rules[2],
    )  # fmt: skip
    suffix = ("_aligned_rceil" if rules[0] == 0 else "_aligned") if whole else ""
    blocks = -(-m * (k // part) // (grid.threads * grid.unroll))
    call.launch("payload_quantize", name + suffix, grid.defines, (blocks, 1), grid.threads, arguments)
