"""Scalar conversions of floats to codes, one a byte (clauses N1 and N2)."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from refnum.errors import ArgumentError, DtypeError

from .. import checks
from ..checks import KINDS
from .call import FLOATS, U8, A, Call


class Encoded(NamedTuple, Generic[A]):
    """The checked arguments: the floats; the scale's byte; the number of the rounding; how overflow is treated."""

    x: A
    byte: int = 127
    rounding: int = 0
    option: int = 0


def encode_e2m1(call: Call[A], x: Any, *, scale_byte: int = 127, out: Any = None) -> Encoded[A]:
    """Return E2M1 codes of x / 2**(scale_byte - 127), one a byte (N2).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) of any shape, contiguous on a device.
        scale_byte: the E8M0 byte of the scale; under byte 255 every code is 0 (N4).
        out: the array to write.

    Returns:
        Codes u8 of x's shape; NaN gives 7, overflow 6 with its sign.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    byte = checks.choice("scale_byte", scale_byte, range(256))
    return Encoded(_floats(call, x, out), byte=byte)


def encode_e4m3(call: Call[A], x: Any, overflow: str = "saturate", *, out: Any = None) -> Encoded[A]:
    """Return E4M3 codes of x (N2).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) of any shape, contiguous on a device.
        overflow: `saturate`, magnitudes above 448 give 448, or `nan`, they give NaN; both keep the sign.
        out: the array to write.

    Returns:
        Codes u8 of x's shape; NaN gives 0x7F.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    option = checks.choice("overflow", overflow, ("saturate", "nan"))
    return Encoded(_floats(call, x, out), option=option)


def encode_e8m0(call: Call[A], x: Any, rounding: str = "up", saturate: bool = False, *, out: Any = None) -> Encoded[A]:
    """Return E8M0 bytes of |x| (N1).

    Args:
        x: float32, bfloat16, float16 or uint16 (bfloat16 bits) of any shape, contiguous on a device.
        rounding: `up`, `down` or `nearest`; 1.5 * 2**k is rounded up by `nearest`.
        saturate: whether magnitudes above 2**127, Inf too, give 254, else 255.
        out: the array to write.

    Returns:
        Bytes u8 of x's shape; NaN gives 255, zero 0.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    if not isinstance(saturate, checks.BOOLS):
        raise ArgumentError(f"saturate={saturate!r}; allowed are True and False")
    mode = checks.choice("rounding", rounding, ("up", "down", "nearest"))
    return Encoded(_floats(call, x, out), rounding=mode, option=int(saturate))


def _floats(call: Call[A], x: Any, out: Any) -> A:
    """Return the floats, of any shape, with an output of codes provided."""
    view = call.look("x", x)
    if view.dtype not in KINDS:
        raise DtypeError(f"x has dtype {view.dtype}; allowed are {FLOATS}")
    call.check_elements(view)
    call.outputs(out, [(view.shape, U8)], [view])
    return view
