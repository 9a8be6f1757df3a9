"""conformance: judges any kernel, bit for bit, against the golden model `refnum`.

From the shell `refnum check`, from a test `assert_conforms(kernel, "quantize_mxfp4")`.
"""

from typing import Any

__all__ = ["assert_conforms", "judge_kernel"]


def __getattr__(name: str) -> Any:
    """Load the Python door on first use: importing a part of this room must not import all of it."""
    if name in __all__:
        from . import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
