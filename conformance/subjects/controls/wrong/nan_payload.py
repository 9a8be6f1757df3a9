"""Right but for the sign of NaN: 0xFFC00000 where 0x7FC00000 belongs. Equal as values, not as bytes."""

import numpy as np

import refnum


def dequantize_mxfp4(packed, scales, dtype="float32"):
    """Decode, with every NaN negative."""
    values = refnum.dequantize_mxfp4(packed, scales, dtype)
    bits = values.view(f"u{values.itemsize}")
    sign = bits.dtype.type(1 << (8 * values.itemsize - 1))
    return np.where(np.isnan(values), bits | sign, bits).view(values.dtype)


SUBJECT = {"operations": {"dequantize_mxfp4": dequantize_mxfp4}}
