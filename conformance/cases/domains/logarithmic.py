"""Domains of logarithmic FP4 (N23): every 16-bit number, with the last word of one code and the first of another.

A code of LUQ rises or falls once in the word that decides it. So both sides of that step hold the whole function of a
number and its words, at one maximum; other maxima are sampled by the corners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import FP32

from ..corners.logarithmic import aimed, step_of
from ..corners.nvfp4 import one
from ..draw.bits import as_float
from ..recipes.distributions import target_of
from .casts import encoders
from .domain import Chunk, Domain, sequence

MAXIMUM = 0x42F00000
"""The maximum of the domain, 120, whose step is no power of two."""
LOWER = (0x0000, 0x7FFF, 0x8000, 0xFFFF)
"""Lower halves of float32 numbers."""


def _both_sides(bits: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return numbers (float32 bits) twice, with the words on one side of what they decide, then on the other."""
    rows = bits.reshape(-1, 1024)
    wide = np.concatenate([rows, rows])
    words = aimed(rows, alpha), aimed(np.roll(rows, 1, axis=1), alpha)
    other = {name: np.roll(words[1][name], -1, axis=1) for name in words[1]}
    return wide, {name: np.concatenate([words[0][name], other[name]]) for name in other}


def luq(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every 16-bit pattern, of float32 with four lower halves, twice: on both sides of its word."""
    fmt = target_of(operation, params).input
    lower = np.array(LOWER if fmt is FP32 else (0,), np.uint32)
    size = 2 * len(lower) << 16

    def make() -> Iterator[Chunk]:
        every = np.arange(1 << 16, dtype=np.uint32)[:, None] << np.uint32(16) | lower
        bits, words = _both_sides(every.reshape(-1), step_of(params, MAXIMUM))
        own = bits if fmt is FP32 else bits >> np.uint32(16)
        yield Chunk({"x": as_float(own, fmt), **words, "tensor_amax": one(MAXIMUM)}, sequence(0, bits.shape))

    halves = "" if fmt is not FP32 else f" with the lower halves {', '.join(map(hex, LOWER))}"
    how = f"every bfloat16 pattern{halves}, twice: words below and at what they decide; maximum 120"
    yield Domain("every 16-bit number on both sides of its word", operation, profile, params, size, how, make)


def dequantize_luq(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every code under every power of two, and under 4/3 of each."""
    codes = np.arange(16, dtype=np.uint8)
    packed = (codes[0::2] | codes[1::2] << 4)[None, :]
    steps = [field << 23 | fraction for field in range(255) for fraction in (0, 0x2AAAAB)]

    def make() -> Iterator[Chunk]:
        for number, bits in enumerate(steps):
            yield Chunk({"packed": packed, "alpha": one(bits)}, sequence(16 * number, (1, 16)))

    how = "codes in order in one row, a case for each exponent field and the fractions 0 and 0x2AAAAB of the step"
    yield Domain("every code under steps of every size", operation, profile, params, 16 * len(steps), how, make)


def dequantize_radix4(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every code at every level."""
    codes = np.arange(16, dtype=np.uint8)
    packed = (codes[0::2] | codes[1::2] << 4)[None, :]

    def make() -> Iterator[Chunk]:
        for number in range(121):
            yield Chunk({"packed": packed}, sequence(16 * number, (1, 16)), {"n0": number - 63})

    yield Domain("every code at every level", operation, profile, params, 16 * 121, "a case for each n0", make)


radix4 = encoders
