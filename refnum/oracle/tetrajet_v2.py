"""TetraJet-v2 by exact rationals: two scales, the noise as a rational, one float32 operation at a time (clause N24)."""

from __future__ import annotations

from fractions import Fraction

from .matrices import Codes, Matrix, pack, unpack
from .nvfp4 import float32_divide
from .tables import NAN, NEG_ZERO, Exact
from .values import decode, encode, float32_multiply, float_bits, float_value, is_finite, is_negative, number

_REGIONS = ((2, Fraction(1, 2), 0, 2), (4, Fraction(1), 2, 4), (None, Fraction(2), 4, 6))
"""Largest magnitude of a region, its step, and the bounds within which noise keeps a number."""


def _of(value: Fraction | int) -> int:
    return float_bits(Fraction(value))


def _largest(values: list[int]) -> int:
    """Bits of the largest magnitude, where NaN does not count."""
    return max((b % 2**31 for b in values if float_value(b) != NAN), default=0)


def noise(seed: int, place: int) -> Fraction:
    """Return the noise of the element at a place in row-major order (N24.12)."""
    state = ((seed + place // 4 * 4 * 0x9E3779B1) * 747796405 + 2891336453) % 2**32
    for _ in range(place % 4 + 1):
        state = (state * 1664525 + 1013904223) % 2**32
    return Fraction(state // 2**9, 2**23) - Fraction(1, 2)


def with_noise(bits: int, u: Fraction) -> Exact:
    """Return a scaled number with noise, kept in its region (N24.12)."""
    value = float_value(bits)
    if value == NAN:
        return NAN
    minus = is_negative(value)
    if not is_finite(value):
        return Fraction(-6 if minus else 6)
    size = abs(number(value))
    _, step, least, most = next(r for r in _REGIONS if r[0] is None or size <= r[0])
    moved = number(float_value(_of(size + u * step)))
    kept = min(max(moved, Fraction(least)), Fraction(most))
    return NEG_ZERO if minus and kept == 0 else -kept if minus else kept


def scales_of(words: list[int]) -> tuple[int, list[int]]:
    """Return the bits of the outer scale of 128 float32 and the E4M3 codes of its eight inner ones (N24.11)."""
    outer = float32_divide(float32_divide(_largest(words), _of(448)), _of(6)) or _of(1)
    codes = []
    for first in range(0, len(words), 16):
        inner = float32_divide(float32_divide(_largest(words[first : first + 16]), outer), _of(6))
        codes.append(encode("E4M3", float_value(inner or _of(Fraction(1, 512)))))
    return outer, codes


def product(outer: int, code: int) -> int:
    """Return the bits of fl(outer * scale)."""
    return float32_multiply(outer, float_bits(decode("E4M3", code)))


def element(bits: int, factor: int, u: Fraction | None = None) -> int:
    """Return the E2M1 code of an element under the product of its scales (N24.11)."""
    inverse = float32_divide(_of(1), factor) if factor else 0
    scaled = float32_multiply(bits, inverse)
    return encode("E2M1", float_value(scaled) if u is None else with_noise(scaled, u))


def quantize_tetrajet_v2(rows: Matrix, seed: int | None = None) -> tuple[Codes, Codes, Codes]:
    """Quantise [M, K] exact values to (packed, E4M3 codes, bits of the outer scales) (N24.11)."""
    codes: Codes = []
    scales: Codes = []
    outers: Codes = []
    for i, row in enumerate(rows):
        words = [float_bits(value) for value in row]
        codes.append([])
        scales.append([])
        outers.append([])
        for first in range(0, len(words), 128):
            outer, inner = scales_of(words[first : first + 128])
            outers[-1].append(outer)
            scales[-1] += inner
            for k in range(first, first + 128):
                u = None if seed is None else noise(seed, i * len(words) + k)
                codes[-1].append(element(words[k], product(outer, inner[(k - first) // 16]), u))
    return pack(codes), scales, outers


def dequantize_tetrajet_v2(packed: Matrix, scales: Matrix, outer: Matrix, dtype: str = "float32") -> Codes:
    """Dequantise to the bits of [M, K]; outer as bits (N24.11)."""
    out = []
    for row, inner, outers in zip(unpack(packed), scales, outer, strict=True):
        line = []
        for k, code in enumerate(row):
            level = float_bits(decode("E2M1", code, signed_zero=True))
            wide = float32_multiply(level, product(outers[k // 128], inner[k // 16]))
            line.append(wide if dtype == "float32" else float_bits(float_value(wide), dtype))
        out.append(line)
    return out


def signs(seed: int) -> list[int]:
    """Return the 16 factors, -1 or 1, of the rotation (N24.13)."""
    factors = []
    for place in range(16):
        word = (seed ^ (7919 * (place // 4))) * 2654435761 % 2**32
        mixed = (word % 2**16) ^ (word // 2**16)
        factors.append(-1 if mixed // 2 ** (place % 4) % 2 else 1)
    return factors
