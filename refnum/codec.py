"""Codes to values and values to codes, generic over the format table (clauses N1 and N2)."""

from __future__ import annotations

import functools
from fractions import Fraction

import ml_dtypes
import numpy as np

from .arguments import require_integer
from .arrays import (
    Array,
    require_array,
    require_below,
    table_like,
)  # fmt: skip
from .errors import DtypeError, ProfileError
from .formats import FP32, Format, get_format, magnitude_value
from .profiles import Profile
from .rounding import require_rounding, round_magnitude, split_float32

INF32, NAN32 = 0x7F800000, 0x7FC00000


def code_dtype(fmt: Format) -> np.dtype:
    """Smallest unsigned dtype that holds one code of `fmt`: one element an array item, never packed."""
    return np.dtype(np.uint8 if fmt.bits <= 8 else np.uint16 if fmt.bits <= 16 else np.uint32)


def value(fmt: Format | str, code: int) -> Fraction | str:
    """Exact value of one code as a Fraction, or 'nan', '+inf', '-inf' (clause N1).

    code: an integer from 0 to 2**bits - 1. Raises ProfileError, ArgumentError.
    """
    fmt = get_format(fmt)
    code = require_integer("code", code, 0, (1 << fmt.bits) - 1)
    if fmt.kind == "integer":
        signed = code - (1 << fmt.bits) if code & fmt.sign_mask else code
        return Fraction(signed, 1 << fmt.fraction_bits)
    negative, magnitude = bool(code & fmt.sign_mask), code & ~fmt.sign_mask
    if magnitude <= fmt.max_code:
        finite = magnitude_value(fmt, magnitude)
        return -finite if negative else finite
    if magnitude == fmt.inf_code:
        return "-inf" if negative else "+inf"
    return "nan"


def to_float32_bits(exact: Fraction, negative: bool = False) -> int:
    """float32 bits of an exact value that float32 can hold; a magnitude of 2**128 or more gives Inf.

    `negative` gives the sign of a zero. Raises ProfileError when the value is no float32.
    """
    sign = 0x80000000 if exact < 0 or (exact == 0 and negative) else 0
    bits = _float32_magnitude(abs(exact.numerator), exact.denominator)
    if bits is None:
        raise ProfileError(f"{abs(exact)} is no float32 value; decode to a wider type")
    return sign | bits


def _float32_magnitude(numerator: int, denominator: int, shift: int = 0) -> int | None:
    """float32 bits of numerator / denominator * 2**shift, Inf from 2**128 on; None where float32 has no such value."""
    if denominator & denominator - 1:
        return None if numerator < denominator << max(0, 128 - shift) else INF32
    exponent = shift - denominator.bit_length() + 1  # the value is numerator * 2**exponent
    top = numerator.bit_length() + exponent
    if numerator == 0 or top > 128:
        return INF32 if numerator else 0
    last = max(top - 24, -149)
    cut = last - exponent
    if cut > 0 and numerator & (1 << cut) - 1:
        return None
    # the leading bit of a normal value adds one to its field
    return (last + 149 << 23) + (numerator >> cut if cut > 0 else numerator << -cut)


@functools.lru_cache(maxsize=8)
def _values(fmt: Format) -> tuple[Fraction | str, ...]:
    """Return the exact value of every code."""
    return tuple(value(fmt, code) for code in range(1 << fmt.bits))


@functools.cache
def decode_table(fmt: Format, shift: int = 0) -> np.ndarray:
    """float32 bits (u32) of `value * 2**shift` for every code of a format of at most 16 bits.

    Exact; 2**128 and more gives Inf, NaN the quiet NaN 0x7FC00000, a zero keeps its sign (clause N5).
    """
    bits = np.empty(1 << fmt.bits, np.uint32)
    for code, exact in enumerate(_values(fmt)):
        if isinstance(exact, str):
            bits[code] = {"nan": NAN32, "+inf": INF32, "-inf": INF32 | 1 << 31}[exact]
        else:
            negative = exact < 0 or (fmt.kind == "float" and bool(code & fmt.sign_mask))
            magnitude = _float32_magnitude(abs(exact.numerator), exact.denominator, shift)
            if magnitude is None:
                raise ProfileError(f"{exact} * 2**{shift} is no float32 value; decode to a wider type")
            bits[code] = magnitude | negative << 31
    bits.flags.writeable = False
    return bits


