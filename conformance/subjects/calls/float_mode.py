"""The thread's floating-point mode: rounding direction, flush-to-zero. A call that changes it changes all that follows.

The golden model computes with integers and does not care; other libraries of the process do.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable

_LEFT = (sys.float_info.min, sys.float_info.min / 2, 1.0, -1.0, 1.0)
_FACTOR = (0.5, 2.0, 1.0, 1.0, 1.0)
_ADDEND = (0.0, 0.0, 2.0**-53, -(2.0**-53), 1.5 * 2.0**-53)


def float_mode() -> bytes:
    """Return bytes that differ when floating-point arithmetic of this thread flushes or rounds in another way.

    The products show flushed results and operands, the sums the direction of rounding. Python's own numbers are used: a
    processor has one mode for them and for float32, and an array would take ten times as long.
    """
    return struct.pack("5d", *[a * b + c for a, b, c in zip(_LEFT, _FACTOR, _ADDEND, strict=True)])


@functools.cache
def _set_default() -> Callable[[], object]:
    """Return what sets the default, where the C library has it; it keeps the interpreter's lock."""
    try:
        return functools.partial(ctypes.PyDLL(None).fesetenv, ctypes.c_void_p(-1))  # FE_DFL_ENV
    except (AttributeError, OSError):
        return int


def default_float_mode() -> None:
    """Set the thread's floating-point environment to the C library's default: to nearest, nothing flushed."""
    _set_default()()
