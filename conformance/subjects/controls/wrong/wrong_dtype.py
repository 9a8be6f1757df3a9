"""Right numbers in a wider dtype."""

import numpy as np

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise to int32."""
    packed, scales = refnum.quantize_mxfp4(x, profile)
    return packed.astype(np.int32), scales


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
OUTCOME = "malformed"
FINDING = "wrong-shape-or-dtype"
