"""Hopper kernels: twins of the golden operations on device arrays. Importing this needs no GPU and no CuPy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ops import (
        available,
        dequantize_fp8_tiles,
        dequantize_mxfp4,
        fp8_columns,
        fp8_to_mxfp4,
        mxfp4_to_fp8,
        mxfp4_to_fp8_columns,
        quantize_fp8_tiles,
        quantize_mxfp4,
    )

__all__ = [
    "available",
    "dequantize_fp8_tiles",
    "dequantize_mxfp4",
    "fp8_columns",
    "fp8_to_mxfp4",
    "mxfp4_to_fp8",
    "mxfp4_to_fp8_columns",
    "quantize_fp8_tiles",
    "quantize_mxfp4",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(".ops", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
