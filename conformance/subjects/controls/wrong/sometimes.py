"""Wrong in every third call: a race. It must not be called a pass."""

import itertools

import refnum

_CALLS = itertools.count()


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise, now and then with a bit flipped."""
    packed, scales = refnum.quantize_mxfp4(x, profile)
    if next(_CALLS) % 3 == 2 and packed.size:
        packed[0, 0] ^= 1
    return packed, scales


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
OUTCOME = "flaky"
FINDING = "not-deterministic"
