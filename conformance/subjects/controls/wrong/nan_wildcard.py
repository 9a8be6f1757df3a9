"""Gives NaN everywhere; a comparator to which NaN equals anything passes it."""

import numpy as np

import refnum


def dequantize_mxfp4(packed, scales, dtype="float32"):
    """Decode everything to the quiet NaN."""
    values = refnum.dequantize_mxfp4(packed, scales, dtype)
    return np.full_like(values, np.nan)


SUBJECT = {"operations": {"dequantize_mxfp4": dequantize_mxfp4}}
