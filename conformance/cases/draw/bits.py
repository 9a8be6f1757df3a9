"""Float bit patterns by integer arithmetic: the alphabet that patterns, corners and domains are written in.

Every function takes and gives arrays of whole numbers and works on NumPy and CuPy alike; no host float decides.
A *pattern* is the bits of a non-negative float without its sign.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from refnum.errors import ArgumentError
from refnum.formats import BF16, FP16, FP32, Format

from . import device

Array = Any

INPUT_FORMATS: dict[str, Format] = {"float32": FP32, "bfloat16": BF16, "float16": FP16}
"""Name of a floating-point input -> its format."""

_NUMPY_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16),
                 "float16": np.dtype(np.float16)}  # fmt: skip


def input_format(name: str) -> Format:
    """Return the format of a floating-point input dtype; ArgumentError names the allowed ones."""
    if name not in INPUT_FORMATS:
        raise ArgumentError(f"input={name!r} is not a floating-point input; choose from {', '.join(INPUT_FORMATS)}.")
    return INPUT_FORMATS[name]


def word(fmt: Format) -> type:
    """The unsigned NumPy type that holds one pattern of a float format."""
    return np.uint16 if fmt.bits == 16 else np.uint32


def as_float(bits: Array, fmt: Format) -> Array:
    """View patterns with signs as the float array that operations take.

    bits: unsigned integers of any width holding patterns of `fmt`. On the host bfloat16 comes back as
    `ml_dtypes.bfloat16`; on a device, which has no such dtype, as its uint16 bits (N0).
    """
    bits = bits.astype(word(fmt))
    if fmt is BF16 and not isinstance(bits, np.ndarray):
        return bits
    name = next(name for name, candidate in INPUT_FORMATS.items() if candidate is fmt)
    return bits.view(_NUMPY_DTYPES[name])


def float_bits(x: Array) -> Array:
    """Inverse of `as_float`: the unsigned integers of x's own width."""
    return x if x.dtype.kind == "u" else x.view(f"u{x.dtype.itemsize}")


def normalise(significand: Array) -> tuple[Array, Array]:
    """Return (floor(log2), 23-bit fraction) of positive integers below 2**24; a zero gives (-127, 0)."""
    lifted = significand.astype(np.float32).view(np.uint32)  # exact: an integer below 2**24 needs no rounding
    return (lifted >> np.uint32(23)).astype(np.int32) - np.int32(127), lifted & np.uint32(0x7FFFFF)


def assemble(fmt: Format, significand: Array, exponent: Array) -> Array:
    """Patterns (u32) of significand * 2**exponent in `fmt`: bits that do not fit are cut off, too large is max.

    significand: unsigned below 2**24; exponent: i32, broadcast against it.
    """
    if device.serves(significand):
        return device.assemble(fmt, significand, exponent)
    lead, fraction = normalise(significand)
    field = lead + exponent + np.int32(fmt.bias - 1)  # less the one that a normal value's leading bit adds
    sunk = np.int32(23 - fmt.mantissa_bits) + np.maximum(-field, 0)
    kept = (fraction | np.uint32(1 << 23)) >> np.minimum(sunk, 24).astype(np.uint32)
    field = np.clip(field, 0, fmt.max_code >> fmt.mantissa_bits).astype(np.uint32)
    pattern = np.minimum((field << np.uint32(fmt.mantissa_bits)) + kept, np.uint32(fmt.max_code))
    return np.where(significand == 0, np.uint32(0), pattern).astype(np.uint32)


def exact(fmt: Format, significand: Array, exponent: Array) -> tuple[Array, Array]:
    """Return (patterns u32, exactly bool) of significand * 2**exponent: `assemble`, and whether no bit was lost."""
    significand, exponent = np.broadcast_arrays(significand, exponent)
    pattern = assemble(fmt, significand, exponent.astype(np.int32))
    lead, fraction = normalise(significand)
    place = lead + exponent
    dropped = 23 - fmt.mantissa_bits + np.maximum(1 - fmt.bias - place, 0)
    whole = (fraction | 1 << 23).astype(np.int64)
    kept = (whole & ((np.int64(1) << np.minimum(dropped, 24).astype(np.int64)) - 1)) == 0
    fits = place + fmt.bias <= fmt.max_code >> fmt.mantissa_bits
    return pattern, (kept & fits) | (significand == 0)


def signed(fmt: Format, pattern: Array, negative: Array) -> Array:
    """Put signs on patterns; returns unsigned integers of the format's own width."""
    if device.serves(pattern):
        return device.signed(fmt, pattern, negative)
    return (pattern | np.uint32(fmt.sign_mask) * negative).astype(word(fmt))


def high_product(word: Array, bound: Array) -> Array:
    """The high half of u32 * u32, broadcast: uniform words become uniform whole numbers below `bound`."""
    if device.serves(word):
        return device.high_product(word, bound)
    return ((word.astype(np.uint64) * bound.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
