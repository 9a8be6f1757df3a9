"""Wrong in the last element of the last row only, by one mantissa bit."""

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise, then flip the lowest bit of the last code."""
    packed, scales = refnum.quantize_mxfp4(x, profile)
    if packed.size:
        packed[-1, -1] ^= 0x10
    return packed, scales


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
