"""Launches of the row-wise kernels: device checks, outputs, the grid, the one structure of arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ScaleError, ShapeError
from refnum.profiles import Profile, get_profile

from .. import checks
from ..device import arrays, plans
from ..device.arrays import View
from ..device.driver import driver
from ..device.outputs import U8, Outputs

NAMES = ("float32", "bfloat16", "float16")
"""`FloatKind` of the headers -> the word for it in a kernel's name."""


class Grid(NamedTuple):
    """How a launch is cut: threads a CTA, chunks a thread, elements a chunk, whether memory passes by the caches, rows
    that a warp moves at once where it moves whole rows.
    """

    threads: int
    unroll: int
    part: int
    stream: int = 0
    rows: int = 1

    @property
    def defines(self) -> tuple[str, ...]:
        """The macros of kernels/memory.cuh, and of kernels/payload_rows.cu if it moves several rows."""
        macros = (
            {**self._asdict(), "rows": self.rows} if self.rows > 1 else dict(zip(self._fields[:4], self, strict=False))
        )
        return tuple(f"{name.upper()}={value}" for name, value in macros.items())


TUNING: dict[str, Grid] = {
    "quantize_mxfp4": Grid(128, 2, 32),
    "dequantize_mxfp4": Grid(512, 2, 8, stream=1),
    "quantize_fp8_tiles": Grid(512, 1, 16),
    "dequantize_fp8_tiles": Grid(128, 2, 8),
    "fp8_to_mxfp4": Grid(128, 2, 32),
    "mxfp4_to_fp8": Grid(512, 2, 16),
    "quantize_mxfp4_stochastic": Grid(256, 2, 32),
    "payload_rows": Grid(256, 8, 16),
    "payload_quantize": Grid(128, 2, 32),
    "permute_sum": Grid(128, 4, 4),
}
"""Kernel file -> its grid: measured, see docs/results."""


class Arguments(ctypes.Structure):
    """Mirror of `refnum::Arguments` in kernels/memory.cuh."""

    _fields_ = [
        ("x", ctypes.c_void_p), ("scales", ctypes.c_void_p), ("out", ctypes.c_void_p), ("out_scales", ctypes.c_void_p),
        ("chunks", ctypes.c_int64), ("x_stride", ctypes.c_int64), ("scale_stride", ctypes.c_int64),
        ("per_row", ctypes.c_uint32), ("valid", ctypes.c_uint32), ("tall", ctypes.c_uint32),
        ("aligned", ctypes.c_uint32),
        ("rule", ctypes.c_int32), ("satfinite", ctypes.c_uint32), ("zero_byte", ctypes.c_uint32),
        ("scale_rows", ctypes.c_uint32), ("out_scale_rows", ctypes.c_uint32), ("per_row_inverse", ctypes.c_uint64),
    ]  # fmt: skip


Layouts = tuple[str, str]
"""Storage layouts of the scales that are read and written (N6.5)."""
PLAIN: Layouts = ("bytes", "bytes")


def layout_defines(layouts: Layouts) -> tuple[str, ...]:
    """Return the macros of kernels/memory.cuh for these layouts: none for bytes."""
    names = zip(("LAYOUT_IN", "LAYOUT_OUT"), layouts, strict=True)
    return tuple(f"{name}={checks.LAYOUTS.index(layout)}" for name, layout in names if layout != "bytes")


def matrix(name: str, x: Any, multiple: int, beside: View | None = None) -> View:
    """Return the view of a 2-D device array, its last axis a multiple of `multiple` and without gaps.

    `beside` is another input: both must be of one library and on one device. Any row stride is honoured.
    """
    view = arrays.look(name, x)
    if len(view.shape) != 2 or view.shape[1] % multiple:
        raise ShapeError(f"{name} has shape {view.shape}; allowed is [rows, n] with n a multiple of {multiple}")
    if 0 not in view.shape and view.shape[1] > 1 and view.strides[1] != view.dtype.itemsize:
        raise ShapeError(
            f"{name} has a stride of {view.strides[1]} bytes along its last axis; allowed is "
            f"{view.dtype.itemsize}, neighbours side by side: make it contiguous"
        )
    if beside is not None:
        neighbours(view, beside)
    return view


def neighbours(view: View, beside: View) -> None:
    """Raise unless two inputs are of one library and on one device."""
    if view.device != beside.device:
        raise ArgumentError(
            f"{view.name} is on device {view.device} and {beside.name} on device {beside.device}; give both on one"
        )
    if view.library.name != beside.library.name:
        raise ArgumentError(
            f"{view.name} is an array of {view.library.name} and {beside.name} one of "
            f"{beside.library.name}; give both of one library"
        )


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


def scales(x: Any, shape: tuple[int, int], beside: View, layout: str = "bytes") -> View:
    """Return the view of the array that holds E8M0 bytes of this shape, uint8 unless in another layout (N6.5)."""
    if checks.choice("layout_in", layout, checks.LAYOUTS):
        return _laid_scales(x, shape, beside, layout)
    view = matrix("scales", x, 1, beside)
    if view.dtype != U8:
        raise ScaleError(f"scales has dtype {view.dtype}; allowed is uint8, one E8M0 byte a scale: convert it first")
    if view.shape != shape:
        raise ShapeError(f"scales has shape {view.shape}; these codes need {shape}")
    return view


