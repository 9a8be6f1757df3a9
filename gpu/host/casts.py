"""The host build's scalar conversions: the kernels' functions for elements, as twins of the golden casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.errors import ArgumentError, DtypeError
from refnum.profiles import get_profile

from .. import checks
from .build import address, library

__all__ = ["decode_e2m1", "decode_e4m3", "decode_e8m0", "encode_e2m1", "encode_e4m3", "encode_e8m0"]

Array = np.ndarray[Any, Any]


def encode_e4m3(x: Array, overflow: str = "saturate") -> Array:
    """E4M3 codes u8 of x (N2); x: float32, bfloat16 or float16 of any shape.

    NaN gives 0x7F; what passes 448 gives 448 (`saturate`) or NaN (`nan`), each with its sign.
    """
    return _encode("encode_e4m3", x, checks.choice("overflow", overflow, ("saturate", "nan")))


def encode_e2m1(x: Array, *, scale_byte: int = 127, rbits: Array | None = None) -> Array:
    """E2M1 codes u8, one a byte, of x / 2**(scale_byte - 127) (N2); NaN gives 7, overflow 6 with its sign.

    x: float32, bfloat16 or float16 of any shape. rbits: uint8 of x's shape rounds stochastically with these eight
    bits an element (N13). Under byte 255 every code is 0 (N4).
    """
    if rbits is None:
        return _encode("encode_e2m1", x, checks.choice("scale_byte", scale_byte, range(256)))
    byte, source = checks.choice("scale_byte", scale_byte, range(255)), _floats(x)
    random = checks.random_bits(rbits, x, get_profile("STOCHASTIC"))
    assert random is not None
    codes = np.empty(x.shape, np.uint8)
    library().refnum_encode_e2m1_stochastic(
        checks.KINDS[x.dtype], address(source), address(random), byte, address(codes), codes.size
    )
    return codes


def encode_e8m0(x: Array, rounding: str = "up", saturate: bool = False) -> Array:
    """E8M0 bytes u8 of |x| (N1); x: float32, bfloat16 or float16 of any shape.

    rounding: `up` | `down` | `nearest` (1.5 * 2**k goes up). Above 2**127 and Inf: 254 when saturating, else 255;
    NaN: 255; zero: 0.
    """
    mode = checks.choice("rounding", rounding, ("up", "down", "nearest"))
    if not isinstance(saturate, bool | np.bool_):
        raise ArgumentError(f"saturate={saturate!r}; allowed are True and False")
    return _encode("encode_e8m0", x, mode, int(saturate))


def decode_e4m3(codes: Array, dtype: Any = "float32") -> Array:
    """Values of E4M3 codes u8 of any shape as float32 or bfloat16, exact (N1); NaN is the quiet NaN."""
    return _decode("decode_e4m3", codes, dtype)


def decode_e2m1(codes: Array, dtype: Any = "float32") -> Array:
    """Values of E2M1 codes u8 below 16, one a byte, of any shape as float32 or bfloat16, exact (N1)."""
    return _decode("decode_e2m1", codes, dtype, 15)


def decode_e8m0(codes: Array, dtype: Any = "float32") -> Array:
    """Values of E8M0 bytes u8 of any shape as float32 or bfloat16, exact (N0); 255 is the quiet NaN."""
    return _decode("decode_e8m0", codes, dtype)


def _floats(x: Array) -> Array:
    if not checks.plain(x) or x.dtype not in checks.KINDS:
        raise DtypeError(
            f"x has dtype {checks.called(x)}; allowed are float32, bfloat16, float16 and uint16 (bfloat16 bits)"
        )
    return np.ascontiguousarray(x)


def _encode(name: str, x: Array, *options: int) -> Array:
    source, codes = _floats(x), np.empty(np.shape(x), np.uint8)
    getattr(library(), f"refnum_{name}")(checks.KINDS[x.dtype], address(source), *options, address(codes), codes.size)
    return codes


def _decode(name: str, codes: Array, dtype: Any, most: int = 255) -> Array:
    if not checks.plain(codes) or codes.dtype != np.uint8:
        raise DtypeError(f"codes is {checks.called(codes)}; allowed is a uint8 array")
    if most < 255 and codes.size and int(codes.max()) > most:
        raise ArgumentError(f"codes holds {int(codes.max())}; allowed are 0..{most}, one code a byte: unpack first")
    kind, numpy_dtype = checks.output_dtype(dtype)
    source, values = np.ascontiguousarray(codes), np.empty(codes.shape, numpy_dtype)
    getattr(library(), f"refnum_{name}")(address(source), kind, address(values), values.size)
    return values
