"""Launchers of SwiGLU with quantisation and of its gradients (clause N11)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import checks
from ..checks import BLOCK, TILE
from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.driver import driver
from ..device.plans import planned
from ..interface import swiglu
from ..interface.call import F32, public
from ..silu import silu_table

__all__ = ["swiglu_backward", "swiglu_quantize"]

CHUNK, QUAD = 16, 4
"""Elements of a thread's chunk, forward and backward."""
STAYING = 1 << 31
"""The largest number of CTAs of a launch, on a device with any number of multiprocessors."""


class Stay(NamedTuple):
    """The cut of a launch of persistent CTAs: threads of a CTA, CTAs of a multiprocessor, whether the next chunk is
    read before the current one is converted, whether memory accesses bypass the caches.
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


class ForwardArguments(ctypes.Structure):
    """Mirror of `refnum::SwigluArguments` in kernels/swiglu_quantize.cu. `slots`: see `frame.Launch`."""

    slots: tuple[str, ...] = ("gate", "up", "out", "out_scales")
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("gate", "up", "prob", "out", "out_scales", "table")],
        *[(name, ctypes.c_int64) for name in ("gate_stride", "up_stride", "prob_stride")],
        *[(name, ctypes.c_uint32) for name in ("rows", "per_row", "valid", "turns", "step_rows", "step_columns")],
        ("rule", ctypes.c_int32), ("satfinite", ctypes.c_uint32), ("zero_byte", ctypes.c_uint32),
    ]  # fmt: skip


class WeightedForward(ForwardArguments):
    """The arguments of a call with `prob`."""

    slots = ("gate", "up", "prob", "out", "out_scales")


class BackwardArguments(ctypes.Structure):
    """Mirror of `refnum::GradientArguments` in kernels/swiglu_backward.cu."""

    slots: tuple[str, ...] = ("grad", "gate", "up", "dgate", "dup")
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("grad", "gate", "up", "prob", "dgate", "dup", "dprob", "table")],
        *[(name, ctypes.c_int64) for name in ("grad_stride", "gate_stride", "up_stride", "prob_stride", "h")],
        *[(name, ctypes.c_uint32) for name in ("rows", "turns", "levels")],
    ]  # fmt: skip


class WeightedBackward(BackwardArguments):
    """The arguments of a call with `prob`."""

    slots = ("grad", "gate", "up", "prob", "dgate", "dup", "dprob")


@planned(swiglu.swiglu_quantize, 2, optional="prob")
def swiglu_quantize(call: DeviceCall, given: swiglu.Forward[View]) -> None:
    """Launch the kernel of persistent CTAs, each of which takes one chunk after another."""
    x, up, prob, tuning = given.gate, given.up, given.prob, TUNING["swiglu_quantize"]
    m, h = x.shape
    if m == 0 or h == 0:
        return
    group = BLOCK if given.mxfp4 else TILE
    per_row, valid = -(-h // group) * (group // CHUNK), h // CHUNK
    blocks = min(STAYING, tuning.blocks * driver().multiprocessors(x.device), -(-m * per_row // tuning.threads))
    step = blocks * tuning.threads
    aligned = _aligned([x, up], 16) and _aligned([prob] if prob else [], 4)
    arguments = (WeightedForward if prob else ForwardArguments)(
        gate=x.address, up=up.address, prob=prob.address if prob else None, out=call.results[0].address,
        out_scales=call.results[1].address, table=_table(x.device), gate_stride=x.strides[0],
        up_stride=up.strides[0], prob_stride=prob.strides[0] if prob else 0,
        rows=m, per_row=per_row, valid=valid, turns=-(-m * per_row // step),
        step_rows=step // per_row, step_columns=step % per_row,
        rule=given.rules[0], satfinite=given.rules[1], zero_byte=given.rules[2],
    )  # fmt: skip
    saturate = given.mxfp4 and (given.rules[0] == checks.RULES["floor"] or given.rules[1] or not aligned)
    name = f"swiglu_quantize_{'mxfp4' if given.mxfp4 else 'fp8'}{'_weighted' * bool(prob)}"
    name += f"{'_saturate' * bool(saturate)}{'_loose' * (not aligned)}"
    call.launch("swiglu_quantize", name, tuning.defines, (blocks, 1), tuning.threads, arguments)


@planned(swiglu.swiglu_backward, 3, optional="prob")
def _backward(call: DeviceCall, given: swiglu.Backward[View]) -> None:
    """Launch the kernel of persistent CTAs, each of which takes one row after another."""
    grad, x, up, prob, tuning = *given, TUNING["swiglu_backward"]
    m, h = x.shape
    if m == 0:
        return
    aligned = h % QUAD == 0 and _aligned([grad], QUAD * grad.dtype.itemsize) and _aligned([x, up], 8)
    aligned = aligned and _aligned([prob] if prob else [], 4)
    out = [view.address for view in call.results]
    arguments = (WeightedBackward if prob else BackwardArguments)(
        grad=grad.address, gate=x.address, up=up.address, prob=prob.address if prob else None,
        dgate=out[0], dup=out[1], dprob=out[2] if prob else None, table=_table(x.device),
        grad_stride=grad.strides[0], gate_stride=x.strides[0], up_stride=up.strides[0],
        prob_stride=prob.strides[0] if prob else 0, h=h,
        rows=m, turns=-(-h // (QUAD * tuning.threads)), levels=(h - 1).bit_length(),
    )  # fmt: skip
    blocks = min(STAYING, tuning.blocks * driver().multiprocessors(x.device), m)
    kind = "float32" if grad.dtype == F32 else "bfloat16"
    name = f"swiglu_backward_{kind}{'_weighted' * bool(prob)}{'_loose' * (not aligned)}"
    call.launch("swiglu_backward", name, tuning.defines, (blocks, 1), tuning.threads, arguments)


@public(swiglu.swiglu_backward, _backward)
def swiglu_backward(*args: Any, **kwargs: Any) -> Any:
    """As described, with None in the place of a dprob that is not there."""
    return swiglu.three(_backward(*args, **kwargs))


def _aligned(views: Sequence[View], n: int) -> bool:
    """Return whether every row of every array begins at a multiple of n bytes."""
    return all(x.address % n == 0 and (x.shape[0] == 1 or x.strides[0] % n == 0) for x in views)


def _table(device: int) -> int:
    """Return the address of the table of silu in a device's memory; it is copied there once and stays."""
    return driver().constant("silu", silu_table(), device)
