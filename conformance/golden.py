"""Golden calls that are not a function of `refnum` by the operation's own name: the scalar casts.

Each name here is an operation of `operation.OPERATIONS`; each is one line over the codec, so that peers that
have a cast but no block quantiser can be judged on it.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from refnum.codec import decode
from refnum.narrow import encode
from refnum.profiles import HOPPER
from refnum.scales import encode_e8m0

__all__ = ["decode_e2m1", "decode_e4m3", "decode_e8m0", "encode_e2m1", "encode_e4m3", "encode_e8m0"]


def encode_e2m1(x: Any, scale_byte: int = 127) -> Any:
    """Round each element over the scale to an E2M1 code (N2): nearest, ties to even, saturating, -0 kept; NaN gives 7.

    scale_byte: E8M0 byte of the scale, 1 unless given; under byte 255 every code is 0 (N4).
    """
    if scale_byte == 255:
        return np.zeros(x.shape, np.uint8, like=x)
    return encode("E2M1", x, scale_byte - 127)


def encode_e4m3(x: Any, overflow: str = "saturate") -> Any:
    """Round each element to an E4M3 code (N2); `overflow` is `saturate` (448) or `nan` (0x7F with the sign)."""
    return encode("E4M3", x, profile=HOPPER.replace(name=f"HOPPER/{overflow}", overflow=overflow))


def decode_e2m1(codes: Any, dtype: str = "float32") -> Any:
    """Decode one-a-byte E2M1 codes, exact (N1)."""
    return _as(decode("E2M1", codes), dtype)


def decode_e4m3(codes: Any, dtype: str = "float32") -> Any:
    """Decode E4M3 codes, exact (N1); NaN is the quiet NaN."""
    return _as(decode("E4M3", codes), dtype)


def decode_e8m0(codes: Any, dtype: str = "float32") -> Any:
    """Decode E8M0 bytes, exact (N0): byte 0 is 2^-127, 255 the quiet NaN."""
    return _as(decode("E8M0", codes), dtype)


def _as(values: Any, dtype: str) -> Any:
    """Cut float32 to bfloat16: exact for every value of these formats, so the low half is zero."""
    if dtype == "float32":
        return values
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(ml_dtypes.bfloat16)
