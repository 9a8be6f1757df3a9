"""Launchers of DGE and OCC (clause N25)."""

from __future__ import annotations

import ctypes
import math

from refnum.errors import ShapeError

from ..checks import KINDS
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import estimators
from ..interface.estimators import Clamp, Slopes
from .rowwise import NAMES, Grid

__all__ = ["dge", "occ"]

TUNING: dict[str, Grid] = {
    "dge": Grid(512, 2, 8),
    "occ": Grid(256, 4, 8),
}
"""Kernel file -> grid; parts are of 16-bit floats."""
WAVE = 132
"""CTAs of one wave, where each multiprocessor has one."""
TABLES = 2 * WAVE
"""CTAs that compute a table of slopes each."""
COUNTERS = 8 * WAVE
"""CTAs that count the numbers of a tensor."""
SEGMENT = 1 << 14
"""Numbers of a row where a tensor without gaps is cut into rows anew."""
STRIP, BINS = 16, 256
"""Columns that a CTA searches; bins of a pass."""
LARGE = 0x71800000
"""float32 bits of 2**100, below which a cap is for the kernels of k = 5."""
PASSES = {"float32": 4, "bfloat16": 2}


class Rule(ctypes.Structure):
    """Mirror of `refnum::DgeRule` in kernels/dge.cuh."""

    _fields_ = [
        ("inverse", ctypes.c_double), ("second", ctypes.c_double), ("exponent", ctypes.c_float), ("k", ctypes.c_int32),
        ("cap", ctypes.c_uint32),
    ]  # fmt: skip


class DgeArguments(ctypes.Structure):
    """Mirror of `refnum::DgeArguments` in kernels/dge.cu."""

    _fields_ = [
        ("x", ctypes.c_void_p), ("out", ctypes.c_void_p), ("count", ctypes.c_int64), ("rule", Rule),
        ("aligned", ctypes.c_uint32),
    ]  # fmt: skip


class OccArguments(ctypes.Structure):
    """Mirror of `refnum::OccArguments` in kernels/occ.cu; see `frame.Launch`."""

    slots = ("x", "clamped", "residual", "thresholds", "scratch")
    _fields_ = [
        ("x", ctypes.c_void_p), ("clamped", ctypes.c_void_p), ("residual", ctypes.c_void_p),
        ("thresholds", ctypes.c_void_p), ("scratch", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64), ("rows", ctypes.c_int64), ("k", ctypes.c_int64), ("total", ctypes.c_int64),
        ("vectors", ctypes.c_int64), ("lower", ctypes.c_uint32), ("upper", ctypes.c_uint32), ("turn", ctypes.c_uint32),
        ("aligned", ctypes.c_uint32),
    ]  # fmt: skip


@planned(estimators.dge, 1)
def dge(call: DeviceCall, given: Slopes[View]) -> None:
    """Launch the slopes: looked up for bfloat16, computed one by one for other floats."""
    x, k = given.x, given.k
    count, kind = math.prod(x.shape), NAMES[KINDS[x.dtype]]
    if not count:
        return
    rule = Rule(1 / k, (k + 1) / (2 * k * k), 1 / k - 1, k, given.cap)
    arguments = DgeArguments(x.address, call.results[0].address, count, rule, x.address % 16 == 0)
    looked_up = kind == "bfloat16"
    grid = TUNING["dge"]
    blocks = -(-count // (grid.threads * grid.unroll * grid.part))
    edges = ("paper", "ms_amp")[given.compat]
    fixed = kind == "float32" and k == 5 and given.cap < (LARGE if given.wide else LARGE >> 16)
    name = f"dge_{kind}{'_5' * fixed}_{edges}_{NAMES[not given.wide]}"
    call.launch("dge", name, grid.defines, (min(blocks, TABLES) if looked_up else blocks, 1), grid.threads, arguments)


@planned(estimators.occ, 1)
def occ(call: DeviceCall, given: Clamp[View]) -> None:
    """Launch the search for the thresholds, then the clamp."""
    x, axis = given.x, estimators.AXES[given.axis]
    kind = NAMES[KINDS[x.dtype]]
    (m, k), size = x.shape, x.dtype.itemsize
    total, stride, rows = m * k, x.strides[0], m
    if axis == "tensor" and x.contiguous and total:
        rows, k, stride = -(-total // SEGMENT), SEGMENT, SEGMENT * size
    if rows >> 31 or k >> 31:
        raise ShapeError(f"{x.name} has shape {x.shape}; allowed are fewer than 2**31 rows and columns")
    whole = x.address % 16 == 0 and (rows == 1 or stride % 16 == 0) and k * size % 16 == 0
    numbers = x.address % size == 0 and (rows == 1 or stride % size == 0)
    vectors = call.results[2].shape[1]
    clamped, residual, thresholds = (view.address for view in call.results)
    scratch = call.scratch(PASSES[kind] * 2 * BINS * 4) if axis == "tensor" else None
    arguments = OccArguments(
        x.address, clamped, residual, thresholds, scratch, stride, rows, k, total, vectors, given.lower, given.upper, 0,
        2 if whole else int(numbers),
    )  # fmt: skip
    _search(call, axis, kind, arguments)
    if total:
        _launch(call, f"occ_clamp_{axis}_{kind}", rows, arguments)


def _search(call: DeviceCall, axis: str, kind: str, arguments: OccArguments) -> None:
    """Launch what finds the thresholds."""
    if axis == "tensor":
        passes = PASSES[kind] if arguments.total else 0
        for turn in (passes, *range(passes)):
            arguments = OccArguments.from_buffer_copy(arguments)
            arguments.turn = turn
            counts = turn != passes
            name, blocks = (f"occ_count_{kind}", min(arguments.rows, COUNTERS)) if counts else ("occ_clear", 1)
            _launch(call, name, blocks, arguments)
        _launch(call, f"occ_tensor_thresholds_{kind}", 1, arguments)
    elif arguments.vectors:
        blocks = arguments.rows if axis == "token" else -(-arguments.k // STRIP)
        _launch(call, f"occ_{axis}_thresholds_{kind}", blocks, arguments)


def _launch(call: DeviceCall, name: str, blocks: int, arguments: OccArguments) -> None:
    grid = TUNING["occ"]
    call.launch("occ", name, grid.defines, (blocks, 1), grid.threads, arguments)
