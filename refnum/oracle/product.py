"""Products of Hopper's tensor cores over exact rationals (N19): codes and bits in nested lists, one result each."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..errors import ArgumentError
from .tables import NAN, NEG_INF, POS_INF, TABLES, Exact
from .values import (
    decode,
    float32_add,
    float32_fused,
    float32_multiply,
    float_bits,
    float_value,
    floor_log2,
    is_finite,
    number,
)

Matrix = Sequence[Sequence[Any]]
Bits = list[list[int]]

_TWO = Fraction(2)
_STEPS = {"wgmma_fp8": (32, 13, 13), "wgmma_bf16": (16, 25, 23), "wgmma_fp16": (16, 25, 23),
          "mma_bf16": (16, 25, 23), "mma_fp16": (16, 25, 23)}  # fmt: skip
"""Instruction -> products a step, fraction bits that a term keeps, fraction bits that a result keeps (N19.3)."""
_LOWEST = {"E4M3": -6, "E5M2": -14, "BF16": -126, "FP16": -14, "FP32": -126}
"""Format -> exponent of its subnormals, which is that of its smallest normal numbers."""
_WIDE = {"BF16": "bfloat16", "FP16": "float16", "FP32": "float32"}
_NAN_BITS, _BF16_NAN_BITS, _EXPONENT_OF_ZERO = 0x7FFFFFFF, 0x7FFF, -133


def _value(fmt: str, code: int) -> Exact:
    return decode(fmt, code, signed_zero=True) if fmt in TABLES else float_value(code, _WIDE[fmt])


def _exponent(fmt: str, value: Fraction) -> int:
    return max(floor_log2(abs(value)), _LOWEST[fmt])


def _toward_zero(value: Fraction, unit: Fraction) -> Fraction:
    whole = abs(value) // unit
    return -whole * unit if value < 0 else whole * unit


def _special(pairs: Sequence[tuple[Exact, Exact]], c: Exact) -> int | None:
    """Return the bits of a step with a NaN or an infinity among its operands, or None."""
    seen = {c}
    for x, y in pairs:
        if is_finite(x) and is_finite(y):
            continue
        invalid = NAN in (x, y) or any(is_finite(v) and number(v) == 0 for v in (x, y))
        minus = sum(v == NEG_INF or (is_finite(v) and number(v) < 0) for v in (x, y)) == 1
        seen.add(NAN if invalid else NEG_INF if minus else POS_INF)
    if NAN in seen or {POS_INF, NEG_INF} <= seen:
        return _NAN_BITS
    infinite = [v for v in (POS_INF, NEG_INF) if v in seen]
    return float_bits(infinite[0]) if infinite else None


def dot_step(
    a: Sequence[int], b: Sequence[int], c: int, instruction: str = "wgmma_fp8", a_format: str = "E4M3",
    b_format: str = "E4M3",
) -> int:  # fmt: skip
    """Return the bits of one step on one row of codes `a`, one of `b` and the bits of an accumulator (N19.2)."""
    _, fraction_bits, result_bits = _STEPS[instruction]
    pairs = [(_value(a_format, x), _value(b_format, y)) for x, y in zip(a, b, strict=True)]
    start = float_value(c)
    special = _special(pairs, start)
    if special is not None:
        return special
    terms = []
    for x, y in pairs:
        p, q = number(x), number(y)
        if p * q != 0:
            terms.append((p * q, _exponent(a_format, p) + _exponent(b_format, q)))
    if number(start) != 0:
        terms.append((number(start), _exponent("FP32", number(start))))
    top = max([_EXPONENT_OF_ZERO, *(e for _, e in terms)])
    total = sum((_toward_zero(v, _TWO ** (top - fraction_bits)) for v, _ in terms), Fraction(0))
    kept = _toward_zero(total, _TWO ** (_exponent("FP32", total) - result_bits)) if total else total
    sign = 0x80000000 if kept < 0 else 0
    return sign + (0x7F800000 if abs(kept) >= _TWO**128 else float_bits(abs(kept)))


def tensor_core_step(
    a: Matrix, b: Matrix, c: Matrix | None = None, instruction: str = "wgmma_fp8", a_format: str = "E4M3",
    b_format: str = "E4M3",
) -> Bits:  # fmt: skip
    """Return the bits [M, N] of one step on codes a [M, T], b [N, T] and bits c [M, N] (N19.2)."""
    return [
        [dot_step(x, y, 0 if c is None else c[i][j], instruction, a_format, b_format) for j, y in enumerate(b)]
        for i, x in enumerate(a)
    ]


def _parts(order: str, k: int) -> list[list[range]]:
    """Return the runs of each part of K."""
    if order == "chain":
        return [[range(k)]]
    if order.startswith("promote"):
        return [_runs(range(k), int(order.removeprefix("promote")))]
    if not order.startswith("split"):
        raise ArgumentError(f"order={order!r} is not one of 'chain', 'promote<n>', 'split<s>', 'split<s>-chain'")
    count = int(order.removeprefix("split").removesuffix("-chain"))
    blocks = -(-k // 128)
    parts = _runs(range(k), k if count == 1 else -(-blocks // count) * 128)
    return [[part] if order.endswith("-chain") else _runs(part, 128) for part in parts]


def _runs(whole: range, width: int) -> list[range]:
    return [whole[i : i + width] for i in range(0, len(whole), width)]


def _scale(scales: Any, row: int, block: int, rows: int) -> int:
    """Return the float32 bits of the scale of a row and a block of K, 1 if none; `scales` is one or holds [.., ..]."""
    if scales is None:
        return float_bits(Fraction(1))
    scale = scales
    if not isinstance(scales, int | Fraction):
        line = scales[row] if len(scales) == rows else scales[row // 128]
        scale = line[block] if len(line) > 1 else line[0]
    return float_bits(scale if isinstance(scale, Fraction) else decode("E8M0", scale))


def _squares(scales: Any, rows: int) -> bool:
    return not (scales is None or isinstance(scales, int | Fraction)) and len(scales) != rows


def _rows(scales: Any, rows: int) -> bool:
    return not (scales is None or isinstance(scales, int | Fraction)) and len(scales) == rows


def _by_block(scales: Any) -> bool:
    return not (scales is None or isinstance(scales, int | Fraction)) and any(len(line) > 1 for line in scales)


def matmul_fp8(
    a: Matrix, b: Matrix, a_scales: Any = None, b_scales: Any = None, order: str = "promote128", out: str = "float32",
    a_format: str = "E4M3", b_format: str = "E4M3", instruction: str = "wgmma_fp8",
) -> Bits:  # fmt: skip
    """Return the bits [M, N] of a @ b.T in a named order (N19.4).

    Scales are E8M0 bytes, or float32 values as fractions: one, or a nested list.
    """
    terms = _STEPS[instruction][0]
    by_block = _by_block(a_scales) or _by_block(b_scales)

    def scales(i: int, j: int, block: int) -> tuple[int, int]:
        return _scale(a_scales, i, block, len(a)), _scale(b_scales, j, block, len(b))

    def add_run(total: int, bits: int, i: int, j: int, block: int) -> int:
        if not by_block:
            return float32_add(total, bits)
        left, right = scales(i, j, block)
        if _squares(a_scales, len(a)) or _squares(b_scales, len(b)):
            return float32_fused(bits, float32_multiply(left, right), total)
        return float32_fused(float32_multiply(bits, left), right, total)

    def scaled(total: int, i: int, j: int) -> int:
        if by_block or (a_scales is None and b_scales is None):
            return total
        left, right = scales(i, j, 0)
        if _rows(a_scales, len(a)) and _rows(b_scales, len(b)):
            return float32_multiply(float32_multiply(total, right), left)
        return float32_fused(total, float32_multiply(left, right), 0)

    def entry(i: int, j: int) -> int:
        sums = []
        for part in _parts(order, len(a[i])):
            part_sum = 0
            for run in part:
                bits = 0
                for ks in _runs(run, terms):
                    bits = dot_step([a[i][k] for k in ks], [b[j][k] for k in ks], bits, instruction, a_format, b_format)
                chain = order.endswith("chain")
                part_sum = bits if chain else add_run(part_sum, bits, i, j, run.start // 128)
            sums.append(part_sum)
        total = sums[0]
        for other in sums[1:]:
            total = float32_add(total, other)
        return scaled(total, i, j)

    return [[_narrow(entry(i, j), out) for j in range(len(b))] for i in range(len(a))]


def matmul_bf16(a: Matrix, b: Matrix, order: str = "chain", out: str = "float32") -> Bits:
    """Return the bits [M, N] of a @ b.T of bfloat16 bits in a named order (N19.4)."""
    return matmul_fp8(a, b, None, None, order, out, "BF16", "BF16", "wgmma_bf16")


def _narrow(bits: int, out: str) -> int:
    value = float_value(bits)
    if value == NAN:
        return _NAN_BITS if out == "float32" else _BF16_NAN_BITS
    return float_bits(value, out)
