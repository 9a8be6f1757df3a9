"""Gives the right answer and clears a bit of its input on the way."""

import refnum


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise, then write to the input."""
    result = refnum.quantize_mxfp4(x, profile)
    if x.size:
        x.view(f"u{x.itemsize}").reshape(-1)[-1] ^= 1
    return result


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
FINDING = "input-mutated"
