"""Forgets the scales."""

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise to codes only."""
    return refnum.quantize_mxfp4(x, profile)[0]


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
OUTCOME = "malformed"
FINDING = "wrong-shape-or-dtype"
