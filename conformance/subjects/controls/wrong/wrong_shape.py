"""Right bytes, flat."""

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise to one axis."""
    packed, scales = refnum.quantize_mxfp4(x, profile)
    return packed.reshape(-1), scales


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
OUTCOME = "malformed"
FINDING = "wrong-shape-or-dtype"
