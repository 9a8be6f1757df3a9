"""conformance: judges any kernel, bit for bit, against the golden model `refnum`.

From the shell `refnum check`, from a test `assert_conforms(kernel, "quantize_mxfp4")`; `@implements("quantize_mxfp4")`
declares a function as one to be judged.
"""

import importlib
from typing import Any

from refnum import errors

_PLACES = {
    "as_text": ".api",
    "assert_conforms": ".api",
    "implements": ".subjects.loading.declare",
    "judge_kernel": ".api",
    "summary": ".api",
    "verified": ".api",
}
"""Name -> the module that it is imported from when it is first used."""

__all__ = [*_PLACES, "errors"]


def __getattr__(name: str) -> Any:
    """Import a part of the Python interface when it is first used: a part of this package must not import all of it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name], __name__), name)
