"""The golden model judged against itself: whatever this fails is the harness's fault."""

import refnum
from conformance import golden
from conformance.operation import OPERATIONS

SUBJECT = {
    "kind": "model",
    "profiles": tuple(refnum.PROFILES),
    "operations": {
        name: getattr(golden, name, None) or getattr(refnum, name)
        for name in OPERATIONS
        if hasattr(golden, name) or hasattr(refnum, name)
    },
}
