"""Launchers of SwiGLU with quantisation and of its gradients (clause N11)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.profiles import HOPPER, Profile, get_profile

from .. import checks
from ..checks import BFLOAT16, BLOCK, TILE
from ..device import plans
from ..device.arrays import View, look
from ..device.driver import driver
from ..device.outputs import U8, Outputs
from ..device.plans import planned
from ..silu import silu_table
from . import rowwise

__all__ = ["swiglu_backward", "swiglu_quantize"]

CHUNK, QUAD = 16, 4
"""Elements that a thread takes at a time, forward and backward."""
ROWS = 1 << 31
"""Rows that a launch cannot number."""
STAYING = 1 << 31
"""CTAs that a launch has at most, on a device of however many multiprocessors."""
F32 = np.dtype(np.float32)


class Stay(NamedTuple):
    """How a launch of CTAs that stay is cut: threads a CTA, CTAs a multiprocessor, whether the next chunk is read
    before this one is worked on, whether memory passes by the caches.
    """

    threads: int
    blocks: int
    ahead: int = 1
    stream: int = 0

    @property
    def defines(self) -> tuple[str, ...]:
        """The macros of kernels/swiglu_quantize.cu and kernels/swiglu_backward.cu."""
        return tuple(f"{name.upper()}={value}" for name, value in self._asdict().items())


TUNING: dict[str, Stay] = {
    "swiglu_quantize": Stay(384, 2),
    "swiglu_backward": Stay(256, 4),
}
"""Kernel file -> its cut: measured, see docs/results."""


class Forward(ctypes.Structure):
    """Mirror of `refnum::SwigluArguments` in kernels/swiglu_quantize.cu. `slots`: see `ready.Launch`."""

    slots: tuple[str, ...] = ("gate", "up", "out", "out_scales")
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("gate", "up", "prob", "out", "out_scales", "table")],
        *[(name, ctypes.c_int64) for name in ("gate_stride", "up_stride", "prob_stride")],
        *[(name, ctypes.c_uint32) for name in ("rows", "per_row", "valid", "turns", "step_rows", "step_columns")],
        ("rule", ctypes.c_int32), ("satfinite", ctypes.c_uint32), ("zero_byte", ctypes.c_uint32),
    ]  # fmt: skip


class WeightedForward(Forward):
    """Of a call with `prob`."""

    slots = ("gate", "up", "prob", "out", "out_scales")


class Backward(ctypes.Structure):
    """Mirror of `refnum::GradientArguments` in kernels/swiglu_backward.cu."""

    slots: tuple[str, ...] = ("grad", "gate", "up", "dgate", "dup")
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("grad", "gate", "up", "prob", "dgate", "dup", "dprob", "table")],
        *[(name, ctypes.c_int64) for name in ("grad_stride", "gate_stride", "up_stride", "prob_stride", "h")],
        *[(name, ctypes.c_uint32) for name in ("rows", "turns", "levels")],
    ]  # fmt: skip


class WeightedBackward(Backward):
    """Of a call with `prob`."""

    slots = ("grad", "gate", "up", "prob", "dgate", "dup", "dprob")


@planned(2, optional="prob")
def swiglu_quantize(
    gate: Any, up: Any, prob: Any = None, to: str = "fp8", profile: Profile | str = HOPPER, *, out: Any = None
) -> Any:
    """Quantise silu(gate) * up, times `prob` f32 [M] (N11), bfloat16 [M, H] -> as `quantize_fp8_tiles`/`_mxfp4`."""
    mxfp4 = bool(checks.choice("to", to, ("fp8", "mxfp4")))
    views = _inputs([("gate", gate, BLOCK), ("up", up, 1)], prob)
    chosen = get_profile(profile)
    checks.profile(chosen)
    (m, h), rules = views[0].shape, rowwise.policy(chosen)
    wanted: list[tuple[tuple[int, ...], Any]] = (
        [((m, h // 2), U8), ((m, h // BLOCK), U8)] if mxfp4 else [((m, h), U8), ((m, checks.tiles(h)), U8)]
    )
    outputs = Outputs(out, wanted, views)
    if m == 0 or h == 0:
        return outputs.finish()
    x, tuning, group = views[0], TUNING["swiglu_quantize"], BLOCK if mxfp4 else TILE
    per_row, valid = -(-h // group) * (group // CHUNK), h // CHUNK
    blocks = min(STAYING, tuning.blocks * driver().multiprocessors(x.device), -(-m * per_row // tuning.threads))
    step = blocks * tuning.threads
    weighted, aligned = len(views) > 2, _aligned(views[:2], 16) and _aligned(views[2:], 4)
    places = {"gate": x.address, "up": views[1].address, "prob": views[2].address if weighted else None}
    arguments = (WeightedForward if weighted else Forward)(
        **places, out=outputs.views[0].address, out_scales=outputs.views[1].address, table=_table(x.device),
        gate_stride=x.strides[0], up_stride=views[1].strides[0], prob_stride=views[2].strides[0] if weighted else 0,
        rows=m, per_row=per_row, valid=valid, turns=-(-m * per_row // step),
        step_rows=step // per_row, step_columns=step % per_row,
        rule=rules[0], satfinite=rules[1], zero_byte=rules[2],
    )  # fmt: skip
    saturate = mxfp4 and (chosen.scale_rule == "floor" or rules[1] or not aligned)
    name = f"swiglu_quantize_{to}{'_weighted' * weighted}{'_saturate' * bool(saturate)}{'_loose' * (not aligned)}"
    function = driver().function("swiglu_quantize", name, x.device, tuning.defines)
    plans.launch(function, x.device, (blocks, 1), tuning.threads, x.library.stream(x.device), arguments)
    return outputs.finish()


def swiglu_backward(grad: Any, gate: Any, up: Any, prob: Any = None, *, out: Any = None) -> Any:
    """Return (dgate f32 [M, H], dup f32 [M, H], dprob f32 [M] or None) of SwiGLU (N11); grad: bfloat16 or float32.

    out: (dgate, dup), and dprob when prob is given.
    """
    results = _backward(grad, gate, up, prob, out=out)
    return results if prob is not None else (*results, None)


@planned(3, optional="prob")
def _backward(grad: Any, gate: Any, up: Any, prob: Any, *, out: Any = None) -> Any:
    """As `swiglu_backward`; without `prob` there are two results."""
    views = _inputs([("gate", gate, 1), ("up", up, 1)], prob)
    received = rowwise.matrix("grad", grad, 1, views[0])
    if received.dtype != F32 and received.dtype not in (BFLOAT16, np.uint16):
        raise DtypeError(
            f"grad has dtype {received.dtype}; allowed are float32, bfloat16 and uint16 (bfloat16 bits)"
        )  # fmt: skip
    m, h = views[0].shape
    if received.shape != (m, h):
        raise ShapeError(f"grad has shape {received.shape}; gate has {(m, h)}, they must be equal")
    if h == 0:
        raise ShapeError(f"gate has shape {(m, h)}; allowed is [M, H] with H >= 1")
    weighted, wide = len(views) > 2, received.dtype == F32
    wanted: list[tuple[tuple[int, ...], Any]] = [((m, h), F32), ((m, h), F32), *[((m,), F32)] * weighted]
    outputs = Outputs(out, wanted, [received, *views])
    if m == 0:
        return outputs.finish()
    x, tuning, bytes_ = views[0], TUNING["swiglu_backward"], received.dtype.itemsize
    aligned = h % QUAD == 0 and _aligned([received], QUAD * bytes_) and _aligned(views[:2], 8)
    aligned = aligned and _aligned(views[2:], 4)
    out_ = [view.address for view in outputs.views]
    arguments = (WeightedBackward if weighted else Backward)(
        grad=received.address, gate=x.address, up=views[1].address, prob=views[2].address if weighted else None,
        dgate=out_[0], dup=out_[1], dprob=out_[2] if weighted else None, table=_table(x.device),
        grad_stride=received.strides[0], gate_stride=x.strides[0], up_stride=views[1].strides[0],
        prob_stride=views[2].strides[0] if weighted else 0, h=h,
        rows=m, turns=-(-h // (QUAD * tuning.threads)), levels=(h - 1).bit_length(),
    )  # fmt: skip
    blocks = min(STAYING, tuning.blocks * driver().multiprocessors(x.device), m)
    name = f"swiglu_backward_{'float32' if wide else 'bfloat16'}{'_weighted' * weighted}{'_loose' * (not aligned)}"
    function = driver().function("swiglu_backward", name, x.device, tuning.defines)
    plans.launch(function, x.device, (blocks, 1), tuning.threads, x.library.stream(x.device), arguments)
    return outputs.finish()


def _inputs(given: Sequence[tuple[str, Any, int]], prob: Any) -> list[View]:
    """Return the views of gate, up and, if given, prob; errors name what does not fit."""
    views: list[View] = []
    for name, x, multiple in given:
        view = rowwise.matrix(name, x, multiple, views[0] if views else None)
        if view.dtype not in (BFLOAT16, np.uint16):
            raise DtypeError(f"{name} has dtype {view.dtype}; allowed are bfloat16 and uint16 (bfloat16 bits)")
        if views and view.shape != views[0].shape:
            raise ShapeError(f"{name} has shape {view.shape}; gate has {views[0].shape}, they must be equal")
        views.append(view)
    m = views[0].shape[0]
    if m >= ROWS:
        raise ShapeError(f"gate has {m} rows; allowed are fewer than 2**31")
    if prob is None:
        return views
    weights = look("prob", prob)
    if weights.dtype != F32:
        raise DtypeError(f"prob has dtype {weights.dtype}; allowed is float32")
    if weights.shape != (m,):
        raise ShapeError(f"prob has shape {weights.shape}; allowed is one weight a row, ({m},)")
    if weights.device != views[0].device or weights.library.name != views[0].library.name:
        raise ArgumentError(
            f"prob is an array of {weights.library.name} on device {weights.device} and gate one of "
            f"{views[0].library.name} on device {views[0].device}; give both of one library on one device"
        )
    return [*views, weights]


def _aligned(views: Sequence[View], n: int) -> bool:
    """Whether every row of every array lies at a multiple of n bytes."""
    return all(x.address % n == 0 and (x.shape[0] == 1 or x.strides[0] % n == 0) for x in views)


def _table(device: int) -> int:
    """Return the address of the table of silu in a device's memory, where it stays once a kernel needed it."""
    return driver().constant("silu", silu_table(), device)
