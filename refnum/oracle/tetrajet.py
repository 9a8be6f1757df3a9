"""TetraJet by exact rationals: a block at a time along either axis, neighbours by search of the table (clause N24)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from .blocks import covered, scale_byte
from .matrices import Codes, Matrix, pack, unpack
from .tables import NAN, NEG_INF, POS_INF, TABLES, Exact
from .values import encode, float_bits, float_value, is_finite, is_negative, number

_TWO = Fraction(2)
_EPSILON = Fraction(1, 10**8)


def block_byte(values: Sequence[Exact], rule: str = "truncation_free", ratio: str = "bfloat16") -> int:
    """Return the E8M0 byte of one block (N24.2)."""
    if not all(is_finite(v) for v in values):
        return 255
    amax = max(abs(number(v)) for v in values) or _EPSILON
    if rule == "exact":
        return scale_byte("rceil", amax)
    if rule == "microscaling":
        return scale_byte("floor", amax)
    sixth = float_value(float_bits(amax / 6))
    if ratio == "bfloat16":
        sixth = float_value(float_bits(sixth, "bfloat16"), "bfloat16")
    return next(e for e in range(-127, 129) if number(sixth) <= _TWO**e) + 127


def element(value: Exact, byte: int, ties: str = "even", rbits: int | None = None) -> int:
    """Return the E2M1 code of an element under a byte (N24.4)."""
    if byte == 255:
        return 0
    scaled = number(value) / _TWO ** (byte - 127) if isinstance(value, Fraction) else value
    if rbits is None:
        return encode("E2M1", scaled, ties=ties)
    return encode("E2M1", scaled, rounding="stochastic", rbits=rbits)


def neighbour(value: Exact, average: Exact, byte: int) -> int:
    """Return the code of the neighbour that a weight's average chooses (N24.7), by search of the magnitudes."""
    if byte == 255:
        return 0
    minus = is_negative(value)
    unit = _TWO ** (byte - 127)
    levels = [number(level) for level in TABLES["E2M1"].values[:8]]
    lower = max(i for i, level in enumerate(levels) if level <= abs(number(value)) / unit)
    code = lower + 8 * minus
    if number(value) == 0 or average == NAN or is_negative(average) != minus or lower == 7:
        return code
    if is_finite(average):
        return code + (abs(number(average)) / unit >= (levels[lower] + levels[lower + 1]) / 2)
    return code + 1


def _blocks(rows: int, columns: int, axis: int) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Return (row and column of the scale, places of its elements) of every block."""
    if axis:
        return [(i, j, [(i, 32 * j + n) for n in range(32)]) for i in range(rows) for j in range(columns // 32)]
    return [
        (i, j, [(r, j) for r in range(32 * i, min(32 * i + 32, rows))])
        for i in range(-(-rows // 32))
        for j in range(columns)
    ]


def _grid(rows: int, columns: int, axis: int) -> Codes:
    return [[0] * (columns // 32) for _ in range(rows)] if axis else [[0] * columns for _ in range(-(-rows // 32))]


def quantize_tetrajet(
    rows: Matrix,
    axis: int = 1,
    rule: str = "truncation_free",
    ties: str = "even",
    ratio: str = "bfloat16",
    rbits: Matrix | None = None,
) -> tuple[Codes, Codes]:
    """Quantise [M, K] exact values to (packed [M, K/2], bytes) (N24)."""
    columns = len(rows[0]) if rows else 0
    codes, scales = [[0] * columns for _ in rows], _grid(len(rows), columns, axis)
    for i, j, places in _blocks(len(rows), columns, axis):
        scales[i][j] = byte = block_byte([rows[r][c] for r, c in places], rule, ratio)
        for r, c in places:
            codes[r][c] = element(rows[r][c], byte, ties, None if rbits is None else rbits[r][c])
    return pack(codes), scales


def q_ema(
    w: Matrix, ema: Matrix, axis: int = 1, rule: str = "truncation_free", ratio: str = "bfloat16"
) -> tuple[Codes, Codes]:
    """Quantise weights to the neighbours that their averages choose (N24.7)."""
    columns = len(w[0]) if w else 0
    codes, scales = [[0] * columns for _ in w], _grid(len(w), columns, axis)
    for i, j, places in _blocks(len(w), columns, axis):
        scales[i][j] = byte = block_byte([w[r][c] for r, c in places], rule, ratio)
        for r, c in places:
            codes[r][c] = neighbour(w[r][c], ema[r][c], byte)
    return pack(codes), scales


def dequantize_tetrajet(packed: Matrix, scales: Matrix, axis: int = 1) -> list[list[Exact]]:
    """Return the exact values of [M, K], a magnitude of 2**128 or more as infinity (N24.6)."""
    out: list[list[Exact]] = []
    for r, row in enumerate(unpack(packed)):
        bytes_ = [scales[r][c // 32] if axis else scales[r // 32][c] for c in range(len(row))]
        line = [covered("E2M1", code, byte) for code, byte in zip(row, bytes_, strict=True)]
        out.append([_within_float32(value) for value in line])
    return out


def _within_float32(value: Exact) -> Exact:
    if isinstance(value, Fraction) and abs(value) >= _TWO**128:
        return POS_INF if value > 0 else NEG_INF
    return value


def double_quantise(
    packed: Matrix,
    scales: Matrix,
    axis: int = 0,
    rule: str = "truncation_free",
    ties: str = "even",
    ratio: str = "bfloat16",
    rbits: Matrix | None = None,
) -> tuple[Codes, Codes]:
    """Quantise along the axis what lies quantised along the other (N24.6)."""
    return quantize_tetrajet(dequantize_tetrajet(packed, scales, 1 - axis), axis, rule, ties, ratio, rbits)
