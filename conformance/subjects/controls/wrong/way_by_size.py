"""Takes another way for large data, which forgets the last row; no case is large enough to take it by itself."""

import contextlib

import refnum

LARGE = 1 << 40
_bound = [LARGE]


def quantize_mxfp4(x, profile=refnum.HOPPER):
    """Quantise; from `_bound` bytes on by the other way."""
    packed, scales = refnum.quantize_mxfp4(x, profile)
    if x.nbytes >= _bound[0]:
        packed[-1:] = 0
        scales[-1:] = 0
    return packed, scales


@contextlib.contextmanager
def always():
    """Within, every size takes the other way."""
    _bound[0] = 0
    try:
        yield
    finally:
        _bound[0] = LARGE


SUBJECT = {
    "operations": {"quantize_mxfp4": quantize_mxfp4},
    "forced_paths": {"quantize_mxfp4": {"the large one": always}},
}
FINDING = "way-by-size"
