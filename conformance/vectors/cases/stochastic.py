"""What is asked of stochastic rounding: explicit random bits at both sides of every carry (N2, N13)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from refnum.formats import E2M1

from ..draft import NAN, SIGN, Draft, bits, float32, power, row
from . import grids


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
