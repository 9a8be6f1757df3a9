"""Corners of logarithmic FP4 (N23): numbers one ulp beside every level, words on both sides of what they decide."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from refnum.division import divide
from refnum.formats import FP32, Format
from refnum.logarithmic import _least_dropped, _step
from refnum.logarithmic_tables import THRESHOLDS, threshold_bits

from ..draw.bits import as_float, word
from ..recipes.distributions import target_of
from .floats import SPECIALS, sequence
from .nvfp4 import narrowed, one
from .pairs import _arrays

Corner = tuple[str, dict[str, np.ndarray]]
AMAX = (0x42800000, 0x41F00001, 0x7F7FFFFF, 0x00800000, 0x00000021, 0x00000041, 0, 0x80000000, 0xC2555555, 0x7F800000,
        0x7FC00000, 0x03FFFFFF, 0x04000001, 0x3F9E3779, 0x7E7FFFFF, 0x01800001)  # fmt: skip
"""Maxima: ordinary, the ends of the range, steps that are subnormal or 0, with a sign, Inf, NaN."""
FAINT = (0x02000010, 0x17955555)
"""A maximum under which a subnormal step has few bits, far apart, and one far below 1 in whose range all numbers are
normal."""
LOWEST = (0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x3F800000)
"""The largest subnormal number, normal ones of the least exponent, and 1: quotients at the ends of what is normal."""
FIELDS = (50, 65, 80, 100, 118, 119, 120, 127, 128, 140, 149, 150, 151, 152, 175, 220)
"""Exponent fields of steps: on both sides of what decides how the least number that is kept is found."""
SHAPES = ((0, 32), (1, 2), (1, 46), (3, 6), (5, 34), (15, 30), (17, 80), (33, 2), (130, 18), (2, 2062), (1, 7168))
LEVELS = (-63, -40, -12, 0, 9, 57)
"""Exponents of the least level of radix 4, n0."""


def aimed(x: np.ndarray, alpha: np.ndarray) -> dict[str, np.ndarray]:
    """Return both words of each element on one side of what they decide, or on the other, by its place.

    x: float32 bits; alpha: bits of the step. The word that does not decide is at one of its ends.
    """
    quotient = divide(x & np.uint32(0x7FFFFFFF), np.broadcast_to(alpha, x.shape))
    place = np.arange(x.size, dtype=np.uint32).reshape(x.shape)
    side = (place >> np.uint32(4) ^ place) & np.uint32(1)
    kept = np.minimum(_least_dropped(np.minimum(quotient, np.uint32(0x3F7FFFFF))), np.uint32((1 << 24) - 1))
    up = np.uint32(1 << 23) - (quotient & np.uint32(0x7FFFFF))
    r_under = np.where(quotient < np.uint32(0x3F800000), kept - np.minimum(side, kept), side * np.uint32((1 << 24) - 1))
    r_log = np.where(quotient < np.uint32(0x3F800000), (np.uint32(1) - side) * np.uint32((1 << 23) - 1), up - side)
    return {"r_under": r_under.astype(np.uint32), "r_log": np.minimum(r_log, np.uint32((1 << 23) - 1))}


def _wide(x: np.ndarray, fmt: Format) -> np.ndarray:
    bits = x.view(word(fmt)).astype(np.uint32)
    return bits if fmt is FP32 else bits << np.uint32(16)


def step_of(params: Mapping[str, Any], amax: int) -> np.ndarray:
    """Return the bits of the step, u32 [1], under a maximum given as float32 bits."""
    magnitude = amax & 0x7FFFFFFF
    found = np.array([magnitude if magnitude <= 0x7F800000 else 0], np.uint32)
    alpha: np.ndarray = _step(found, int(params["divisor"]), str(params["step"]))
    return alpha


def _given(bits: np.ndarray, fmt: Format, params: Mapping[str, Any], amax: int) -> dict[str, np.ndarray]:
    """Return the inputs of numbers (float32 bits) under a maximum, with aimed words."""
    x = as_float(narrowed(bits, fmt), fmt)
    return {"x": x, **aimed(_wide(x, fmt), step_of(params, amax)), "tensor_amax": one(amax)}


def beside_levels(alpha: int) -> np.ndarray:
    """Return float32 bits of numbers at, beside and between the levels of a step, and below them; both signs."""
    parts = [Fraction(1), Fraction(3, 2), Fraction(5, 4), Fraction(7, 4), Fraction(4, 3)]
    exact = [int(part * (1 << 23)) for part in parts]
    field = np.arange(-27, 9, dtype=np.int64)[:, None, None]
    low = max(alpha & 0x7F800000, 1 << 23)
    near = low + (field << 23) + (np.array(exact) - (1 << 23))[None, :, None] + np.array([-1, 0, 1, 0x10000])
    near = near + (alpha & 0x7FFFFF)
    found = np.clip(near, 0, 0x7F800000).astype(np.uint32).reshape(-1)
    return np.stack([found, found ^ np.uint32(1 << 31)], axis=-1).reshape(1, -1)


def _beside_least(fmt: Format, params: Mapping[str, Any], field: int) -> dict[str, np.ndarray]:
    """Return numbers beside the least one whose quotient is not 0, under a step of an exponent field."""
    wanted = field + int(params["divisor"]).bit_length() - 1
    amax = min(wanted << 23 | 0x2AAAAB, 0x7F7FFFFF)
    alpha = int(step_of(params, amax)[0])
    field, fraction = alpha >> 23, alpha & 0x7FFFFF | 0x800000
    half = alpha - (150 << 23) if field > 150 else fraction >> min(151 - field, 24)
    beside = np.arange(-2, 6) * (1 if fmt is FP32 else 1 << 16)
    middles = (half, half // 2, half - (half & 0x3FFFFF) // 2)
    near = np.concatenate([*(middle + beside for middle in middles), beside_levels(alpha)[0, ::2]])
    found = _given(np.clip(near, 0, 0x7F800000).astype(np.uint32).reshape(1, -1), fmt, params, amax)
    found["r_under"][:, :24] = 0
    return found


def luq(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Numbers beside the levels under every maximum, specials, patterns, odd shapes, pairs; words on both sides."""
    fmt = target_of(operation, params).input
    for amax in (*AMAX, *FAINT):
        bits = beside_levels(int(step_of(params, amax)[0]))
        yield f"beside the levels, maximum {amax:#010x}", _given(bits, fmt, params, amax)
    for field in FIELDS:
        yield f"beside the least, step 2**{field - 127}", _beside_least(fmt, params, field)
    for first, field in ((0, 1), (1, 128)):
        bits = np.array([LOWEST[first : first + 4], np.roll(LOWEST[first : first + 4], 1)], np.uint32)
        amax = field + int(params["divisor"]).bit_length() - 1 << 23
        yield f"the least normal numbers, step 2**{field - 127}", _given(bits, fmt, params, amax)
    special: np.ndarray = np.array(SPECIALS[fmt], np.uint32) << np.uint32(0 if fmt is FP32 else 16)
    rows = np.resize(special, (8, len(special) + len(special) % 2))
    yield "special values", _given(rows, fmt, params, AMAX[0])
    alone = {"x": as_float(narrowed(rows[:1, :2], fmt), fmt)}
    yield "zeros, their own maximum", {**alone, **aimed(_wide(alone["x"], fmt), np.zeros(1, np.uint32))}
    every = np.arange(1 << 16, dtype=np.uint32).reshape(64, 1024) << np.uint32(16)
    for amax in AMAX[:2]:
        yield f"all 16-bit patterns, maximum {amax:#010x}", _given(every, fmt, params, amax)
    for label, x in _arrays(fmt, 3, 2):
        yield label, {"x": x, **aimed(_wide(x, fmt), step_of(params, AMAX[1])), "tensor_amax": one(AMAX[1])}
    yield from _shapes(fmt, params)


