"""The host build's scalar conversions: the kernels' functions for elements, as twins of the golden casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from refnum.errors import ArgumentError, DtypeError
from refnum.profiles import get_profile

from .. import checks
from ..checks import KINDS
from ..interface import casts
from ..interface.call import U8
from ..interface.casts import Encoded
from .call import Array, HostCall, twin

__all__ = ["decode_e2m1", "decode_e4m3", "decode_e8m0", "encode_e2m1", "encode_e4m3", "encode_e8m0"]


@twin(casts.encode_e2m1)
def _encode_e2m1(call: HostCall, given: Encoded[Array]) -> None:
    """Encode to nearest."""
    _encode(call, given.x, given.byte)


@twin(casts.encode_e4m3)
def encode_e4m3(call: HostCall, given: Encoded[Array]) -> None:
    """Encode to nearest."""
    _encode(call, given.x, given.option)


@twin(casts.encode_e8m0)
def encode_e8m0(call: HostCall, given: Encoded[Array]) -> None:
    """Encode by the chosen rounding."""
    _encode(call, given.x, given.rounding, given.option)


def _encode(call: HostCall, x: Array, *options: int) -> None:
    call.run(call.operation, KINDS[x.dtype], x, *options, call.arrays[0], x.size)


def encode_e2m1(x: Array, *, scale_byte: int = 127, rbits: Array | None = None, out: Array | None = None) -> Array:
    """Return E2M1 codes of x / 2**(scale_byte - 127), one a byte (N2).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) of any shape.
        scale_byte: the E8M0 byte of the scale; under byte 255 every code is 0 (N4), which has no stochastic rounding.
        rbits: unsigned integers below 256 of x's shape, which round stochastically (N13); None rounds to nearest.
        out: the array to write.

    Returns:
        Codes u8 of x's shape; NaN gives 7, overflow 6 with its sign.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    if rbits is None:
        return np.asarray(_encode_e2m1(x, scale_byte=scale_byte, out=out))
    checks.choice("scale_byte", scale_byte, range(255))
    call = HostCall("encode_e2m1")
    given = casts.encode_e2m1(call, x, scale_byte=scale_byte, out=out)
    checks.randomness(rbits, None, get_profile("STOCHASTIC"))
    random = np.ascontiguousarray(call.random_bits(rbits, given.x), dtype=U8)
    call.run("encode_e2m1_stochastic", KINDS[x.dtype], x, random, given.byte, call.arrays[0], x.size)
    return np.asarray(call.finish())


def decode_e4m3(codes: Array, dtype: Any = "float32") -> Array:
    """Return the values of E4M3 codes u8 of any shape as float32 or bfloat16, exact (N1); NaN is the quiet NaN."""
    return _decode("decode_e4m3", codes, dtype)


def decode_e2m1(codes: Array, dtype: Any = "float32") -> Array:
    """Return the values of E2M1 codes u8 below 16, one a byte, of any shape as float32 or bfloat16, exact (N1)."""
    return _decode("decode_e2m1", codes, dtype, 15)


def decode_e8m0(codes: Array, dtype: Any = "float32") -> Array:
    """Return the values of E8M0 bytes u8 of any shape as float32 or bfloat16, exact (N0); 255 is the quiet NaN."""
    return _decode("decode_e8m0", codes, dtype)


def _decode(name: str, codes: Array, dtype: Any, most: int = 255) -> Array:
    call = HostCall(name)
    view = call.look("codes", codes)
    if view.dtype != U8:
        raise DtypeError(f"codes has dtype {view.dtype}; allowed is uint8")
    if most < 255 and view.size and int(view.max()) > most:
        raise ArgumentError(f"codes holds {int(view.max())}; allowed are 0..{most}, one code a byte: unpack first")
    kind, made = checks.output_dtype(dtype)
    call.outputs(None, [(view.shape, made)], [view])
    call.run(name, view, kind, call.arrays[0], view.size)
    return np.asarray(call.finish())
