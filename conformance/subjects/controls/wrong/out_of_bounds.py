"""Writes one byte past the end of its output."""

import numpy as np

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER, *, rbits=None, out=None):
    """Quantise, and write behind `out` when it is given."""
    results = refnum.quantize_mxfp4(x, profile, rbits=rbits)
    if out is None:
        return results
    for array, result in zip(out, results, strict=True):
        np.copyto(array, result)
    base = out[1]
    while base.base is not None:
        base = base.base
    end = out[1].__array_interface__["data"][0] - base.__array_interface__["data"][0] + out[1].nbytes
    base.reshape(-1)[end] = 0
    return out


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
FINDING = "guard-overwritten"
