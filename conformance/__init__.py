"""conformance: judges any kernel, bit for bit, against the golden model `refnum`.

From the shell `refnum check`, from a test `assert_conforms(kernel, "quantize_mxfp4")`; `@implements("quantize_mxfp4")`
declares a function as one to be judged.
"""

import importlib
from typing import Any

__all__ = ["assert_conforms", "implements", "judge_kernel"]


def __getattr__(name: str) -> Any:
    """Load the Python door on first use: importing a part of this room must not import all of it."""
    if name in __all__:
        module = ".doors.declare" if name == "implements" else ".api"
        return getattr(importlib.import_module(module, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
