"""Launchers of the scalar conversions: floats of any shape to codes, one a byte."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from refnum.errors import ArgumentError, DtypeError, ShapeError

from .. import checks
from ..device import arrays, plans
from ..device.driver import driver
from ..device.outputs import U8, Outputs
from ..device.plans import planned
from .rowwise import NAMES, Grid

__all__ = ["encode_e2m1", "encode_e4m3", "encode_e8m0"]

KERNEL = "encode_elements"
GRID = Grid(256, 2, 16)
"""The grid of all nine functions, a chunk of float32 half as long: measured, see docs/results."""
DEFINES = GRID.defines


class Elements(ctypes.Structure):
    """Mirror of `refnum::Elements` in kernels/encode_elements.cu."""

    _fields_ = [
        ("x", ctypes.c_void_p), ("out", ctypes.c_void_p), ("count", ctypes.c_int64), ("byte", ctypes.c_int32),
        ("rounding", ctypes.c_int32), ("option", ctypes.c_uint32), ("aligned", ctypes.c_uint32),
    ]  # fmt: skip


@planned(1)
def encode_e2m1(x: Any, *, scale_byte: int = 127, out: Any = None) -> Any:
    """E2M1 codes u8 of x / 2**(scale_byte - 127), one a byte (N2); NaN gives 7, overflow 6 with its sign.

    x: float32, bfloat16, float16 or uint16 (bfloat16 bits) of any shape, contiguous. Under byte 255 every code is 0
    (N4).
    """
    return _encode("encode_e2m1", x, out, byte=checks.choice("scale_byte", scale_byte, range(256)))


@planned(1)
def encode_e4m3(x: Any, overflow: str = "saturate", *, out: Any = None) -> Any:
    """E4M3 codes u8 of x (N2); NaN gives 0x7F, what passes 448 gives 448 (`saturate`) or NaN (`nan`), with its sign."""
    return _encode("encode_e4m3", x, out, option=checks.choice("overflow", overflow, ("saturate", "nan")))


@planned(1)
def encode_e8m0(x: Any, rounding: str = "up", saturate: bool = False, *, out: Any = None) -> Any:
    """E8M0 bytes u8 of |x| (N1); rounding: `up` | `down` | `nearest`; overflow is 254 when saturating, else 255."""
    if not isinstance(saturate, bool):
        raise ArgumentError(f"saturate={saturate!r}; allowed are True and False")
    mode = checks.choice("rounding", rounding, ("up", "down", "nearest"))
    return _encode("encode_e8m0", x, out, rounding=mode, option=int(saturate))


def _encode(name: str, x: Any, out: Any, byte: int = 127, rounding: int = 0, option: int = 0) -> Any:
    view = arrays.look("x", x)
    if view.dtype not in checks.KINDS:
        raise DtypeError(f"x has dtype {view.dtype}; allowed are float32, bfloat16, float16 and uint16 (bfloat16 bits)")
    if not view.contiguous:
        raise ShapeError(f"x has strides {view.strides}; allowed is a contiguous array: make it contiguous")
    outputs = Outputs(out, [(view.shape, U8)], [view])  # any number of axes
    count = math.prod(view.shape)
    if count:
        kind = checks.KINDS[view.dtype]
        arguments = Elements(view.address, outputs.views[0].address, count, byte, rounding, option,
                             view.address % 16 == 0)  # fmt: skip
        function = driver().function(KERNEL, f"{name}_{NAMES[kind]}", view.device, DEFINES)
        blocks = -(-count // (GRID.threads * GRID.unroll * (GRID.part // 2 if NAMES[kind] == "float32" else GRID.part)))
        plans.launch(function, view.device, (blocks, 1), GRID.threads, view.library.stream(view.device), arguments)
    return outputs.finish()
