"""Finds each row by an offset of 32 bits, which wraps where rows lie far apart."""

import numpy as np

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise rows whose offset in elements is taken modulo 2**32, as a signed number."""
    rows, k = x.shape
    offsets = np.arange(rows, dtype=np.int64) * (x.strides[0] // x.itemsize)
    wrapped = offsets != offsets.astype(np.int32)
    return refnum.quantize_mxfp4(np.where(wrapped[:, None], np.zeros((1, k), x.dtype), x), profile)


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
FINDING = "row-offset-overflow"