def decode(fmt: Format | str, codes: Array) -> Array:
    """Decode codes to float32, exact (clause N1).

    codes: unsigned integers below 2**bits, any shape. Returns float32 of the same shape; NaN is 0x7FC00000.
    Raises ProfileError, DtypeError for a signed or floating dtype, ArgumentError for a code out of range.
    """
    fmt = get_format(fmt)
    require_array("codes", codes)
    if codes.dtype.kind != "u":
        raise DtypeError(f"codes has dtype {codes.dtype}; allowed are unsigned integers holding {fmt.name} codes")
    require_below("codes", codes, fmt.bits, f"{fmt.name} codes")
    if fmt is FP32:
        bits = codes.astype(np.uint32)
        return np.where((bits & np.uint32(0x7FFFFFFF)) > np.uint32(INF32), np.uint32(NAN32), bits).view(np.float32)
    # of an index without axes NumPy makes a number, and `...` makes an array of it
    return np.take(table_like(decode_table, codes, fmt), codes)[...].view(np.float32)


def encode_bits(
    fmt: Format, bits: Array, scale_exponent: Array | int, profile: Profile, *, rbits: Array | None = None,
    finite: bool = False,
) -> Array:  # fmt: skip
    """Encode float32 bits (u32) divided by 2**scale_exponent, see `refnum.encode`: the definition (clause N2).

    `finite=True` promises that no element is NaN or Inf.
    """
    magnitude = bits & np.uint32(0x7FFFFFFF)
    negative = bits != magnitude
    exponent, significand = split_float32(magnitude)
    exponent -= scale_exponent if isinstance(scale_exponent, int) else scale_exponent.astype(np.int32, copy=False)
    if not finite:  # Inf overflows and a zero stays one at any scale
        exponent = np.where(magnitude == np.uint32(INF32), np.int32(1024), exponent)
        exponent = np.where(magnitude == np.uint32(0), np.int32(-1024), exponent)
    code = _round(fmt, exponent, significand, profile, negative, rbits)
    if not finite:
        nan = fmt.max_code if fmt.nan_code is None else fmt.nan_code
        code = np.where(magnitude > np.uint32(INF32), code.dtype.type(nan), code)
    return apply_sign(fmt, code, negative, profile, nan=None if finite else magnitude > np.uint32(INF32))


def _round(
    fmt: Format, exponent: Array, significand: Array, profile: Profile, negative: Array, rbits: Array | None
) -> Array:
    if fmt.radix == 4:
        require_rounding(fmt, profile, None if rbits is None else "rbits")
        return _round_radix4(fmt, exponent, significand)
    return round_magnitude(fmt, exponent, significand, profile, negative=negative, rbits=rbits)


def _round_radix4(fmt: Format, exponent: Array, significand: Array) -> Array:
    """Radix-4 FP4: count the midpoints passed; between 4**n and 4**(n+1) the midpoint is 2.5 * 4**n."""
    code = np.zeros_like(significand)
    for upper in range(1, fmt.max_code + 1):
        middle = (magnitude_value(fmt, upper - 1) + magnitude_value(fmt, upper)) / 2
        bits = to_float32_bits(middle)
        field = bits >> 23
        at, fraction = np.int32(field - 127), np.uint32(bits - (field - 1 << 23))
        passed = (exponent > at) | ((exponent == at) & (significand > fraction))
        if upper % 2 == 0:
            passed |= (exponent == at) & (significand == fraction)
        code += passed.astype(code.dtype)
    return code


def apply_sign(fmt: Format, code: Array, negative: Array, profile: Profile, nan: Array | None = None) -> Array:
    """Put the sign on magnitude codes and narrow them to `code_dtype(fmt)`; elements in `nan` stay positive."""
    narrow = code_dtype(fmt).type
    code = code.astype(code_dtype(fmt))
    if nan is not None:
        negative = negative & ~nan
    if profile.negative_zero == "drop":
        negative = negative & (code != narrow(0))
    if fmt.kind == "integer":
        mask = narrow((1 << fmt.bits) - 1)
        return np.where(negative, (~code + narrow(1)) & mask, code)
    return code | (negative.astype(code.dtype) << narrow(fmt.bits - 1))


def ml_dtype(fmt: Format | str) -> np.dtype | None:
    """The ml_dtypes or NumPy dtype of one-element-an-item codes of `fmt`, or None where there is none."""
    names = {
        "E2M1": "float4_e2m1fn", "E2M3": "float6_e2m3fn", "E3M2": "float6_e3m2fn", "E4M3": "float8_e4m3fn",
        "E5M2": "float8_e5m2", "E8M0": "float8_e8m0fnu", "BF16": "bfloat16", "INT4": "int4",
    }  # fmt: skip
    fmt = get_format(fmt)
    if fmt.name in ("FP16", "FP32"):
        return np.dtype(np.float16 if fmt.name == "FP16" else np.float32)
    return np.dtype(getattr(ml_dtypes, names[fmt.name])) if fmt.name in names else None
