"""The host's floating-point mode (clause N0). The model does not depend on it; the user's other code may."""

from __future__ import annotations

import warnings

import numpy as np

MESSAGE = (
    "this process flushes float32 subnormals to zero (FTZ or DAZ is set, often by a library built with -ffast-math); "
    "refnum's results do not depend on it, but the kernel or peer that you compare may be wrong because of it"
)


def flushes_subnormals() -> bool:
    """Whether float32 arithmetic of this thread flushes subnormal results or reads subnormal inputs as zero."""
    smallest_normal = np.array([0x00800000], np.uint32).view(np.float32)
    subnormal = np.array([0x00400000], np.uint32).view(np.float32)
    half, two = np.float32(0.5), np.float32(2)
    with np.errstate(all="ignore"):  # a flushed result raises the underflow flag
        flushed = (smallest_normal * half).view(np.uint32)[0] != 0x00400000
        read_as_zero = (subnormal * two).view(np.uint32)[0] != 0x00800000
    return bool(flushed or read_as_zero)


def check_host() -> None:
    """Warn loudly (RuntimeWarning) when the host flushes subnormals. Called once at import."""
    if flushes_subnormals():
        warnings.warn(MESSAGE, RuntimeWarning, stacklevel=2)
