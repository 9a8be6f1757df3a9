"""Says that it is not supported, every time: that is neither a pass nor a mismatch."""

from refnum.errors import UnsupportedError


def quantize_mxfp4(x, profile=None):
    """Refuse."""
    raise UnsupportedError("no kernel for this device")


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
OUTCOME = "unsupported"
