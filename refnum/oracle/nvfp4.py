"""NVFP4 by exact rationals: one float32 operation at a time, one block at a time (clause N21)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from .matrices import Codes, Matrix, pack, unpack
from .tables import NAN, NEG_ZERO, POS_INF, Exact
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

_INF = float_bits(POS_INF)
_LARGEST = _INF - 1


def float32_divide(a: int, b: int) -> int:
    """Return the bits of the correctly rounded quotient of two float32 given as bits."""
    x, y = float_value(a), float_value(b)
    minus = is_negative(x) != is_negative(y)
    if NAN in (x, y) or (not is_finite(x) and not is_finite(y)):
        return float_bits(NAN)
    if not is_finite(x) or (is_finite(y) and number(y) == 0):
        return float_bits(NAN) if is_finite(x) and number(x) == 0 else _signed(_INF, minus)
    if not is_finite(y):
        return _signed(0, minus)
    quotient = number(x) / number(y)
    return float_bits(NEG_ZERO if quotient == 0 and minus else quotient)


def _signed(bits: int, minus: bool) -> int:
    return bits + 2**31 * minus


def _of(value: Fraction | int) -> int:
    return float_bits(Fraction(value))


def _least(a: int, b: int) -> int:
    """fmin of two float32 that are not negative: a NaN loses."""
    if NAN in (float_value(a), float_value(b)):
        return b if float_value(a) == NAN else a
    return min(a, b)


def _magnitude(bits: int) -> int:
    """The magnitude of a float32, 0 for NaN."""
    return 0 if float_value(bits) == NAN else bits % 2**31


def _within(bits: int, least: Fraction) -> int:
    """Clamp to least..448; NaN stays."""
    return bits if float_value(bits) == NAN else min(max(bits, _of(least)), _of(448))


def _e4m3(bits: int) -> int:
    return encode("E4M3", float_value(bits))


def _value(code: int) -> int:
    return float_bits(decode("E4M3", code))


def _whole(amax: int, top: int) -> int:
    if amax == 0:
        return _of(1)
    found = _least(float32_divide(_of(top), amax), _LARGEST)
    return found if found else _of(1)


def _inverse(code: int, whole: int) -> int:
    return _least(float32_divide(_of(1), float32_multiply(_value(code), float32_divide(_of(1), whole))), _LARGEST)


def candidates(variant: str, amax: int, tensor: int) -> list[tuple[int, int]]:
    """Return (E4M3 code, factor) of a block by the steps of a variant, both candidates of FOUR_OVER_SIX."""
    sixth = float32_divide(amax, _of(6))
    if variant.startswith("FOUR_OVER_SIX"):
        whole = _whole(tensor, 1536)
        six = float32_multiply(sixth, whole)
        codes = [_e4m3(_least(p, _of(448))) for p in (six, float32_multiply(six, _of(Fraction(3, 2))))]
        return [(code, _inverse(code, whole)) for code in codes]
    if variant in ("TE", "TE_2_8"):
        whole = _whole(tensor, 2688)
        first = float32_multiply(whole, _of(Fraction(1, 6)))
        scale = float32_multiply(amax, first) if variant == "TE" else float32_multiply(sixth, whole)
        code = _e4m3(_least(scale, _LARGEST))
        return [(code, _inverse(code, whole))]
    whole = float32_divide(tensor, _of(2688))
    if variant == "TORCHAO":
        code = _e4m3(_within(float32_divide(sixth, whole), Fraction(1, 64)))
        return [(code, float32_divide(float32_divide(_of(1), whole), _value(code)))]
    scale = float32_divide(amax, float32_multiply(_of(6), whole))
    code = _e4m3(_within(_of(1) if scale == 0 else scale, Fraction(1, 512)))
    return [(code, float32_multiply(_value(code), whole))]


def element(bits: int, factor: int, variant: str, rbits: int | None = None) -> int:
    """Return the E2M1 code of an element under a block's factor."""
    scaled = (float32_divide if variant == "MODELOPT" else float32_multiply)(bits, factor)
    if rbits is None:
        return encode("E2M1", float_value(scaled))
    return encode("E2M1", float_value(scaled), rounding="stochastic", rbits=rbits)


