"""INT4 quantisers by exact rationals (clause N26)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from .matrices import Codes, Matrix
from .nvfp4 import float32_divide
from .tables import NAN, NEG_INF, POS_INF, Exact
from .values import (
    decode,
    encode,
    float32_add,
    float32_multiply,
    float_bits,
    float_value,
    is_finite,
    is_negative,
    number,
)


def _of(value: Fraction | str | int) -> int:
    return float_bits(Fraction(value))


def _root(value: Fraction) -> int:
    """The square root of a float32, rounded once: by the candidate whose neighbours' middles lie around it."""
    if value == 0:
        return 0
    shift = 200
    guess = Fraction(math.isqrt(int(value * Fraction(4) ** shift)), 2**shift)
    exact = guess * guess == value
    return float_bits(guess if exact else guess + Fraction(1, 2 ** (shift + 1)))


def sawb(rows: Matrix) -> tuple[Codes, list[int]]:
    """Return (codes [M, K], bits of the scale [1]) (N26.1)."""
    counted = [abs(number(value)) for row in rows for value in row if is_finite(value)]
    clip = 0
    if counted:
        square, mean = (float_bits(sum(v**p for v in counted) / Fraction(len(counted))) for p in (2, 1))
        root = _root(number(float_value(square))) if is_finite(float_value(square)) else square
        clip = float32_add(float32_multiply(root, _of("12.1")), float32_multiply(mean, _of("12.2")) ^ 2**31)
        value = float_value(clip)
        if not is_finite(value) or number(value) <= 0:
            clip = float_bits(max(counted))
    scale = float32_divide(float32_multiply(clip, _of(2)), _of(15))

    def code(value: Exact) -> int:
        if is_finite(value) and number(value) == 0:
            return 0
        return encode("INT4", float_value(float32_divide(float_bits(value), scale)))

    return [[code(value) for value in row] for row in rows], [scale]


def _whole(bits: int) -> int:
    """The nearest whole float32, ties to even, with the sign of zero."""
    value = float_value(bits)
    if not is_finite(value):
        return bits
    exact = number(value)
    found = Fraction(round(exact))  # Python's round takes ties to even
    return float_bits("-0" if found == 0 and is_negative(value) else found)


def _extreme(group: Sequence[Exact], top: bool) -> int:
    order = [value for value in group if value != NAN]
    if not order:
        return 0

    def key(value: Exact) -> tuple[int, Fraction]:
        return (
            1 if value == POS_INF else -1 if value == NEG_INF else 0,
            number(value) if is_finite(value) else Fraction(0),
        )

    found = (max if top else min)(order, key=key)
    return float_bits(Fraction(0) if is_finite(found) and number(found) == 0 else found)


def _clamped(bits: int, least: int, most: int) -> int:
    """A float32 that is not negative within bounds; NaN becomes the lower one."""
    return least if float_value(bits) == NAN else min(max(bits, least), most)


def _fifteen(bits: int) -> int:
    """A float32 within 0..15; 0 for NaN."""
    value = float_value(bits)
    if value in (NAN, NEG_INF) or (is_finite(value) and (number(value) < 0 or value == "-0")):
        return 0
    return min(bits, _of(15))


def _affine(group: Sequence[Exact], method: str) -> tuple[list[int], int, int]:
    least, most = _extreme(group, False), _extreme(group, True)
    spread = float32_add(most, least ^ 2**31)
    if method == "int4_affine":
        scale = float32_divide(_clamped(spread, _of(Fraction(1, 10**5)), float_bits(POS_INF)), _of(15))
        zero = _fifteen(_whole(float32_divide(least, scale)) ^ 2**31)
    else:
        scale = _clamped(float32_divide(spread, _of(15)), _of(Fraction(1, 10**4)), _of(10**4))
        zero = _whole(float32_divide(least ^ 2**31, scale))
    codes = []
    for value in group:
        placed = float32_add(_whole(float32_divide(float_bits(value), scale)), zero)
        codes.append(15 if float_value(placed) == NAN else int(number(float_value(_fifteen(placed)))))
    return codes, scale, zero


def affine(rows: Matrix, group: int, method: str = "int4_affine") -> tuple[Codes, Codes, Codes]:
    """Return (codes [M, K], bits of the scales, bits of the zero points as float32 [M, K/group]) (N26.2, N26.3)."""
    found = [[_affine(row[start : start + group], method) for start in range(0, len(row), group)] for row in rows]
    codes = [[code for codes, _, _ in row for code in codes] for row in found]
    return codes, [[scale for _, scale, _ in row] for row in found], [[zero for _, _, zero in row] for row in found]


def _kept_two(group: Sequence[Exact]) -> tuple[list[int], int, list[int]]:
    infinite = 2**200  # above every float32
    sizes = [0 if v == NAN else abs(number(v)) if is_finite(v) else infinite for v in group]
    kept = sorted(range(len(group)), key=lambda lane: (-sizes[lane], lane))[:2]
    rest = max(sizes[lane] for lane in range(len(group)) if lane not in kept)
    most = float_bits(POS_INF if rest == infinite else Fraction(rest))
    scale = max(most, _of(Fraction(1, 10**6)))
    codes = []
    for lane, value in enumerate(group):
        placed = float32_divide(float32_multiply(float_bits(value), _of(7)), scale)
        codes.append(0 if lane in kept else encode("INT4", float_value(placed)))
    return codes, scale, kept


def keep_two(rows: Matrix, group: int) -> tuple[Codes, Codes, list[list[list[int]]]]:
    """Return (codes [M, K], bits of the scales [M, K/group], kept places [M, K/group, 2]) (N26.5)."""
    found = [[_kept_two(row[start : start + group]) for start in range(0, len(row), group)] for row in rows]
    codes = [[code for codes, _, _ in row for code in codes] for row in found]
    return codes, [[scale for _, scale, _ in row] for row in found], [[kept for _, _, kept in row] for row in found]


def dequantize_int4(codes: Matrix, scales: Matrix, zeros: Matrix | None) -> Codes:
    """Return the bits of [M, K] (N26.4); scales and zeros as float32 bits [M, G]."""
    out = []
    for i, row in enumerate(codes):
        size, line = len(row) // len(scales[i]), []
        for k, code in enumerate(row):
            whole = number(decode("INT4", code)) if zeros is None else Fraction(code)
            first = float_bits(whole)
            if zeros is not None:
                first = float32_add(first, zeros[i][k // size] ^ 2**31)
            line.append(float32_multiply(first, scales[i][k // size]))
        out.append(line)
    return out
