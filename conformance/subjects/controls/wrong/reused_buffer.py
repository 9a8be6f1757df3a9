"""Hands out its own buffer, which the next call overwrites."""

import numpy as np

import refnum

_BUFFERS: dict = {}


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise into a buffer kept for this shape."""
    results = refnum.quantize_mxfp4(x, profile)
    buffers = _BUFFERS.setdefault(x.shape, tuple(np.empty_like(array) for array in results))
    for buffer, result in zip(buffers, results, strict=True):
        np.copyto(buffer, result)
    return buffers


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
FINDING = "earlier-result-changed"
