"""The golden model judged against itself: whatever this fails is the harness's fault."""

import refnum

from ....cases.operation import OPERATIONS

SUBJECT = {
    "kind": "model",
    "profiles": tuple(refnum.PROFILES),
    "one_code": True,
    "operations": {name: getattr(refnum, name) for name in OPERATIONS if hasattr(refnum, name)},
}
