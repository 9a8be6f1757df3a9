"""Which of two scales a block takes in the variants FOUR_OVER_SIX: the one with less error (clause N21.5)."""

from __future__ import annotations

import functools

import numpy as np

from .arrays import Array, contiguous, table_like
from .codec import decode_table
from .division import divide
from .formats import E2M1, E4M3
from .nvfp4_codes import picked
from .nvfp4_scales import TOP_OVER_SIX
from .softfloat import INF, add_magnitudes, multiply, subtract

_MAGNITUDE = np.uint32(0x7FFFFFFF)


def row_errors(wide: Array, codes: Array, scales: Array, tensor: Array, error: str) -> Array:
    """Sum of the errors of each block's elements, ascending, every step one float32 operation: bits u32 [...].

    wide: float32 bits [..., 16]; codes: u8 [..., 16]; scales: E4M3 codes u8 [...]; tensor: bits of the tensor maximum.
    error: `mae` adds |v - x|, `mse` its square, with v = fl(fl(fl(code * s) * amax) / 1536).
    """
    each = multiply(table_like(_products, scales), tensor)
    each = divide(each, np.full_like(each, TOP_OVER_SIX))
    found = picked(each, scales, codes) | ((codes & np.uint8(8)).astype(np.uint32) << np.uint32(28))
    apart = subtract(found, wide) & _MAGNITUDE
    if error == "mse":
        apart = multiply(apart, apart)
    total: Array = np.zeros(scales.shape, dtype=np.uint32, like=scales)
    for lane in contiguous(np.moveaxis(apart, -1, 0)):
        total = add_magnitudes(total, lane)
    return total


@functools.cache
def _products() -> np.ndarray:
    """Bits u32 [256, 8] of the product of each E4M3 scale and each magnitude of E2M1."""
    return np.asarray(multiply(decode_table(E4M3)[:, None], decode_table(E2M1)[:8]))


def fold_rows(errors: Array, tall: int) -> Array:
    """Add the errors of `tall` rows (1 or 16) as a tree: row i and row i + 8, then 4, 2 and 1; missing rows are 0."""
    if tall == 1:
        return errors
    missing = np.zeros((-errors.shape[0] % tall, errors.shape[1]), dtype=np.uint32, like=errors)
    left = np.concatenate([errors, missing])
    left = left.reshape(left.shape[0] // tall, tall, errors.shape[1])
    while left.shape[1] > 1:
        half = left.shape[1] // 2
        left = add_magnitudes(left[:, :half], left[:, half:])
    return left[:, 0]


def less(first: Array, second: Array) -> Array:
    """Whether one sum of errors is below another; NaN is below nothing, and nothing is below it."""
    return (first < second) & (second <= INF)