def _laid_scales(x: Any, shape: tuple[int, int], beside: View, layout: str) -> View:
    view = arrays.look("scales", x)
    wanted, dtype = checks.layout_of(*shape, layout)
    if view.dtype != dtype:
        raise ScaleError(f"scales has dtype {view.dtype}; the layout {layout} is of {dtype}")
    if view.shape != wanted:
        raise ShapeError(f"scales has shape {view.shape}; {shape} scales in the layout {layout} need {wanted}")
    if not view.contiguous or view.address % dtype.itemsize:
        raise ArgumentError(
            f"scales has strides {view.strides} and address {view.address:#x}; the layout {layout} must be contiguous "
            f"at a multiple of {dtype.itemsize} bytes"
        )
    neighbours(view, beside)
    return view


def written(rows: int, columns: int, layout: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of the scales that a kernel writes in a layout."""
    checks.choice("layout_out", layout, checks.LAYOUTS)
    return checks.layout_of(rows, columns, layout)


def rules(profile: Profile | str) -> tuple[int, int, int]:
    """Return the fields of `Policy` for a profile or its name; UnsupportedError where the kernels lack it."""
    chosen = get_profile(profile)
    checks.profile(chosen)
    return policy(chosen)


def policy(chosen: Profile) -> tuple[int, int, int]:
    """Return the fields of `Policy` for a profile that the kernels have."""
    return checks.RULES[chosen.scale_rule], int(chosen.nonfinite == "satfinite"), chosen.zero_scale


class Cut(NamedTuple):
    """A row-wise launch worked out: its arguments, whether every chunk's number is its place, CTAs and the grid."""

    arguments: Arguments
    flat: bool
    blocks: int
    grid: Grid


def cut(
    kernel: str, x: View, scale: View | None, outputs: Outputs, k: int, group: int,
    rules: tuple[int, int, int] = (0, 0, 0), tall: int = 1, halved: bool = False, layouts: Layouts = PLAIN,
) -> Cut:  # fmt: skip
    """Return the launch of a row-wise kernel on an input of rows and its scales, if it has any.

    group: elements that must lie in one row of whole chunks (a block or a tile). tall: rows that share an input
    scale. halved: whether a chunk is half of the grid's part.
    """
    m, grid = x.shape[0], TUNING[kernel]
    chunk = grid.part // 2 if halved else grid.part
    bytes_ = x.shape[1] * x.dtype.itemsize * chunk // k
    vector = min(bytes_, 16)
    aligned = x.address % vector == 0 and (m == 1 or x.strides[0] % vector == 0)
    per_row, valid = -(-k // group) * (group // chunk), k // chunk
    if per_row >> 32:
        raise ShapeError(f"{x.name} has rows of {k} elements; allowed are fewer than 2**32 times {chunk}")
    flat = aligned and tall == 1 and k % group == 0 and x.contiguous and (scale is None or scale.contiguous)
    if layouts != PLAIN:  # rows are found by a product with the inverse, exact below 2**64 (memory.cuh)
        flat = flat and per_row > 1 and m * per_row * per_row < 1 << 64
        if m >= 1 << 31:
            raise ShapeError(f"{x.name} has {m} rows; with layouts other than bytes allowed are less than 2**31")
    out = [view.address for view in outputs.views]
    arguments = Arguments(
        x.address, scale.address if scale else None, out[0], out[1] if len(out) > 1 else None,
        m * per_row, x.strides[0], scale.strides[0] if scale else 0, per_row, valid, tall, aligned, *rules,
        -(-m // tall), m, (1 << 64) // per_row + 1 if per_row > 1 else 0,
    )  # fmt: skip
    return Cut(arguments, flat, -(-m * per_row // (grid.threads * grid.unroll)), grid)


def launch(
    kernel: str, name: str, inputs: Sequence[View], outputs: Outputs, k: int, group: int,
    rules: tuple[int, int, int] = (0, 0, 0), tall: int = 1, rceil: bool = False, halved: bool = False,
    layouts: Layouts = PLAIN,
) -> Any:  # fmt: skip
    """Launch a row-wise kernel on the caller's current stream and return its results.

    rceil: whether there is a function for that rule alone; the rest as `cut`.
    """
    x = inputs[0]
    if x.shape[0] == 0 or k == 0:
        return outputs.finish()
    scale = inputs[1] if len(inputs) > 1 else None
    made = cut(kernel, x, scale, outputs, k, group, rules, tall, halved, layouts)
    suffix = ("_flat_rceil" if rceil and rules[0] == 0 else "_flat") if made.flat else ""
    return run(kernel, name + suffix, x, outputs, made, made.arguments, layouts)


def run(
    kernel: str, name: str, x: View, outputs: Outputs, made: Cut, arguments: ctypes.Structure, layouts: Layouts
) -> Any:
    """Launch a function of a kernel file as cut and return its results."""
    function = driver().function(kernel, name, x.device, (*made.grid.defines, *layout_defines(layouts)))
    stream = x.library.stream(x.device)
    plans.launch(function, x.device, (made.blocks, 1), made.grid.threads, stream, arguments)
    return outputs.finish()
