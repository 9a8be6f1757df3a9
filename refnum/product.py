"""Matrix products of FP8 and BF16 as Hopper's tensor cores and the library kernels over them give them (clause N19)."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from . import softfloat
from .arguments import MOST_ROWS, require_integer, row_splits
from .arrays import BFLOAT16, OUTPUTS, TILE, Array, empty, output_dtype, require_array, require_matrix, spread
from .errors import ArgumentError, DtypeError, ScaleError, ShapeError, shown
from .layouts import scales_to_float32
from .tensor_core import (
    INSTRUCTIONS,
    NAN,
    Instruction,
    Operand,
    pass_outputs,
    require_operands,
    step,
    steps,
    tensor_core_step,
    tiles,
)
from .tiles import tile_count

__all__ = ["Order", "matmul_bf16", "matmul_fp8", "tensor_core_step"]

ONE = np.uint32(0x3F800000)
BF16_NAN = np.uint16(0x7FFF)  # every NaN of a BF16 result (clause N19.6)
_ORDERS = re.compile(r"chain|(promote|split)([1-9][0-9]{0,9})|split([1-9][0-9]{0,9})-chain")


@dataclass(frozen=True)
class Order:
    """The order of a product's sums: K in parts, a part in runs, a run in steps (clause N19.4)."""

    parts: int
    """Parts of K, each summed from zero; their sums are added in float32."""
    run: int | None
    """Terms after which the accumulator is added to a float32 sum and starts again; None is never."""

    def ranges(self, k: int) -> list[list[tuple[int, int]]]:
        """Return the [start, stop) of every run of every part of K = `k`."""
        blocks = tile_count(k)
        if self.parts > blocks:
            raise ArgumentError(f"an order of {self.parts} parts has more than K = {k} has blocks of {TILE}, {blocks}")
        part = k if self.parts == 1 else -(-blocks // self.parts) * TILE
        run = self.run or part
        return [
            [(r, min(r + run, start + part, k)) for r in range(start, min(start + part, k), run)]
            for start in range(0, k, part)
        ]


def parse_order(order: str, facts: Instruction) -> Order:
    """Return what the name of an order stands for; n of `promote<n>` is a multiple of the step's terms."""
    found = _ORDERS.fullmatch(order) if isinstance(order, str) else None
    if found is None:
        raise ArgumentError(f"order={shown(order)}; allowed are 'chain', 'promote<n>', 'split<s>' and 'split<s>-chain'")
    count = require_integer(f"the number of {order}", int(found[2] or found[3] or 1), 1, MOST_ROWS)
    if found[1] == "promote":
        if count % facts.terms:
            raise ArgumentError(
                f"order={order!r}; n of promote<n> must be a multiple of a step's {facts.terms} products"
            )
        return Order(1, count)
    return Order(count, TILE if found[1] else None)


def matmul_fp8(
    a: Array,
    b: Array,
    a_scales: Array | None = None,
    b_scales: Array | None = None,
    order: str = "promote128",
    out: str = "float32",
    splits: Sequence[int] | None = None,
    a_format: str = "E4M3",
    b_format: str = "E4M3",
) -> Array:
    """Return a @ b.T of FP8 codes to the bit, as a named order of Hopper's `wgmma` gives it (clause N19).

    Args:
        a: u8 codes [M, K], K at least 1.
        b: u8 codes [N, K]; with `splits` [experts, N, K].
        a_scales: None, or E8M0 bytes u8 or float32: of one item, [M, 1] (one a row), [M, ceil(K/128)] or
            [ceil(M/128), ceil(K/128)].
        b_scales: the same of `b`, N in place of M; with `splits` of one item, or with the experts as first axis.
        order: "chain", "promote<n>" with n a multiple of 32, "split<s>" or "split<s>-chain"; scales of 128 elements
            of K need runs that lie in one block: promote32, promote64, promote128 or split<s>.
        out: "float32" or "bfloat16".
        splits: rows of `a` of each expert, zeros allowed; None is one product. `a_scales` then has one item or M rows.
        a_format: "E4M3" or "E5M2".
        b_format: "E4M3" or "E5M2".

    Returns:
        float32 or bfloat16 [M, N]. Every NaN is 0x7FFFFFFF, in bfloat16 0x7FFF.

    Raises:
        DtypeError, ShapeError, ScaleError (a scale that is NaN or Inf, too), ArgumentError, ProfileError.
    """
    facts = INSTRUCTIONS["wgmma_fp8"]
    return _matmul(facts, a, b, (a_scales, b_scales), order, out, splits, (a_format, b_format))


def matmul_bf16(
    a: Array, b: Array, order: str = "chain", out: str = "float32", splits: Sequence[int] | None = None
) -> Array:
    """Return a @ b.T of bfloat16 matrices to the bit, as a named order of Hopper's `wgmma` gives it (clause N19).

    Args:
        a: bfloat16, or its bits u16, [M, K], K at least 1.
        b: bfloat16, or its bits u16, [N, K]; with `splits` [experts, N, K].
        order: "chain", "promote<n>" with n a multiple of 16, "split<s>" or "split<s>-chain".
        out: "float32" or "bfloat16".
        splits: rows of `a` of each expert, zeros allowed; None is one product.

    Returns:
        float32 or bfloat16 [M, N]. Every NaN is 0x7FFFFFFF, in bfloat16 0x7FFF.

    Raises:
        DtypeError, ShapeError, ArgumentError.
    """
    facts = INSTRUCTIONS["wgmma_bf16"]
    bits = [_bfloat16_bits("a", a), _bfloat16_bits("b", b)]
    return _matmul(facts, bits[0], bits[1], (None, None), order, out, splits, ("BF16", "BF16"))


def _bfloat16_bits(name: str, x: Array) -> Array:
    require_array(name, x)
    if x.dtype not in (BFLOAT16, np.uint16):
        raise DtypeError(f"{name} has dtype {x.dtype}; allowed is bfloat16 (ml_dtypes or its uint16 bits)")
    return x.view(np.uint16)


def _matmul(
    facts: Instruction,
    a: Array,
    b: Array,
    scales: tuple[Array | None, Array | None],
    order: str,
    out: str,
    splits: Sequence[int] | None,
    formats: tuple[str, str],
) -> Array:
    plan, name = parse_order(order, facts), output_dtype(out)
    if splits is None:
        return _narrow(_product(facts, a, b, scales, plan, formats), name)
    require_matrix("a", a)
    groups = row_splits(splits, a.shape[0])
    _require_experts("b", b, len(groups))
    _require_row_scales(scales[0], a)
    bits = empty((a.shape[0], b.shape[1]), np.uint32, a)
    for expert, (start, stop) in enumerate(groups):
        of_rows = scales[0] if scales[0] is None or scales[0].size == 1 else scales[0][start:stop]
        pair = (of_rows, _expert_scales(scales[1], expert, len(groups)))
        bits[start:stop] = _product(facts, a[start:stop], b[expert], pair, plan, formats)
    return _narrow(bits, name)


def _require_experts(name: str, x: Array, experts: int) -> None:
    require_array(name, x)
    if x.ndim != 3 or x.shape[0] != experts:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; with {experts} splits it has three axes, {experts} first")


def _require_row_scales(scales: Array | None, a: Array) -> None:
    if scales is None:
        return
    require_array("a_scales", scales)
    if scales.size != 1 and (scales.ndim != 2 or scales.shape[0] != a.shape[0]):
        raise ShapeError(
            f"a_scales has shape {tuple(scales.shape)}; with splits it holds one scale, or has {a.shape[0]} rows"
        )


def _expert_scales(scales: Array | None, expert: int, experts: int) -> Array | None:
    if scales is None:
        return None
    require_array("b_scales", scales)
    if scales.size == 1:
        return scales
    _require_experts("b_scales", scales, experts)
    return scales[expert]


def _product(
    facts: Instruction,
    a: Array,
    b: Array,
    scales: tuple[Array | None, Array | None],
    plan: Order,
    formats: tuple[str, str],
) -> Array:
    """Return the float32 bits [M, N] of one product."""
    left, right = require_operands(a, b, facts, *formats)
    (m, k), n = a.shape, b.shape[0]
    pair = scale_pair(*scales, m, n, k)
    if pair.by_block and (plan.run is None or TILE % plan.run):
        raise ArgumentError("scales of 128 elements of K need runs that lie in one block: promote32, 64, 128 or split")
    plan.ranges(k)  # refuses too many parts, also where there is nothing to compute
    out = empty((m, n), np.uint32, a)
    every = slice(0, k)
    for rows, columns in tiles(m, n, facts.terms, a):
        cut = left.cut(every, rows), right.cut(every, columns)
        out[rows, columns] = _summed(facts, *cut, plan, pair.cut(rows, columns))
    return out


def _summed(facts: Instruction, a: Operand, b: Operand, plan: Order, scales: ScalePair) -> Array:
    """Return the bits of a result: runs of steps, each added to its part's sum, then the parts' sums added."""
    (k, m), n = a.significands.shape, b.significands.shape[1]
    sums, ranges = [], plan.ranges(k)
    found = _runs(facts, a, b, [run for runs in ranges for run in runs])
    for runs in ranges:
        part = np.zeros((m, n), np.uint32, like=a.significands)
        for start, _ in runs:
            run = next(found)
            if scales.by_block:
                part = scales.add_scaled(part, run, start // TILE)
            else:
                part = run if plan.run is None else softfloat.add(part, run)
        sums.append(part)
    total = functools.reduce(softfloat.add, sums)
    if not scales.by_block and not scales.absent:
        total = scales.scale_sum(total)
    return np.where((total & ~softfloat.SIGN) > softfloat.INF, NAN, total)


def _runs(facts: Instruction, a: Operand, b: Operand, ranges: list[tuple[int, int]]) -> Iterator[Array]:
    """Yield the bits [M, N] of every run; those of one length are taken together as far as a pass has room."""
    m, n = a.significands.shape[1], b.significands.shape[1]
    most = max(1, pass_outputs(facts.terms, a.significands) // max(1, m * n))
    for length, alike in itertools.groupby(ranges, lambda one: one[1] - one[0]):
        starts = [start for start, _ in alike]
        for at in range(0, len(starts), most):
            count = min(most, len(starts) - at)
            left, right = a.runs(starts[at], count, length), b.runs(starts[at], count, length)
            results = None
            for terms in steps(facts, left, right, most // count):
                results = step(facts, terms, results)
            assert results is not None
            yield from results


@dataclass(frozen=True)
class Scales:
    """float32 bits of an operand's scales, [R or 1, blocks of K or 1]; of 128x128 they stand once for each row."""

    bits: Array
    kind: str
    """`tensor`, `rows` or `squares`."""

    def cut(self, rows: slice | Array) -> Scales:
        """Return the scales of some rows."""
        return self if self.kind == "tensor" else Scales(self.bits[rows], self.kind)

    def of(self, block: int) -> Array:
        """Return the scales of a block of K, [R or 1]."""
        return self.bits[:, block if self.bits.shape[1] > 1 else 0]


@dataclass(frozen=True)
class ScalePair:
    """The scales of both operands, or None, and how results are multiplied by them (clause N19.5)."""

    a: Scales | None
    b: Scales | None

    @property
    def absent(self) -> bool:
        """Whether nothing is scaled."""
        return self.a is None and self.b is None

    @property
    def by_block(self) -> bool:
        """Whether a scale belongs to 128 elements of K, so that each run is scaled, not their sum."""
        return any(x is not None and x.bits.shape[1] > 1 for x in (self.a, self.b))

    @property
    def scales_first(self) -> bool:
        """Whether a result's two scales are multiplied before anything else."""
        if self.by_block:
            return any(x is not None and x.kind == "squares" for x in (self.a, self.b))
        return not all(x is not None and x.kind == "rows" for x in (self.a, self.b))

    def cut(self, rows: slice | Array, columns: slice | Array) -> ScalePair:
        """Return the scales of some outputs."""
        return ScalePair(None if self.a is None else self.a.cut(rows), None if self.b is None else self.b.cut(columns))

    def factors(self, block: int) -> tuple[Array, Array]:
        """Return the scales of both operands for a block of K, [M or 1, 1] and [1, N or 1]; 1 where there are none."""
        like = (self.a or self.b).bits  # type: ignore[union-attr]
        one = np.zeros(1, np.uint32, like=like) | ONE
        left, right = (one if x is None else x.of(block) for x in (self.a, self.b))
        return left[:, None], right[None, :]

    def of(self, block: int) -> Array:
        """Return the product of both scales, rounded once, for a block of K."""
        return softfloat.multiply(*self.factors(block))

    def add_scaled(self, total: Array, run: Array, block: int) -> Array:
        """Return a sum and the scaled result of a run, rounded once after what is multiplied first."""
        left, right = self.factors(block)
        if self.scales_first:
            return softfloat.multiply_add(run, softfloat.multiply(left, right), total)
        return softfloat.multiply_add(softfloat.multiply(run, left), right, total)

    def scale_sum(self, total: Array) -> Array:
        """Return a whole sum times both scales; where those are multiplied first, a product of exactly zero is +0."""
        left, right = self.factors(0)
        if self.scales_first:
            return softfloat.multiply_add(total, softfloat.multiply(left, right), np.zeros_like(total))
        return softfloat.multiply(softfloat.multiply(total, right), left)


def scale_pair(a_scales: Array | None, b_scales: Array | None, m: int, n: int, k: int) -> ScalePair:
    """Return checked scales of a product [M, K] @ [N, K].T; raise for other shapes, NaN and Inf."""
    return ScalePair(_checked_scales("a_scales", a_scales, m, k), _checked_scales("b_scales", b_scales, n, k))


def _checked_scales(name: str, scales: Array | None, rows: int, k: int) -> Scales | None:
    """Return an operand's scales; raise for any other dtype and shape, NaN and Inf."""
    if scales is None:
        return None
    require_array(name, scales)
    if scales.dtype not in (np.uint8, np.float32):
        raise ScaleError(f"{name} has dtype {scales.dtype}; allowed are uint8 (E8M0 bytes) and float32")
    blocks, shape = tile_count(k), tuple(scales.shape)
    allowed = [(rows, 1), (rows, blocks), (tile_count(rows), blocks)]
    if scales.size != 1 and shape not in allowed:
        raise ShapeError(f"{name} has shape {shape}; allowed are one item and {', '.join(map(str, allowed))}")
    kind = "tensor" if scales.size == 1 else "rows" if shape[0] == rows else "squares"
    if kind == "tensor":
        scales = scales.reshape(1, 1)
    bits = (scales if scales.dtype == np.float32 else scales_to_float32(scales)).view(np.uint32)
    if bool(((bits & ~softfloat.SIGN) >= softfloat.INF).any()):
        raise ScaleError(f"{name} holds a NaN or an Inf (byte 255); allowed are finite scales: quantise again")
    return Scales(spread(bits, TILE, axis=0)[:rows] if kind == "squares" else bits, kind)


def _narrow(bits: Array, name: str) -> Array:
    if name == "float32":
        return bits.view(np.float32)
    narrow = softfloat.to_bfloat16(bits)
    nan = (narrow & np.uint16(0x7FFF)) > np.uint16(0x7F80)
    return np.where(nan, BF16_NAN, narrow).view(OUTPUTS[name])
