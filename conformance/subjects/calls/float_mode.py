"""The thread's floating-point mode: rounding direction, flush-to-zero. A call that changes it changes all that follows.

The golden model computes with integers and does not care; other libraries of the process do.
"""

from __future__ import annotations

import contextlib
import ctypes

import numpy as np

_LEFT = np.array([0x00800000, 0x00400000, 0x3F800000, 0xBF800000, 0x3F800000], np.uint32).view(np.float32)
_FACTOR = np.array([0.5, 2.0, 1.0, 1.0, 1.0], np.float32)
_ADDEND = np.array([0, 0, 2.0**-24, -(2.0**-24), 1.5 * 2.0**-24], np.float32)


def float_mode() -> bytes:
    """Return bytes that differ when float32 arithmetic of this thread flushes or rounds in another way.

    The products show flushed results and operands, the sums the direction of rounding.
    """
    with np.errstate(all="ignore"):
        return (_LEFT * _FACTOR + _ADDEND).tobytes()


def default_float_mode() -> None:
    """Set the thread's floating-point environment to the C library's default: to nearest, nothing flushed."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).fesetenv(ctypes.c_void_p(-1))  # FE_DFL_ENV
