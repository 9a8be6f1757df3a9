"""Launcher of Stable-SPAM's step (clause N27.4)."""

from __future__ import annotations

import ctypes
import math

from ..device.arrays import View
from ..device.call import DeviceCall
from ..device.plans import planned
from ..interface import optimisers
from ..interface.optimisers import Step
from .rowwise import Grid

__all__ = ["stable_spam_apply"]

KERNEL = "stable_spam"
GRID = Grid(256, 1, 4)
"""Parts are of float32. Not yet measured."""


class SpamArguments(ctypes.Structure):
    """Mirror of `refnum::SpamArguments` in kernels/stable_spam.cu; see `frame.Launch`."""

    slots = ("gradient", "weight", "m", "v", "factors", "out", "out_m", "out_v")
    _fields_ = [
        *((name, ctypes.c_void_p) for name in slots),
        ("count", ctypes.c_int64), ("forget", ctypes.c_int32), ("aligned", ctypes.c_uint32),
    ]  # fmt: skip


@planned(optimisers.stable_spam_apply, 5)
def stable_spam_apply(call: DeviceCall, given: Step[View]) -> None:
    """Launch the step."""
    views = (*given.arrays, given.factors, *call.results)
    count = math.prod(given.arrays[0].shape)
    aligned = all(view.address % 16 == 0 for view in given.arrays)
    if count:
        arguments = SpamArguments(*(view.address for view in views), count, given.forget, aligned)
        blocks = -(-count // (GRID.threads * GRID.unroll * GRID.part))
        call.launch(KERNEL, "stable_spam", GRID.defines, (blocks, 1), GRID.threads, arguments)
