"""Launchers of logarithmic FP4 (clause N23)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from refnum.errors import ShapeError

from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import logarithmic
from ..interface.logarithmic import Luq, Radix4
from .rowwise import NAMES, Grid

__all__ = ["dequantize_luq", "dequantize_radix4", "luq", "radix4"]

TUNING: dict[str, Grid] = {
    "luq": Grid(256, 2, 8),
    "radix4": Grid(256, 2, 16),
    "dequantize_luq": Grid(512, 2, 8, stream=1),
    "dequantize_luq float32": Grid(256, 4, 4, stream=1),
    "dequantize_radix4": Grid(512, 2, 8, stream=1),
    "dequantize_radix4 float32": Grid(256, 4, 4, stream=1),
}
"""Kernel file, and a dtype for its launches alone -> grid."""


class LogarithmicArguments(ctypes.Structure):
    """Mirror of `refnum::LogarithmicArguments` in kernels/logarithmic_memory.cuh; see `frame.Launch`."""

    slots: tuple[str, ...] = ("x", "out")
    _fields_ = [
        ("x", ctypes.c_void_p), ("under", ctypes.c_void_p), ("log", ctypes.c_void_p), ("number", ctypes.c_void_p),
        ("out", ctypes.c_void_p), ("out_alpha", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64), ("under_stride", ctypes.c_int64), ("log_stride", ctypes.c_int64),
        ("chunks", ctypes.c_uint64), ("columns", ctypes.c_uint64), ("per_row_inverse", ctypes.c_uint64),
        ("per_row", ctypes.c_uint32), ("aligned", ctypes.c_uint32), ("divisor", ctypes.c_uint32),
        ("rule", ctypes.c_int32), ("exponent", ctypes.c_int32),
    ]  # fmt: skip


class GivenMaximum(LogarithmicArguments):
    """Of LUQ under a given maximum."""

    slots = ("x", "under", "log", "number", "out", "out_alpha")


class OwnMaximum(LogarithmicArguments):
    """Of LUQ that finds the maximum itself."""

    slots = ("x", "under", "log", "out", "out_alpha")


class Stepped(LogarithmicArguments):
    """Of the inverse of LUQ."""

    slots = ("x", "number", "out")


@planned(logarithmic.luq, 3, "tensor_amax")
def luq(call: DeviceCall, given: Luq[View]) -> None:
    """Launch the quantiser, after a search for the tensor's maximum where it is not given."""
    assert given.r_under is not None and given.r_log is not None
    arguments, flat = _arguments(
        GivenMaximum if given.number else OwnMaximum, TUNING["luq"], (given.x, given.r_under, given.r_log)
    )
    arguments.number = given.number.address if given.number else None
    arguments.out, arguments.out_alpha = (view.address for view in call.results)
    arguments.divisor, arguments.rule = int(np.float32(given.divisor).view(np.uint32)), given.power
    if given.number is None:
        defines = TUNING["luq"].defines
        call.launch("luq", "luq_nothing", defines, (1, 1), 1, arguments)
        _launch(call, "luq", given.kind, flat, arguments, name="luq_largest")
        call.launch("luq", "luq_found", defines, (1, 1), 1, arguments)
    _launch(call, "luq", given.kind, flat, arguments, least=1 if given.number else 0)


@planned(logarithmic.dequantize_luq, 2)
def dequantize_luq(call: DeviceCall, given: Luq[View]) -> None:
    """Launch the inverse of LUQ."""
    assert given.number is not None
    arguments, flat = _arguments(Stepped, _grid("dequantize_luq", given.kind), (given.x,), 2)
    arguments.number, arguments.out = given.number.address, call.results[0].address
    _launch(call, "dequantize_luq", given.kind, flat, arguments)


@planned(logarithmic.radix4, 1)
def radix4(call: DeviceCall, given: Radix4[View]) -> None:
    """Launch the quantiser of radix 4."""
    arguments, flat = _arguments(LogarithmicArguments, TUNING["radix4"], (given.x,))
    arguments.out, arguments.exponent, arguments.rule = call.results[0].address, given.exponent, given.threshold
    _launch(call, "radix4", given.kind, flat, arguments)


@planned(logarithmic.dequantize_radix4, 1)
def dequantize_radix4(call: DeviceCall, given: Radix4[View]) -> None:
    """Launch the inverse of radix 4."""
    arguments, flat = _arguments(LogarithmicArguments, _grid("dequantize_radix4", given.kind), (given.x,), 2)
    arguments.out, arguments.exponent = call.results[0].address, given.exponent
    _launch(call, "dequantize_radix4", given.kind, flat, arguments)


def _arguments(
    structure: type[LogarithmicArguments], grid: Grid, views: tuple[View, ...], packed: int = 1
) -> tuple[Any, bool]:
    """Return the arguments of inputs of one shape, without outputs, and whether rows follow each other without gaps.

    packed: elements of an item of the input.
    """
    (m, items), part = views[0].shape, grid.part
    flat = all(view.contiguous and view.address % 16 == 0 for view in views)
    rows, columns = (1, m * items * packed) if flat else (m, items * packed)
    per_row = -(-columns // part)
    aligned = all(_aligned(view, part // packed * view.dtype.itemsize) for view in views)
    if not flat and (per_row >> 32 or m >> 32):
        raise ShapeError(f"{views[0].name} has shape {views[0].shape}; allowed are fewer than 2**32 rows and columns")
    made = structure(
        chunks=rows * per_row, columns=columns, per_row=per_row & 0xFFFFFFFF,
        aligned=aligned and columns % part == 0, per_row_inverse=(1 << 64) // per_row + 1 if per_row > 1 else 0,
    )  # fmt: skip
    for name, view in zip(("x", "under", "log"), views, strict=False):
        setattr(made, name, view.address)
        setattr(made, f"{name}_stride", view.strides[0])
    return made, flat


def _aligned(x: View, size: int) -> bool:
    """Return whether every chunk of so many bytes can be read by vector loads."""
    vector = min(size, 16)
    return x.address % vector == 0 and (x.shape[0] == 1 or x.strides[0] % vector == 0)


def _grid(kernel: str, kind: int) -> Grid:
    return TUNING.get(f"{kernel} {NAMES[kind]}", TUNING[kernel])


def _launch(
    call: DeviceCall, kernel: str, kind: int, flat: bool, arguments: LogarithmicArguments, least: int = 0,
    name: str = "",
) -> None:  # fmt: skip
    """Launch a function, the kernel file's own unless named, on all chunks, on at least so many CTAs."""
    grid = _grid(kernel, kind)
    blocks = max(least, -(-arguments.chunks // (grid.threads * grid.unroll)))
    if blocks:
        words = f"{name or kernel}_{NAMES[kind]}{'_flat' * flat}"
        call.launch(kernel, words, grid.defines, (blocks, 1), grid.threads, arguments)
