"""Launches of the row-wise kernels: device checks, outputs, the grid, the one structure of arguments."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ScaleError, ShapeError
from refnum.profiles import Profile

from . import checks, interop, plans
from .driver import driver
from .interop import View

U8 = np.dtype(np.uint8)


class Grid(NamedTuple):
    """How a launch is cut: threads a CTA, chunks a thread, elements a chunk, whether memory passes by the caches."""

    threads: int
    unroll: int
    part: int
    stream: int = 0

    @property
    def defines(self) -> tuple[str, ...]:
        """The macros of kernels/memory.cuh."""
        return tuple(f"{name.upper()}={value}" for name, value in self._asdict().items())


TUNING: dict[str, Grid] = {
    "quantize_mxfp4": Grid(128, 2, 32),
    "dequantize_mxfp4": Grid(512, 2, 8, stream=1),
    "quantize_fp8_tiles": Grid(256, 2, 16),
    "dequantize_fp8_tiles": Grid(128, 2, 8),
    "fp8_to_mxfp4": Grid(128, 2, 32),
    "mxfp4_to_fp8": Grid(512, 2, 16),
}
"""Kernel file -> its grid: measured, see docs/results."""


class Arguments(plans.Addressed):
    """Mirror of `refnum::Arguments` in kernels/memory.cuh."""

    _fields_ = [
        ("x", ctypes.c_void_p), ("scales", ctypes.c_void_p), ("out", ctypes.c_void_p), ("out_scales", ctypes.c_void_p),
        ("chunks", ctypes.c_int64), ("x_stride", ctypes.c_int64), ("scale_stride", ctypes.c_int64),
        ("per_row", ctypes.c_uint32), ("valid", ctypes.c_uint32), ("tall", ctypes.c_uint32),
        ("aligned", ctypes.c_uint32),
        ("rule", ctypes.c_int32), ("satfinite", ctypes.c_uint32), ("zero_byte", ctypes.c_uint32),
    ]  # fmt: skip


def matrix(name: str, x: Any, multiple: int, beside: View | None = None) -> View:
    """Return the view of a 2-D device array, its last axis a multiple of `multiple` and without gaps.

    `beside` is another input: both must be of one library and on one device. Any row stride is honoured.
    """
    view = interop.look(name, x)
    if len(view.shape) != 2 or view.shape[1] % multiple:
        raise ShapeError(f"{name} has shape {view.shape}; allowed is [rows, n] with n a multiple of {multiple}")
    if 0 not in view.shape and view.shape[1] > 1 and view.strides[1] != view.dtype.itemsize:
        raise ShapeError(
            f"{name} has a stride of {view.strides[1]} bytes along its last axis; allowed is "
            f"{view.dtype.itemsize}, neighbours side by side: make it contiguous"
        )
    if beside is not None and view.device != beside.device:
        raise ArgumentError(
            f"{name} is on device {view.device} and {beside.name} on device {beside.device}; give both on one"
        )
    if beside is not None and view.library.name != beside.library.name:
        raise ArgumentError(
            f"{name} is an array of {view.library.name} and {beside.name} one of "
            f"{beside.library.name}; give both of one library"
        )
    return view


def floats(name: str, x: Any) -> View:
    """Return the view of an [M, K] input of a quantiser."""
    view = matrix(name, x, checks.BLOCK)
    if view.dtype not in checks.KINDS:
        hint = ": round float64 to float32 yourself" if view.dtype == np.float64 else ""
        raise DtypeError(
            f"{name} has dtype {view.dtype}; allowed are float32, bfloat16, float16 and uint16 (bfloat16 bits){hint}"
        )
    return view


def codes(name: str, x: Any, multiple: int) -> View:
    """Return the view of a uint8 array of codes."""
    view = matrix(name, x, multiple)
    if view.dtype != U8:
        raise DtypeError(f"{name} has dtype {view.dtype}; allowed is uint8")
    return view


def scales(x: Any, shape: tuple[int, int], beside: View) -> View:
    """Return the view of the uint8 array of E8M0 bytes of this shape."""
    view = matrix("scales", x, 1, beside)
    if view.dtype != U8:
        raise ScaleError(f"scales has dtype {view.dtype}; allowed is uint8, one E8M0 byte a scale: convert it first")
    if view.shape != shape:
        raise ShapeError(f"scales has shape {view.shape}; these codes need {shape}")
    return view


class Outputs:
    """The arrays that a kernel writes: fresh ones of the caller's library, or the caller's `out`."""

    def __init__(self, out: Any, wanted: Sequence[tuple[tuple[int, int], np.dtype[Any]]], inputs: Sequence[View]):
        source = inputs[0]
        if out is None:
            arrays = [source.library.empty(shape, dtype, source.device) for shape, dtype in wanted]
            self.views = [
                source.library.view("out", x, source.library)
                if source.library in (interop.CUPY, interop.TORCH)
                else interop.look("out", x)
                for x in arrays
            ]
            self._give = source.library.give
            plans.note_outputs(list(wanted), list(inputs), self.views)
            return
        given = list(out) if isinstance(out, tuple | list) else [out]
        if len(given) != len(wanted):
            raise ArgumentError(f"out holds {len(given)} arrays; allowed is {len(wanted)}")
        self.views = [interop.look(f"out[{number}]", x) for number, x in enumerate(given)]
        for view, (shape, dtype) in zip(self.views, wanted, strict=True):
            _fits(view, shape, dtype, inputs)
        lows = sorted(view.span() for view in self.views)
        if any(high > low for (_, high), (low, _) in itertools.pairwise(lows)):
            raise ArgumentError("the arrays of out share memory; give each storage of its own")
        self._give = lambda x: x
        plans.note_outputs(list(wanted), list(inputs), self.views)

    def finish(self) -> Any:
        """Return the results in the caller's library: a tuple unless there is one."""
        results = [self._give(view.owner) for view in self.views]
        return results[0] if len(results) == 1 else tuple(results)


