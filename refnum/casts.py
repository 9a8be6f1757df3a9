"""Scalar casts: float arrays to element codes and scale bytes, and back, elementwise (clauses N1 and N2)."""

from __future__ import annotations

import numpy as np

from .arguments import require_choice, require_flag, require_integer
from .arrays import BFLOAT16, Array, float32_bits, output_dtype, require_float_dtype
from .codec import decode
from .narrow import encode
from .profiles import HOPPER
from .rounding import split_float32
from .scales import INF32


def encode_e2m1(x: Array, scale_byte: int = 127) -> Array:
    """Round each element over the scale to an E2M1 code (N2): nearest, ties to even, saturating, -0 kept; NaN gives 7.

    x: float32, bfloat16, float16 or uint16 (bfloat16 bits), any shape. scale_byte: E8M0 byte of the scale, 0 to 255;
    under byte 255 every code is 0 (N4). Returns u8 of the same shape. Raises DtypeError, ArgumentError.
    """
    byte = require_integer("scale_byte", scale_byte, 0, 255)
    codes = encode("E2M1", x, byte - 127)
    return codes if byte < 255 else np.zeros_like(codes)


def encode_e4m3(x: Array, overflow: str = "saturate") -> Array:
    """Round each element to an E4M3 code (N2), nearest, ties to even, -0 kept.

    x: as of `encode_e2m1`. overflow: `saturate` gives 448 of the sign, `nan` 0x7F of the sign.
    Returns u8 of the same shape. Raises DtypeError, ArgumentError.
    """
    require_choice("overflow", overflow, ("saturate", "nan"))
    return encode("E4M3", x, profile=HOPPER.replace(name=f"HOPPER/{overflow}", overflow=overflow))


def encode_e8m0(x: Array, rounding: str = "up", saturate: bool = False) -> Array:
    """float32 -> E8M0 byte of |x|, the scalar conversion (CUDA's `__nv_cvt_float_to_e8m0`).

    x: float32, bfloat16, float16 or uint16 (bfloat16 bits), any shape. rounding: `up` | `down` | `nearest`
    (the true midpoint 1.5 * 2**k goes up). 2**127 overflowed: 254 when saturating, else 255; Inf likewise;
    NaN 255; zero and what rounds below 2**-127 give 0. Returns u8 of the same shape.
    Raises DtypeError, ArgumentError.
    """
    require_float_dtype("x", x)
    require_choice("rounding", rounding, ("up", "down", "nearest"))
    saturate = require_flag("saturate", saturate)
    magnitude = float32_bits(x) & np.uint32(0x7FFFFFFF)
    exponent, significand = split_float32(magnitude)
    fraction = significand & np.uint32(0x7FFFFF)
    if rounding == "up":
        exponent = exponent + (fraction != np.uint32(0)).astype(np.int32)
    elif rounding == "nearest":
        exponent = exponent + (fraction >= np.uint32(0x400000)).astype(np.int32)
    top = np.int32(254) if saturate else np.int32(255)
    byte = np.minimum(np.maximum(exponent + np.int32(127), np.int32(0)), top)
    return np.where(magnitude > INF32, np.int32(255), byte).astype(np.uint8)


def decode_e2m1(codes: Array, dtype: str = "float32") -> Array:
    """Decode E2M1 codes, one a byte, exact (N1).

    codes: unsigned integers below 16, any shape. dtype: "float32" or "bfloat16", that of the result.
    Raises DtypeError, ArgumentError.
    """
    return _as(decode("E2M1", codes), dtype)


def decode_e4m3(codes: Array, dtype: str = "float32") -> Array:
    """Decode E4M3 codes below 256, exact (N1); NaN gives the quiet NaN. Raises DtypeError, ArgumentError."""
    return _as(decode("E4M3", codes), dtype)


def decode_e8m0(codes: Array, dtype: str = "float32") -> Array:
    """Decode E8M0 bytes, exact (N0): byte 0 is 2^-127, 255 the quiet NaN. Raises DtypeError, ArgumentError."""
    return _as(decode("E8M0", codes), dtype)


def _as(values: Array, dtype: str) -> Array:
    """Cut float32 to bfloat16: exact for every value of these formats, so the low half is zero."""
    if output_dtype(dtype) == "float32":
        return values
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(BFLOAT16)
