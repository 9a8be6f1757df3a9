"""Launchers of the scalar conversions: floats of any shape to codes, one a byte (clauses N1 and N2)."""

from __future__ import annotations

import ctypes
import math

from .. import checks
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import casts
from ..interface.casts import Encoded
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


def _encode(call: DeviceCall, given: Encoded[View]) -> None:
    """Launch the conversion of the operation of the call."""
    x = given.x
    count, kind = math.prod(x.shape), checks.KINDS[x.dtype]
    if count:
        arguments = Elements(x.address, call.results[0].address, count, given.byte, given.rounding, given.option,
                             x.address % 16 == 0)  # fmt: skip
        blocks = -(-count // (GRID.threads * GRID.unroll * (GRID.part // 2 if NAMES[kind] == "float32" else GRID.part)))
        call.launch(KERNEL, f"{call.operation}_{NAMES[kind]}", DEFINES, (blocks, 1), GRID.threads, arguments)


encode_e2m1 = planned(casts.encode_e2m1, 1)(_encode)
encode_e4m3 = planned(casts.encode_e4m3, 1)(_encode)
encode_e8m0 = planned(casts.encode_e8m0, 1)(_encode)
