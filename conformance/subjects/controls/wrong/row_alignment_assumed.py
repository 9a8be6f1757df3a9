"""Loads every row from its address rounded down to 16 bytes, as a vector load without a check would."""

import numpy as np

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise rows that begin at the next lower multiple of 16 bytes from the array's start."""
    rows, k = x.shape
    if not rows or not k or x.strides[1] != x.itemsize or x.strides[0] < k * x.itemsize:
        return refnum.quantize_mxfp4(x, profile)
    span = (rows - 1) * x.strides[0] + k * x.itemsize
    memory = np.lib.stride_tricks.as_strided(x.view(np.uint8), (span,), (1,))
    starts = [row * x.strides[0] // 16 * 16 for row in range(rows)]
    dense = np.stack([memory[start : start + k * x.itemsize] for start in starts])
    return refnum.quantize_mxfp4(dense.view(x.dtype), profile)


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
FINDING = "row-alignment-assumed"