def content(shape: tuple[int, int], fmt: Format) -> np.ndarray:
    """Return finite numbers of many sizes in which neighbours differ."""
    place = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape)
    mixed = place * np.uint32(2654435761) ^ (place >> np.uint32(5)) * np.uint32(40503)
    exponent = np.uint32(118) + (mixed >> np.uint32(9)) % np.uint32(13)
    return as_float(narrowed(mixed & np.uint32(0x807FFFFF) | exponent << np.uint32(23), fmt), fmt)


def _shapes(fmt: Format, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Odd shapes, under their own maximum or a given one; half of the words are aimed, half at both ends."""
    for number, shape in enumerate(SHAPES):
        x = content(shape, fmt)
        bits = _wide(x, fmt)
        own = int((bits & np.uint32(0x7FFFFFFF)).max()) if x.size else 0
        amax = own if number % 2 else AMAX[1]
        words = aimed(bits, step_of(params, amax))
        given = {} if number % 2 else {"tensor_amax": one(amax)}
        yield f"shape {shape[0]}x{shape[1]}", {"x": x, **words, **given}


def _codes(rows: int, pairs: int) -> np.ndarray:
    place = np.arange(rows * pairs, dtype=np.uint32).reshape(rows, pairs)
    return (place * np.uint32(2654435761) >> np.uint32(24)).astype(np.uint8)


BYTES = np.arange(256, dtype=np.uint8).reshape(4, 64)


def dequantize_luq(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every byte under steps of every kind; odd shapes."""
    for bits in (*AMAX, 0x3F800000, 0xBF800001, 0x7E000000, 0x7E000001, 1, 0x80000003, 0x00018000, 0x0000C000):
        yield f"every byte, step {bits:#010x}", {"packed": BYTES, "alpha": one(bits)}
    for number, (rows, columns) in enumerate(SHAPES):
        yield f"shape {rows}x{columns}", {"packed": _codes(rows, columns // 2), "alpha": one(0x3F000000 + 77 * number)}


@functools.cache
def _near_bounds(n0: int, phase: str, threshold: str) -> np.ndarray:
    """Float32 bits of numbers beside the bounds of all codes, both signs."""
    bounds = threshold_bits(n0, phase, THRESHOLDS[threshold]).astype(np.int64)
    near = (bounds[:, None] + np.array([-0x10000, -1, 0, 1, 2, 0x10000])).reshape(-1).astype(np.uint32)
    return np.stack([near, near ^ np.uint32(1 << 31)], axis=-1).reshape(1, -1)


def radix4(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Numbers beside every bound at several levels, every pattern, specials, odd shapes."""
    fmt = target_of(operation, params).input
    special: np.ndarray = np.array([SPECIALS[fmt]], word(fmt))
    yield "special values", {"x": as_float(special[:, : special.size & ~1], fmt)}
    for n0 in (int(params["n0"]), *LEVELS):
        bits = _near_bounds(n0, str(params["phase"]), str(params["threshold"]))
        yield f"beside every bound, n0 {n0}", {"x": as_float(narrowed(bits, fmt), fmt)}, {"n0": n0}
    yield "all 16-bit patterns", {"x": as_float(sequence(fmt, 1024), fmt)}
    yield "all 16-bit patterns, one place on", {"x": as_float(np.roll(sequence(fmt, 1024), 1), fmt)}
    for shape in SHAPES:
        yield f"shape {shape[0]}x{shape[1]}", {"x": content(shape, fmt)}


def dequantize_radix4(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Every byte at several levels; odd shapes."""
    for n0 in (int(params["n0"]), *LEVELS):
        yield f"every byte, n0 {n0}", {"packed": BYTES}, {"n0": n0}
    for rows, columns in SHAPES:
        yield f"shape {rows}x{columns}", {"packed": _codes(rows, columns // 2)}
