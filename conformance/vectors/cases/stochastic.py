"""Questions about stochastic rounding: explicit random bits at both sides of every carry, and streams (N2, N13)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from refnum.formats import E2M1, FORMATS, Format

from ..draft import INF, LARGEST, NAN, SIGN, Draft, bits, float32, power, row
from . import grids

WIDTHS = (1, 4, 8, 12, 16, 24)
"""Random bits an element: within a byte, within 16 bits, and beyond."""
STOCHASTIC_ELEMENTS = ("E2M1", "E3M0", "E2M3", "E3M2", "E4M3", "E5M2", "INT4", "MXINT8")


def drafts() -> Iterator[Draft]:
    """Elements a known fraction above a value, with random bits that just do and just do not carry."""
    ladder = [Fraction(0), *grids.values(E2M1)]
    lanes, draws = [power(0, 6)], [255]
    for low, high in itertools.pairwise(ladder):
        for eighths in (1, 4):
            lanes += [power(0, low + (high - low) * Fraction(eighths, 8)) | (SIGN if eighths == 4 else 0)] * 2
            draws += [256 - 32 * eighths, 255 - 32 * eighths]
    x = float32([row(lanes)])
    rbits = np.asarray([(draws + [0] * 32)[:32]], np.uint8)
    yield Draft(
        {"x": x, "rbits": rbits},
        flags=("STOCHASTIC_BITS_IGNORED",),
        comment="random bits that just carry, and one less",
    )
    for draw in (0, 128, 255):
        yield Draft(
            {"x": x, "rbits": np.full((1, 32), draw, np.uint8)},
            flags=("STOCHASTIC_BITS_IGNORED",) if draw != 128 else (),
            comment=f"the same elements with random bits {draw}",
        )
    exact = [power(0, v) for v in ladder[1:]] + [SIGN | power(0, v) for v in ladder[1:]]
    yield Draft(
        {"x": float32([row(exact)]), "rbits": np.full((1, 32), 255, np.uint8)},
        flags=("STOCHASTIC_EXACT_MOVES",),
        comment="exact values never move, whatever the random bits",
    )
    tiny = [power(0, 6), power(-9), power(-10), power(-30), 1, SIGN | 1, SIGN | power(-9)]
    yield Draft(
        {"x": float32([row(tiny)]), "rbits": np.full((1, 32), 255, np.uint8)},
        comment="fractions below 2^-8 of the step are cut before the random bits are added",
    )
    yield Draft(
        {"x": float32([row([NAN, bits(1)]), row([], fill=SIGN)]), "rbits": np.full((2, 32), 255, np.uint8)},
        clause="N4",
        flags=("AMAX_DROPS_NAN", "ZERO_BLOCK_BYTE"),
        comment="a NaN block and a block of -0",
    )


def encode_element() -> Iterator[Draft]:
    """Every element format with few and with many random bits: carries at their edge, overflow, specials."""
    for name, width in itertools.product(STOCHASTIC_ELEMENTS, WIDTHS):
        patterns, draws = _at_the_carry(FORMATS[name], width)
        params: dict[str, Any] = {
            "element": name,
            "rounding": "stochastic",
            "ties": "even",
            "overflow": "saturate",
            "negative_zero": "keep",
            "random_bits": width,
        }
        dtype = np.uint8 if width <= 8 else np.uint16 if width <= 16 else np.uint32
        yield Draft(
            {"x": np.asarray(patterns, np.uint32).view(np.float32), "rbits": np.asarray(draws, dtype)},
            params,
            flags=("STOCHASTIC_BITS_IGNORED", "RANDOM_BITS_CUT") if width > 8 else ("STOCHASTIC_BITS_IGNORED",),
            comment=f"{width} random bits that just carry and one less, subnormal results, overflow, specials",
        )


def _at_the_carry(fmt: Format, width: int) -> tuple[list[int], list[int]]:
    """float32 patterns between neighbours of a format, each with the least r that carries and with one less."""
    ladder = [Fraction(0), *grids.values(fmt)]
    every = list(itertools.pairwise(ladder))
    steps = [*every[:: max(1, len(ladder) // 10)], every[-1]]
    patterns, draws = [], []
    for number, (low, high) in enumerate(steps):
        part = Fraction(2 * number + 3, 64) + Fraction(1, 2**13)
        discarded = int(part * 2**width)
        pattern = power(0, low + (high - low) * part) | (SIGN if number % 3 == 1 else 0)
        for draw in (2**width - discarded, 2**width - discarded - 1):
            patterns.append(pattern)
            draws.append(min(draw, 2**width - 1))
    over = ladder[-1] + (ladder[-1] - ladder[-2]) * Fraction(3, 4)
    for pattern in (0, SIGN, 1, SIGN | 1, power(0, ladder[1]), power(0, over), INF, SIGN | INF, LARGEST, NAN):
        patterns += [pattern, pattern]
        draws += [0, 2**width - 1]
    return patterns, draws
