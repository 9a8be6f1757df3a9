"""The scale follows the floor rule where rceil is asked for."""

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise with the floor rule."""
    return refnum.quantize_mxfp4(x, profile.replace(name="wrong", scale_rule="floor"))


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}, "profiles": ("HOPPER",)}
