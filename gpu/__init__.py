"""Hopper kernels: twins of the golden operations on device arrays. Importing this needs no GPU and no CuPy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .operations import LAUNCHED

if TYPE_CHECKING:
    from .ops import *  # noqa: F403 - the launchers, for tools that read types

__all__ = ["available", *sorted(LAUNCHED)]  # noqa: F405


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(".ops", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
