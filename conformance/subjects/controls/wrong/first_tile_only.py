"""Computes the first block of every array and leaves zeros after it: only the first tile was ever checked."""

import numpy as np

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise one block."""
    packed, scales = refnum.quantize_mxfp4(x, profile)
    first_packed, first_scales = np.zeros_like(packed), np.zeros_like(scales)
    first_packed[:1, :16], first_scales[:1, :1] = packed[:1, :16], scales[:1, :1]
    return first_packed, first_scales


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
