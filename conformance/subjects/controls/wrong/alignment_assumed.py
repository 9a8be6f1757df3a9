"""Loads from its input's address rounded down to 16 bytes, as a vector load without a check would."""

import numpy as np

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise what lies in memory from the next lower multiple of 16 bytes on."""
    base = x
    while base.base is not None and isinstance(base.base, np.ndarray):
        base = base.base
    memory = base.reshape(-1).view(np.uint8)
    start = x.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    start = start // 16 * 16
    if not x.flags.c_contiguous or memory.size < start + x.nbytes:
        return refnum.quantize_mxfp4(x, profile)
    return refnum.quantize_mxfp4(memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape), profile)


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
FINDING = "alignment-assumed"
