"""`encode`, and its quick way through sixteen bits: round to odd, then one table entry (clause N2).

A float32 cut to its upper 16 bits, the last of them set when a discarded bit was (rounding to odd), keeps value, half
and sticky of every rounding to at most five mantissa bits. Dividing by 2**k subtracts k from the exponent field. So
the code of x / 2**k is an entry of a table that `encode_bits` itself fills, for all 65,536 patterns of 16 bits.
What does not fit (NaN, Inf, scales near either end, random bits, longer formats) goes to `encode_bits` as it is.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .arguments import require_integer
from .arrays import (
    CHUNK,
    Array,
    chunks,
    contiguous,
    empty,
    float32_bits,
    is_host,
    require_array,
    require_float_dtype,
    require_random,
    table_like,
)  # fmt: skip
from .codec import code_dtype, encode_bits
from .errors import ArgumentError, DtypeError, ShapeError
from .formats import Format, get_format
from .profiles import HOPPER, Profile, get_profile

LOW_BYTE, HIGH_BYTE = 32, 240
"""Scale bytes between which the exponent field of a quotient neither ends above 143 nor turns zeros into numbers."""
MOST_EXPONENT = 1024
"""Largest magnitude of `scale_exponent`: far beyond what still leaves a finite quotient, far within 32 bits."""
_OFFSET = (HIGH_BYTE - 127) << 7
assert (127 + 16 << 7) + _OFFSET == 1 << 15  # quotients below 2**16 and the sign: 65,536 entries in all


def encode(
    fmt: Format | str,
    x: Array,
    scale_exponent: Array | int = 0,
    profile: Profile | str = HOPPER,
    *,
    rbits: Array | None = None,
) -> Array:
    """Encode x / 2**scale_exponent, the quotient exact, as codes of `fmt` (clause N2).

    x: float32, bfloat16, float16 or uint16 (bfloat16 bits), any shape; scale_exponent: an integer or an array of
    integers that broadcasts to x's shape, -1024 to 1024; rbits: for a stochastic profile, unsigned integers below
    2**profile.random_bits in x's shape. Returns codes in `code_dtype(fmt)`.
    NaN gives the format's canonical NaN, positive, or the largest positive value where it has none; Inf is an
    overflow. Raises DtypeError, ShapeError, ProfileError, ArgumentError.
    """
    fmt, profile = get_format(fmt), get_profile(profile)
    require_float_dtype("x", x)
    exponent = _exponent(scale_exponent, x)
    if rbits is not None:
        require_random("rbits", rbits, x, profile.random_bits)
    if not x.shape:  # NumPy makes numbers of arrays without axes, and warns where a number wraps
        alone = None if rbits is None else rbits.reshape(1)
        return encode(fmt, x.reshape(1), exponent, profile, rbits=alone).reshape(())
    bits = float32_bits(x)
    few = is_host(bits) and bits.size <= CHUNK
    if few or not isinstance(exponent, int) or rbits is not None:
        return encode_bits(fmt, bits, exponent, profile, rbits=rbits)
    flat = contiguous(bits).ravel()
    codes = empty(flat.shape, code_dtype(fmt), bits)
    for part in chunks(flat.size, 1, bits):
        quick = encode_plain(fmt, flat[part], exponent, profile)
        if quick is None:
            quick = encode_bits(fmt, flat[part], exponent, profile)
        codes[part] = quick
    return codes.reshape(bits.shape)


def _exponent(given: Any, x: Array) -> Any:
    """Check `scale_exponent`; return it as an int, or as an i32 array if it has axes."""
    if not getattr(given, "shape", ()):
        return require_integer("scale_exponent", given, -MOST_EXPONENT, MOST_EXPONENT)
    require_array("scale_exponent", given)
    if given.dtype.kind not in "iu":
        raise DtypeError(f"scale_exponent has dtype {given.dtype}; allowed are integers")
    try:
        fits_x = np.broadcast_shapes(given.shape, x.shape) == tuple(x.shape)
    except ValueError:
        fits_x = False
    if not fits_x:
        raise ShapeError(f"scale_exponent has shape {tuple(given.shape)}; it must broadcast to x's {tuple(x.shape)}")
    if given.size and not -MOST_EXPONENT <= int(given.min()) <= int(given.max()) <= MOST_EXPONENT:
        raise ArgumentError(
            f"scale_exponent holds {int(given.min())} to {int(given.max())}; "
            f"allowed are {-MOST_EXPONENT} to {MOST_EXPONENT}"
        )
    return given.astype(np.int32)


@functools.cache
def code_table(fmt: Format, profile: Profile) -> np.ndarray:
    """Codes of all quotients as 16 bits, index (sign << 15) + upper bits + _OFFSET; u8 [65536].

    An index below _OFFSET is a quotient below 2**-126 (its exponent field went below zero): it rounds to zero.
    """
    field = np.arange(1 << 15, dtype=np.int64) - _OFFSET
    bits = (np.maximum(field, 0) << 16).astype(np.uint32)
    both = np.concatenate([bits, bits | np.uint32(0x80000000)])
    table = encode_bits(fmt, both, 0, profile, finite=True)
    table.flags.writeable = False
    return table


def fits(fmt: Format, profile: Profile) -> bool:
    """Whether a format is short enough and a profile deterministic, so that a code depends on 16 bits alone."""
    short = fmt.kind == "float" and fmt.radix == 2 and 0 < fmt.mantissa_bits <= 5 and fmt.emax < 16
    return short and profile.rounding != "stochastic"


def encode_scaled(fmt: Format, bits: Array, scales: Array, profile: Profile) -> Array | None:
    """Codes (u8) of finite blocks, or None where the table does not reach.

    bits: `own_bits` [..., n], finite, whose magnitudes divided by the block's scale are below 2**16; scales: u8
    [...], one byte a block. Zeros have the same codes under every byte, so a block of zeros may be given any.
    """
    if not fits(fmt, profile):
        return None
    if bool(((scales < np.uint8(LOW_BYTE)) | (scales > np.uint8(HIGH_BYTE))).any()):
        return None
    index = upper_bits_to_odd(bits)
    index += (np.uint32(HIGH_BYTE) - scales.astype(np.uint32) << np.uint32(7))[..., None]
    return np.take(table_like(code_table, bits, fmt, profile), index)


def encode_plain(fmt: Format, bits: Array, exponent: int, profile: Profile) -> Array | None:
    """Codes (u8) of x / 2**exponent for one exponent, Inf included, or None where the table does not reach.

    bits: float32 bits u32 of any shape. A quotient of 2**16 or more is replaced by the largest below: both overflow.
    """
    clamps = profile.rounding == "nearest" or profile.overflow == "saturate"  # else only one of them is an overflow
    if not (fits(fmt, profile) and clamps and LOW_BYTE <= exponent + 127 <= HIGH_BYTE):
        return None
    magnitude = bits & np.uint32(0x7FFFFFFF)
    if bool((magnitude > np.uint32(0x7F800000)).any()):
        return None
    magnitude = np.minimum(magnitude, np.uint32(((143 + exponent) << 23) - 1))
    index = upper_bits_to_odd(magnitude | (bits >> np.uint32(31) << np.uint32(31)))
    index += np.uint32((HIGH_BYTE - 127 - exponent) << 7)
    return np.take(table_like(code_table, bits, fmt, profile), index)


def upper_bits_to_odd(bits: Array) -> Array:
    """The upper 16 bits of float32 bits, the last set when a lower bit was: u32 below 2**16; NaN stays NaN.

    bits: float32 bits u32, or bfloat16's u16, which is the upper half already.
    """
    if bits.dtype == np.uint16:
        return bits.astype(np.uint32)
    index = bits & np.uint32(0xFFFF)
    index += np.uint32(0xFFFF)  # carries into bit 16 unless all lower bits were zero
    index |= bits
    index >>= np.uint32(16)
    return index
