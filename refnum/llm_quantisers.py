"""Quantisers of LLM-FP4, with an exponent bias that is no integer, and of LLM-QAT (clauses N26.7 and N26.8)."""

from __future__ import annotations

import functools

import numpy as np

from .arguments import require_flag, require_integer
from .arrays import Array, contiguous, float32_bits, require_array, require_float
from .division import divide
from .errors import ArgumentError, DtypeError, ShapeError
from .integer_steps import rounded
from .logarithms import log2_bits, power_bits
from .softfloat import INF, NAN, SIGN, add, multiply, subtract

_MAGNITUDE, _SIGN = np.uint32(0x7FFFFFFF), int(SIGN)
_ONE = 0x3F800000
LEAST, MOST = 0x0D800000, 0x71800000
"""float32 bits of 2**-100 and 2**100, between which the largest number lies."""
_SMALL, _TINY = np.uint32(0x358637BD), np.uint32(0x322BCC77)
"""fl(1e-6) and fl(1e-8)."""


def llm_fp4(x: Array, maxval: Array, exponent_bits: int = 2) -> tuple[Array, Array]:
    """Quantise to a format of four bits whose largest number is chosen, as LLM-FP4 does (clause N26.7).

    Args:
        x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits).
        maxval: the largest number of the format, float32 [1] or one for each row [M], from 2**-100 to 2**100.
        exponent_bits: 2, like E2M1, or 1, like E1M2.

    Returns:
        (codes u8 [M, K], the sign in bit 3; values float32 [M, K]). NaN gives the code 7 and the value NaN.

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    width = require_integer("exponent_bits", exponent_bits, 1, 2)
    require_float("x", x)
    tops = _tops(maxval, x.shape[0])
    bits = float32_bits(contiguous(x))
    parts = [
        _row_quantised(bits if len(tops) == 1 else bits[row : row + 1], top, width) for row, top in enumerate(tops)
    ]
    if not parts:
        return bits.astype(np.uint8), bits.view(np.float32)
    codes, values = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    return codes, values.view(np.float32)


def _tops(maxval: Array, rows: int) -> list[int]:
    """float32 bits of the largest numbers."""
    require_array("maxval", maxval)
    if maxval.dtype != np.float32:
        raise DtypeError(f"maxval has dtype {maxval.dtype}; allowed is float32")
    if tuple(maxval.shape) not in ((1,), (rows,)):
        raise ShapeError(f"maxval has shape {tuple(maxval.shape)}; allowed are (1,) and one for each row, ({rows},)")
    patterns = contiguous(maxval).view(np.uint32)
    found = [int(patterns[row]) for row in range(len(patterns))]
    if any(not LEAST <= top <= MOST for top in found):
        raise ArgumentError("maxval holds a number that is not from 2**-100 to 2**100, the ones that are allowed")
    return found


def _row_quantised(bits: Array, top: int, width: int) -> tuple[Array, Array]:
    """Codes u8 and bits of the values of numbers under one largest number."""
    starts, scales = _binades(top, width)
    clipped = np.minimum(bits & _MAGNITUDE, np.uint32(top))
    binade = np.searchsorted(np.asarray(np.array(starts, np.uint32), like=bits), clipped, side="right")
    scale = np.take(np.asarray(np.array(scales, np.uint32), like=bits), binade)
    whole = rounded(divide(clipped, scale))
    steps = whole.view(np.float32).astype(np.int32) + (binade.astype(np.int32) << np.int32(3 - width))
    sign, nan = bits & SIGN, (bits & _MAGNITUDE) > INF
    codes = np.minimum(steps, np.int32(7)) | (sign >> np.uint32(28)).astype(np.int32)
    values = multiply(whole, scale) | sign
    return np.where(nan, np.uint8(7), codes.astype(np.uint8)), np.where(nan, NAN, values)


@functools.lru_cache(maxsize=4096)
def _binades(top: int, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first magnitude (float32 bits) of each binade but the lowest, and the scale of each binade."""
    mantissa = 3 - width
    bias = _number_bits(1 << width)
    two = np.array(2 - 2.0**-mantissa, np.float32).view(np.uint32)
    for part in (log2_bits(top) ^ _SIGN, log2_bits(int(two)), _ONE | _SIGN):
        bias = _sum(bias, part)
    last = _exponent(top, bias)
    starts = tuple(_first(exponent, bias, top) for exponent in range(2, last + 1))
    places = (_sum(_number_bits(exponent - mantissa), bias ^ _SIGN) for exponent in range(1, max(last, 1) + 1))
    return starts, tuple(power_bits(place) for place in places)


