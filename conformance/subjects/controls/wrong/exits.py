"""Ends its process on every call, as `sys.exit` does; the run must go on and call it a fault."""

import sys


def fp8_to_mxfp4(codes, scales, profile=None):
    """Exit with the status of success."""
    sys.exit(0)


SUBJECT = {"operations": {"fp8_to_mxfp4": fp8_to_mxfp4}}
OUTCOME = "fault"
