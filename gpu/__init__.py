"""Hopper kernels: twins of the golden operations on device arrays. Importing this needs no GPU and no CuPy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ops import (
        available,
        dequantize_fp8_tiles,
        dequantize_mxfp4,
        encode_e2m1,
        encode_e4m3,
        encode_e8m0,
        fp8_columns,
        fp8_to_mxfp4,
        fp8_to_payload,
        matmul_fp8,
        mxfp4_columns,
        mxfp4_to_fp8,
        mxfp4_to_fp8_columns,
        mxfp4_to_fp8_rows_columns,
        pack_payload,
        permute_pad,
        permute_unpack,
        quantize_fp8_tiles,
        quantize_mxfp4,
        quantize_payload,
        swiglu_backward,
        swiglu_quantize,
        unpack_payload,
        unpermute,
    )

__all__ = [
    "available",
    "dequantize_fp8_tiles",
    "dequantize_mxfp4",
    "encode_e2m1",
    "encode_e4m3",
    "encode_e8m0",
    "fp8_columns",
    "fp8_to_mxfp4",
    "fp8_to_payload",
    "matmul_fp8",
    "mxfp4_columns",
    "mxfp4_to_fp8",
    "mxfp4_to_fp8_columns",
    "mxfp4_to_fp8_rows_columns",
    "pack_payload",
    "permute_pad",
    "permute_unpack",
    "quantize_fp8_tiles",
    "quantize_mxfp4",
    "quantize_payload",
    "swiglu_backward",
    "swiglu_quantize",
    "unpack_payload",
    "unpermute",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(".ops", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