def block_error(rows: Sequence[Sequence[int]], code: int, factor: int, tensor: int, variant: str) -> int:
    """Return the error of a candidate: of each row ascending, then of 16 rows as a tree."""
    sums = []
    for row in rows:
        total = 0
        for bits in row:
            v = float_bits(decode("E2M1", element(bits, factor, variant), signed_zero=True))
            v = float32_divide(float32_multiply(float32_multiply(v, _value(code)), tensor), _of(1536))
            gap = float32_add(v, bits ^ 2**31)
            gap = float_bits(NAN) if float_value(gap) == NAN else gap % 2**31
            total = float32_add(total, float32_multiply(gap, gap) if variant.endswith("MSE") else gap)
        sums.append(total)
    if len(rows) == 1:
        return sums[0]
    sums += [0] * (16 - len(sums))
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [float32_add(a, b) for a, b in zip(sums[:half], sums[half:], strict=True)]
    return sums[0]


def _better(first: int, second: int) -> bool:
    a, b = float_value(first), float_value(second)
    return NAN not in (a, b) and second < first


def quantize_nvfp4(
    rows: Matrix,
    variant: str = "TE",
    tensor_amax: Exact | None = None,
    tile: tuple[int, int] = (1, 16),
    rbits: Matrix | None = None,
) -> tuple[Codes, Codes, list[int]]:
    """Quantise [M, K] exact values to (packed [M, K/2], E4M3 codes of the blocks, bits of the maximum [1]) (N21)."""
    words = [[float_bits(value) for value in row] for row in rows]
    tensor = max((_magnitude(b) for row in words for b in row), default=0)
    if tensor_amax is not None:
        tensor = _magnitude(float_bits(tensor_amax))
    codes = [[0] * len(row) for row in words]
    scales = []
    for top in range(0, len(words), tile[0]):
        part = range(top, min(top + tile[0], len(words)))
        scales.append([0] * (len(words[0]) // 16))
        for place in range(len(scales[-1])):
            members = [words[i][16 * place : 16 * place + 16] for i in part]
            amax = max(_magnitude(b) for row in members for b in row)
            found = candidates(variant, amax, tensor)
            if len(found) > 1:
                errors = [block_error(members, code, factor, tensor, variant) for code, factor in found]
                found = found[1:] if _better(*errors) else found[:1]
            scales[-1][place], factor = found[0]
            for i, row in zip(part, members, strict=True):
                for lane, bits in enumerate(row, 16 * place):
                    draw = None if rbits is None else rbits[i][lane]
                    codes[i][lane] = element(bits, factor, variant, draw)
    return pack(codes), scales, [tensor]


def dequantize_nvfp4(
    packed: Matrix,
    scales: Matrix,
    tensor_amax: Exact,
    order: str = "te",
    tile: tuple[int, int] = (1, 16),
    dtype: str = "float32",
) -> tuple[Codes]:
    """Dequantise to the bits of [M, K] (N21.7)."""
    tensor = _magnitude(float_bits(tensor_amax))
    out = []
    for i, row in enumerate(unpack(packed)):
        line = []
        for k, code in enumerate(row):
            scale = _value(scales[i // tile[0]][k // 16])
            if order == "product":
                whole = float32_multiply(scale, float32_divide(tensor, _of(2688)))
            else:
                top = 1536 if order == "four_over_six" else 2688
                whole = float32_multiply(float32_multiply(scale, tensor), float32_divide(_of(1), _of(top)))
            wide = float32_multiply(float_bits(decode("E2M1", code, signed_zero=True)), whole)
            line.append(wide if dtype == "float32" else float_bits(float_value(wide), dtype))
        out.append(line)
    return (out,)
