"""ml_dtypes: NumPy's small floating-point types. It has casts and no blocks."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from .difference import NANS, NEGATIVE_NAN, Difference

NAME = "ml_dtypes"
_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


_NEAREST = {"rounding": "nearest", "saturate": False}

DIFFERENCES = (
    Difference(NAME, "encode_e2m1", "e2m1-nan-is-zero",
               "NaN becomes a zero of the opposite sign; in PTX and the model 6", "N2",  NANS, 0x7F800001, 7, 8),
    Difference(NAME, "encode_e4m3", "e4m3-nan-sign", "a NaN keeps its sign: 0xFF; the model gives the canonical 0x7F",
               "N2",  (NEGATIVE_NAN,), 0xFF800001, 0x7F, 0xFF, params={"overflow": "nan"}),
    Difference(NAME, "encode_e8m0", "e8m0-zero-is-nan", "zero has no E8M0 code: NaN; the model gives 2^-127", "N1",
                ((0x00000000, 0x00000000),), 0x00000000, 0, 255, params=_NEAREST),
    Difference(NAME, "encode_e8m0", "e8m0-nearest-bottom-binade", "rounded by the mantissa's top bit, as if normal: "
               "subnormals between 2^-127 and their midpoint 1.5*2^-127 go up", "N1", 
               ((0x00400001, 0x005FFFFF),), 0x00400001, 0, 1, params=_NEAREST),
    Difference(NAME, "encode_e8m0", "e8m0-negative-is-nan", "a negative number is NaN; the model takes |x|", "N1",
                ((0x80000000, 0xFF3FFFFF),), 0x80000000, 0, 255, params=_NEAREST),
    Difference(NAME, "decode_e4m3", "e4m3-nan-sign", "0xFF decodes to a negative NaN; the model gives 0x7FC00000", "N1",
                ((0xFF, 0xFF),), 0xFF, 0x7FC00000, 0xFFC00000, of="codes"),
)  # fmt: skip
"""Found in 0.6.0; each checked against every bfloat16, every float16 and the float32 survey."""


def encode_e2m1(x: np.ndarray) -> np.ndarray:
    """astype(float4_e2m1fn): nearest even, saturating; one code a byte."""
    return _cast(x, ml_dtypes.float4_e2m1fn)


def encode_e4m3(x: np.ndarray, overflow: str = "nan") -> np.ndarray:
    """astype(float8_e4m3fn): nearest even; what rounds beyond 448 is NaN."""
    return _cast(x, ml_dtypes.float8_e4m3fn)


def encode_e8m0(x: np.ndarray, rounding: str = "nearest", saturate: bool = False) -> np.ndarray:
    """astype(float8_e8m0fnu): nearest, midpoint up; overflow and Inf are NaN."""
    return _cast(x, ml_dtypes.float8_e8m0fnu)


def decode_e2m1(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """float4_e2m1fn to float32 or bfloat16."""
    return codes.view(ml_dtypes.float4_e2m1fn).astype(_DTYPES[dtype])


def decode_e4m3(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """float8_e4m3fn to float32 or bfloat16."""
    return codes.view(ml_dtypes.float8_e4m3fn).astype(_DTYPES[dtype])


def decode_e8m0(codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """float8_e8m0fnu to float32 or bfloat16."""
    return codes.view(ml_dtypes.float8_e8m0fnu).astype(_DTYPES[dtype])


def _cast(x: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # NaN raises NumPy's warning, not an error
        return x.astype(dtype).view(np.uint8)


def _supports(operation: str, profile: str, params: Mapping[str, Any]) -> str:
    if operation == "encode_e4m3" and params.get("overflow") != "nan":
        return "ml_dtypes' float8_e4m3fn does not saturate; only overflow=nan is its own policy"
    if operation == "encode_e8m0" and (params.get("rounding") != "nearest" or params.get("saturate")):
        return "ml_dtypes' float8_e8m0fnu rounds to nearest and does not saturate"
    return ""


def subjects() -> list[dict[str, Any]]:
    """Return the subject of this peer."""
    operations = (encode_e2m1, encode_e4m3, encode_e8m0, decode_e2m1, decode_e4m3, decode_e8m0)
    return [{
        "name": NAME, "kind": "peer", "operations": {operation.__name__: operation for operation in operations},
        "supports": _supports, "describe": lambda: {"ml_dtypes": importlib.metadata.version("ml_dtypes")},
    }]  # fmt: skip
