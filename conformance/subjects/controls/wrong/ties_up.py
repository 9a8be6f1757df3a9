"""Ties go up, not to even."""

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise with ties up."""
    return refnum.quantize_mxfp4(x, profile.replace(name="wrong", ties="up"))


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
