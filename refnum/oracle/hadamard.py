"""The rotation of groups of 16 by exact rationals, and NVFP4 of it (clause N22)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

from . import nvfp4
from .matrices import Codes, Matrix
from .tables import NAN, NEG_INF, POS_INF, Exact
from .values import float32_add, float32_multiply, float_bits, float_value, is_finite, number


def _minus(i: int, j: int, signs: int) -> bool:
    """Whether element i enters sum j with a minus: by its sign, and by the entry of the matrix."""
    return (bin(i & j).count("1") + (signs >> i)) % 2 == 1


def _negated(value: Exact) -> Exact:
    return {NAN: NAN, POS_INF: NEG_INF, NEG_INF: POS_INF}.get(value) or -number(value)  # type: ignore[arg-type]


def exact_sum(terms: Sequence[Exact]) -> Exact:
    """Return a quarter of the sum; an exact zero is +0."""
    if all(is_finite(term) for term in terms):
        return sum((number(term) for term in terms), Fraction(0)) / 4
    odd = {term for term in terms if not is_finite(term)}
    return odd.pop() if len(odd) == 1 else NAN


def sequential_sum(terms: Sequence[Exact]) -> Exact:
    """Return the float32 sum in ascending order of quarters rounded to float32, from +0."""
    total = 0
    for term in terms:
        total = _added(total, _quarter(term))
    return float_value(total)


_added = functools.lru_cache(maxsize=1 << 12)(float32_add)  # the 16 sums of a group begin with the same few
_QUARTER = float_bits(Fraction(1, 4))


@functools.lru_cache(maxsize=1 << 12)
def _quarter(term: Exact) -> int:
    return float32_multiply(float_bits(term), _QUARTER)


def rotated_group(group: Sequence[Exact], signs: int, order: str, dtype: str) -> list[int]:
    """Return the bits of the 16 results of a group."""
    rule = exact_sum if order == "exact" else sequential_sum
    return [
        float_bits(rule([_negated(x) if _minus(i, j, signs) else x for i, x in enumerate(group)]), dtype)
        for j in range(16)
    ]


def _turned(rows: Sequence[Sequence[Exact]], width: int) -> list[list[Exact]]:
    return [[row[j] for row in rows] for j in range(width)]


def hadamard16(
    rows: Matrix, signs: int = 0xD7E8, axis: int = -1, order: str = "exact", dtype: str = "bfloat16", width: int = 0
) -> tuple[Codes]:
    """Return the bits of [M, K] exact values rotated (N22); width is K, which no row tells where there is none."""
    width = len(rows[0]) if rows else width
    if axis == 0:
        missing = [[Fraction(0)] * width for _ in range(-len(rows) % 16)]
        across = hadamard16(_turned([*rows, *missing], width), signs, -1, order, dtype)[0]
        return ([list(line) for line in zip(*across, strict=True)],)
    groups = [[row[k : k + 16] for k in range(0, width, 16)] for row in rows]
    return ([[bits for group in row for bits in rotated_group(group, signs, order, dtype)] for row in groups],)


def hadamard_quantize_nvfp4(
    rows: Matrix,
    signs: int = 0xD7E8,
    axis: int = -1,
    order: str = "exact",
    variant: str = "TE",
    tensor_amax: Exact | None = None,
    rbits: Matrix | None = None,
    width: int = 0,
) -> tuple[Codes, Codes, list[int]]:
    """Rotate to bfloat16, then quantise; along M the transpose is quantised (N22.6)."""
    bits = hadamard16(rows, signs, axis, order, width=width)[0]
    values = [[float_value(b, "bfloat16") for b in row] for row in bits]
    if axis == 0:
        values = _turned(values, len(rows[0]) if rows else width)
    return nvfp4.quantize_nvfp4(values, variant, tensor_amax, rbits=rbits)
