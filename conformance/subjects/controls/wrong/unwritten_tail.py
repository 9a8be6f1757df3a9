"""Leaves the last row of `out` as it found it: old memory often holds the right answer."""

import numpy as np

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER, *, rbits=None, out=None):
    """Quantise all rows but the last when `out` is given."""
    results = refnum.quantize_mxfp4(x, profile, rbits=rbits)
    if out is None:
        return results
    for array, result in zip(out, results, strict=True):
        np.copyto(array[:-1], result[:-1])
    return out


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
FINDING = "output-not-written"