def _fits(view: View, shape: tuple[int, int], dtype: np.dtype[Any], inputs: Sequence[View]) -> None:
    if view.dtype != dtype and not (dtype == checks.BFLOAT16 and view.dtype == np.uint16):
        raise DtypeError(f"{view.name} has dtype {view.dtype}; allowed is {dtype}")
    if view.shape != shape:
        raise ShapeError(f"{view.name} has shape {view.shape}; allowed is {shape}")
    if view.device != inputs[0].device:
        raise ArgumentError(f"{view.name} is on device {view.device} and {inputs[0].name} on {inputs[0].device}")
    if not view.contiguous or view.address % 16:
        raise ArgumentError(
            f"{view.name} has strides {view.strides} and address {view.address:#x}; allowed is a "
            f"contiguous array at a multiple of 16 bytes"
        )
    low, high = view.span()
    if any(low < end and start < high for start, end in (x.span() for x in inputs)):
        raise ArgumentError(f"{view.name} shares memory with {inputs[0].name} or its scales; give storage of its own")


def policy(chosen: Profile) -> tuple[int, int, int]:
    """Return the fields of `Policy` for a profile that the kernels have."""
    return checks.RULES[chosen.scale_rule], int(chosen.nonfinite == "satfinite"), chosen.zero_scale


def rowwise(
    kernel: str, name: str, inputs: Sequence[View], outputs: Outputs, k: int, group: int,
    rules: tuple[int, int, int] = (0, 0, 0), tall: int = 1, rceil: bool = False, halved: bool = False,
) -> Any:  # fmt: skip
    """Launch a row-wise kernel on the caller's current stream and return its results.

    group: elements that must lie in one row of whole chunks (a block or a tile). tall: rows that share an input
    scale. rceil: whether there is a function for that rule alone. halved: whether a chunk is half of the grid's part.
    """
    x = inputs[0]
    m = x.shape[0]
    if m == 0 or k == 0:
        return outputs.finish()
    grid = TUNING[kernel]
    chunk = grid.part // 2 if halved else grid.part
    bytes_ = x.shape[1] * x.dtype.itemsize * chunk // k
    vector = min(bytes_, 16)
    aligned = x.address % vector == 0 and (m == 1 or x.strides[0] % vector == 0)
    flat = aligned and tall == 1 and k % group == 0 and all(view.contiguous for view in inputs)
    per_row, valid = -(-k // group) * (group // chunk), k // chunk
    out = [view.address for view in outputs.views]
    scale = inputs[1] if len(inputs) > 1 else None
    arguments = Arguments(
        x.address, scale.address if scale else None, out[0], out[1] if len(out) > 1 else None,
        m * per_row, x.strides[0], scale.strides[0] if scale else 0, per_row, valid, tall, aligned, *rules,
    )  # fmt: skip
    suffix = ("_flat_rceil" if rceil and rules[0] == 0 else "_flat") if flat else ""
    function = driver().function(kernel, name + suffix, x.device, grid.defines)
    blocks = -(-m * per_row // (grid.threads * grid.unroll))
    plans.launch(function, x.device, (blocks, 1), grid.threads, x.library.stream(x.device), arguments)
    return outputs.finish()


def squares(name: str, x: View, outputs: Outputs, rules: tuple[int, int, int]) -> Any:
    """Launch the kernel of 128x128 tiles, one CTA a tile, and return its results."""
    m, k = x.shape
    if m == 0 or k == 0:
        return outputs.finish()
    vector, across = 16, checks.tiles(k)
    aligned = x.address % vector == 0 and (m == 1 or x.strides[0] % vector == 0)
    out = [view.address for view in outputs.views]
    arguments = Arguments(x.address, None, out[0], out[1], m, x.strides[0], 0, across, k // 8, 1, aligned, *rules)
    function = driver().function("quantize_fp8_tiles", name, x.device, TUNING["quantize_fp8_tiles"].defines)
    plans.launch(function, x.device, (across * checks.tiles(m), 1), 256, x.library.stream(x.device), arguments)
    return outputs.finish()
