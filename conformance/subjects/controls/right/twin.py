"""A right subject with `out=`, as launchers have it: it copies the model's answer into the caller's arrays."""

import numpy as np

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER, *, rbits=None, out=None):
    """Quantise to MXFP4, into `out` when given."""
    results = refnum.quantize_mxfp4(x, profile, rbits=rbits)
    if out is None:
        return results
    for array, result in zip(out, results, strict=True):
        np.copyto(array, result)
    return out


def dequantize_mxfp4(packed, scales, dtype="float32", out=None):
    """Dequantise MXFP4, into `out` when given."""
    result = refnum.dequantize_mxfp4(packed, scales, dtype)
    if out is None:
        return result
    np.copyto(out, result)
    return out


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4, "dequantize_mxfp4": dequantize_mxfp4}}
