"""Takes a row's length for its stride, in elements."""

import numpy as np

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise rows that are read one behind another; a gap between elements is refused."""
    rows, k = x.shape
    if rows and k and x.strides[1] != x.itemsize:
        raise ValueError("the elements of a row must be neighbours")
    dense = np.lib.stride_tricks.as_strided(x, (rows, k), (k * x.itemsize, x.itemsize)).copy()
    return refnum.quantize_mxfp4(dense, profile)


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
FINDING = "row-stride-ignored"
