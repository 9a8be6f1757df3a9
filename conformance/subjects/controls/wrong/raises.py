"""Raises on every call; the run must go on and call it a fault."""


def quantize_mxfp4(x, profile=None):
    """Fail."""
    raise RuntimeError("an illegal memory access was encountered")


SUBJECT = {"operations": {"quantize_mxfp4": quantize_mxfp4}}
OUTCOME = "fault"
