"""Fixed sets of float32 patterns on which every peer's cast is compared, and block inputs made from them.

The sets are the same on every machine: `boundary` holds each place where a format of up to three mantissa bits
changes its code, `stratified` covers all signs and exponents evenly, and the 16-bit formats are run through whole.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

BOUNDARY_PATTERNS = 512 * 16 * 7
STRATIFIED_PATTERNS = 1 << 22


@functools.cache
def boundary() -> np.ndarray:
    """Every sixteenth of every binade and its neighbours up to 3 ulp, both signs: u32 [57344], NaN and Inf included.

    Values and midpoints of a format with at most three mantissa bits, subnormals included, have at most four bits
    after the leading one: all of them are among the sixteenths.
    """
    head = np.arange(512, dtype=np.uint32)[:, None, None] << np.uint32(23)
    sixteenth = np.arange(16, dtype=np.uint32)[None, :, None] << np.uint32(19)
    near = np.arange(-3, 4, dtype=np.int64)[None, None, :]
    patterns = ((head + sixteenth).astype(np.int64) + near) & 0xFFFFFFFF
    return _frozen(patterns.astype(np.uint32).reshape(-1))


@functools.cache
def stratified(seed: int = 20261121) -> np.ndarray:
    """One pattern in each of 2^13 equal parts of each of the 512 binades of both signs: u32 [2^22]."""
    head = np.arange(1 << 22, dtype=np.uint32) << np.uint32(10)
    low = np.random.Generator(np.random.PCG64(seed)).integers(0, 1 << 10, 1 << 22, dtype=np.uint32)
    return _frozen(head | low)


@functools.cache
def every(name: str) -> np.ndarray:
    """All 65,536 patterns of `bfloat16` or `float16`, as an array of that dtype."""
    dtype = ml_dtypes.bfloat16 if name == "bfloat16" else np.float16
    return _frozen(np.arange(1 << 16, dtype=np.uint16)).view(dtype)


def blocks_led_by(amax: np.ndarray, width: int = 32) -> np.ndarray:
    """Blocks whose largest magnitude is given: amax u32 [N] (sign ignored) -> float32 [N, width].

    The maximum wanders over the lanes and both signs; the others are the maximum with its exponent lowered by 0 to
    30 and some low bits changed, so that they meet the element's midpoints; where amax is NaN or Inf the others
    stay finite.
    """
    count = amax.size
    lane, row = np.arange(width, dtype=np.int64)[None, :], np.arange(count, dtype=np.int64)[:, None]
    top = (amax & np.uint32(0x7FFFFFFF)).astype(np.int64)[:, None]
    shared = np.minimum(top, 0x7F7FFFFF)
    mixed = (row * 2654435761 + lane * 40503) >> 3
    lower = np.maximum((shared & 0x7F800000) - ((mixed % 31) << 23), 0)
    fraction = np.where(mixed >> 5 & 1, (shared & 0x7FFFFF) & ~0x7FFFF, mixed >> 7 & 0x7FFFFF)
    others = np.minimum(lower | fraction & 0x7FFFFF, shared)
    magnitude = np.where(lane == row % width, top, others)
    sign = (mixed >> 11 & 1) << 31
    return (magnitude | sign).astype(np.uint32).view(np.float32)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
