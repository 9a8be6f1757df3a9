"""Right but for the sign of zero."""

import numpy as np

import refnum


def quantize_fp8_tiles(x, tile=(1, 128), profile=refnum.HOPPER):
    """Quantise; negative zeros come out positive."""
    codes, scales = refnum.quantize_fp8_tiles(x, tile, profile)
    return np.where(codes == 0x80, np.uint8(0), codes), scales


SUBJECT = {"operations": {"quantize_fp8_tiles": quantize_fp8_tiles}}