def _number_bits(number: int) -> int:
    return int(np.array(number, np.float32).view(np.uint32))


def _sum(a: int, b: int) -> int:
    return int(add(np.array([a], np.uint32), np.array([b], np.uint32))[0])


def _exponent(magnitude: int, bias: int) -> int:
    """The floor of fl(L(magnitude) + bias)."""
    placed = float(np.uint32(_sum(log2_bits(magnitude), bias)).view(np.float32))
    return int(np.floor(placed))


def _first(exponent: int, bias: int, top: int) -> int:
    """The least magnitude whose exponent is `exponent` or more: rounding keeps the order of logarithms."""
    low, high = 1, top
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _exponent(middle, bias) >= exponent else (middle + 1, high)
    return low


def llm_qat(x: Array, bits: int = 4, symmetric: bool = True, layerwise: bool = False) -> tuple[Array, Array]:
    """Quantise rows, or the tensor, to integers and back, as LLM-QAT does (clause N26.8).

    Args:
        x: [M, K] float32, bfloat16, float16 or uint16 (bfloat16 bits).
        bits: of a code, from 2 to 8.
        symmetric: whether the scale is that of the largest magnitude, and not of the least and the largest element.
        layerwise: whether one scale is that of the tensor, and not of a row.

    Returns:
        (codes int32 [M, K], values float32 [M, K]). A NaN makes all values of its row or tensor NaN, their codes 0.

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    count = require_integer("bits", bits, 2, 8)
    by_magnitude, whole = require_flag("symmetric", symmetric), require_flag("layerwise", layerwise)
    require_float("x", x)
    found = float32_bits(contiguous(x))
    vectors = found.reshape(1, -1) if whole else found
    codes, values = (_symmetric if by_magnitude else _asymmetric)(vectors, count)
    shape = found.shape
    return _integers(codes).reshape(shape), values.reshape(shape).view(np.float32)


def _spread_nan(extreme: Array, vectors: Array) -> Array:
    """The extremes [V, 1], NaN where a vector has one."""
    nan = ((vectors & _MAGNITUDE) > INF).any(axis=-1)
    return np.where(nan, NAN, extreme)[:, None]


def _extreme(vectors: Array, least: bool) -> Array:
    """The least or the largest element of each vector, -0 below +0; NaN where a vector has one. [V, 1]."""
    if not vectors.shape[1]:
        return np.zeros((vectors.shape[0], 1), dtype=np.uint32, like=vectors)
    ordered = np.where(vectors >= SIGN, ~vectors, vectors | SIGN)
    found = ordered.min(axis=-1) if least else ordered.max(axis=-1)
    return _spread_nan(np.where(found >= SIGN, found ^ SIGN, ~found), vectors)


def _symmetric(vectors: Array, count: int) -> tuple[Array, Array]:
    top = _extreme(vectors & _MAGNITUDE, least=False)
    most = np.uint32(_number_bits((1 << count - 1) - 1))
    scale = divide(np.full_like(top, most), add(top, np.full_like(top, _SMALL)))
    codes = rounded(multiply(vectors, np.broadcast_to(scale, vectors.shape)))
    below = np.broadcast_to(add(scale, np.full_like(scale, _SMALL)), vectors.shape)
    return codes, divide(codes, below)


def _asymmetric(vectors: Array, count: int) -> tuple[Array, Array]:
    least, top = _extreme(vectors, least=True), _extreme(vectors, least=False)
    spread = np.broadcast_to(add(subtract(top, least), np.full_like(top, _TINY)), vectors.shape)
    most = np.full_like(vectors, np.uint32(_number_bits((1 << count) - 1)))
    from_least = np.broadcast_to(least, vectors.shape)
    codes = rounded(multiply(divide(subtract(vectors, from_least), spread), most))
    return codes, add(multiply(divide(codes, most), spread), from_least)


def _integers(bits: Array) -> Array:
    """Whole float32 numbers as int32; what is not finite as 0."""
    finite = (bits & _MAGNITUDE) < INF
    return np.where(finite, bits, np.uint32(0)).view(np.float32).astype(np.int32)
