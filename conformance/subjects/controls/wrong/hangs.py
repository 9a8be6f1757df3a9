"""Does not come back in time."""

import time


def pack_payload(packed, scales):
    """Wait for longer than a control may."""
    time.sleep(60)


SUBJECT = {"operations": {"pack_payload": pack_payload}}
OUTCOME = "timeout"
