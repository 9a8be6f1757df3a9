"""Matrix products of FP8 and BF16 in a named order (clause N19)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple

from refnum.errors import ArgumentError, DtypeError, ScaleError, ShapeError, shown

from .. import checks
from ..checks import TILE
from .call import F32, U8, A, Call

STEP, BF16_STEP = 32, 16
"""Products of a step."""
FORMATS = ("E4M3", "E5M2")
ORDERS = re.compile(r"chain|(promote|split)([1-9][0-9]{0,9})|split([1-9][0-9]{0,9})-chain")
UNSCALED, BY_BLOCK, WHOLE = 0, 1, 2
"""How results are scaled: `Scaling` of kernels/matmul_fp8.cu."""


class Order(NamedTuple):
    """Steps of a run and of a part of K, and how many parts there are."""

    run: int
    part: int
    parts: int


class Scales(NamedTuple, Generic[A]):
    """The checked scales of an operand: whether rows and blocks of K have scales of their own, rows that share one.

    kind: `tensor`, `rows` or `squares`. by_expert: whether the first axis is of experts.
    """

    x: A | None = None
    kind: str = ""
    by_block: bool = False
    by_expert: bool = False

    @property
    def tall(self) -> int:
        """Rows that share a scale."""
        return TILE if self.kind == "squares" else 1

    def strides(self, strides: Sequence[int]) -> tuple[int, int, int]:
        """Return what lies between the scales of neighbouring rows, blocks of K and experts, from the array's strides.

        0 where one scale serves all.
        """
        if self.kind in ("", "tensor"):
            return 0, 0, 0
        row, block = strides[-2:]
        return row, block if self.by_block else 0, strides[0] if self.by_expert else 0


class Product(NamedTuple, Generic[A]):
    """The checked arguments: codes [M, K] and [N, K], or [experts, N, K], the order, rows of each expert, formats.

    formats: bit 0 is set where `a` is E5M2, bit 1 where `b` is.
    """

    a: A
    b: A
    a_scales: Scales[A]
    b_scales: Scales[A]
    order: Order
    rows: list[int] | None
    formats: int
    narrow: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.a.shape[0], self.b.shape[-2], self.a.shape[1]

    @property
    def scaling(self) -> int:
        """UNSCALED, BY_BLOCK or WHOLE."""
        if self.a_scales.by_block or self.b_scales.by_block:
            return BY_BLOCK
        return UNSCALED if self.a_scales.x is None and self.b_scales.x is None else WHOLE

    def scales_first(self, rows: int) -> bool:
        """Whether the two scales of a result are multiplied before anything else (N19.5).

        rows: of the part. An expert's is a product of its own (N19.8): the one scale of a single row is per tensor.
        """
        kinds = [self.a_scales.kind, self.b_scales.kind]
        if self.scaling == BY_BLOCK:
            return "squares" in kinds
        return kinds != ["rows", "rows"] or 1 in (rows, self.b.shape[-2])

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """Yield (expert, first row, rows) of every product that has results."""
        counts = [self.a.shape[0]] if self.rows is None else self.rows
        for expert, (count, end) in enumerate(zip(counts, itertools.accumulate(counts), strict=True)):
            if count and self.b.shape[-2]:
                yield expert, end - count, count


def matmul_fp8(
    call: Call[A],
    a: Any,
    b: Any,
    a_scales: Any = None,
    b_scales: Any = None,
    order: str = "promote128",
    out: Any = "float32",
    splits: Sequence[int] | None = None,
    a_format: str = "E4M3",
    b_format: str = "E4M3",
) -> Product[A]:
    """Multiply matrices of FP8 codes, a @ b.T, to the bit of a named order of Hopper's tensor cores (N19).

    Args:
        a: codes u8 [M, K], K at least 1.
        b: codes u8 [N, K]; with `splits` [experts, N, K].
        a_scales: None, or E8M0 bytes u8 or float32 in the shapes of `refnum.matmul_fp8`. A device does not
            refuse a scale that is NaN or Inf: its results are NaN or infinite.
        b_scales: the same of `b`.
        order: "chain", "promote<n>", "split<s>" or "split<s>-chain".
        out: "float32", "bfloat16", or the array to write, of one of these dtypes.
        splits: rows of `a` of each expert, None for one product.
        a_format: "E4M3" or "E5M2".
        b_format: "E4M3" or "E5M2".

    Returns:
        float32 or bfloat16 [M, N]. Every NaN is 0x7FFFFFFF, in bfloat16 0x7FFF.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    left = call.codes("a", a, 1)
    rows = None if splits is None else checks.row_splits(splits, left.shape[0]).tolist()
    right = _right(call, b, left, None if rows is None else len(rows))
    (m, k), n = left.shape, right.shape[-2]
    formats = checks.choice("a_format", a_format, FORMATS) + 2 * checks.choice("b_format", b_format, FORMATS)
    pair = (
        _scales(call, "a_scales", a_scales, m, k, left, squares=rows is None),
        _scales(call, "b_scales", b_scales, n, k, left, experts=None if rows is None else len(rows)),
    )
    dtype = checks.output_dtype(out)[1] if isinstance(out, str) else call.look("out", out).dtype
    narrow = dtype != F32
    given = Product(left, right, *pair, order_steps(order, k), rows, formats, narrow)
    if given.scaling == BY_BLOCK and TILE // STEP % given.order.run:
        raise ArgumentError("scales of 128 elements of K need runs that lie in one block: promote32, 64, 128 or split")
    inputs = [left, right, *(s.x for s in pair if s.x is not None)]
    call.outputs(None if isinstance(out, str) else out, [((m, n), checks.BFLOAT16 if narrow else F32)], inputs)
    return given


def matmul_bf16(
    call: Call[A], a: Any, b: Any, order: str = "chain", out: Any = "float32", splits: Sequence[int] | None = None
) -> Product[A]:
    """Multiply bfloat16 matrices, a @ b.T, to the bit of a named order of Hopper's tensor cores (N19).

    Args:
        a: bfloat16, or its bits u16, [M, K], K at least 1.
        b: bfloat16, or its bits u16, [N, K]; with `splits` [experts, N, K].
        order: "chain", "promote<n>" with n a multiple of 16, "split<s>" or "split<s>-chain".
        out: "float32", "bfloat16", or the array to write, of one of these dtypes.
        splits: rows of `a` of each expert, None for one product.

    Returns:
        float32 or bfloat16 [M, N]. Every NaN is 0x7FFFFFFF, in bfloat16 0x7FFF.

    Raises:
        RefnumError: one of its named kinds for an argument that does not fit.
    """
    left = call.matrix("a", a, 1)
    if checks.KINDS.get(left.dtype) != 1:
        raise DtypeError(f"a has dtype {left.dtype}; allowed are bfloat16 and uint16 (bfloat16 bits)")
    rows = None if splits is None else checks.row_splits(splits, left.shape[0]).tolist()
    right = _right(call, b, left, None if rows is None else len(rows), 1)
    (m, k), n = left.shape, right.shape[-2]
    dtype = checks.output_dtype(out)[1] if isinstance(out, str) else call.look("out", out).dtype
    narrow = dtype != F32
    given = Product(left, right, Scales(), Scales(), order_steps(order, k, BF16_STEP), rows, 0, narrow)
    call.outputs(None if isinstance(out, str) else out, [((m, n), checks.BFLOAT16 if narrow else F32)], [left, right])
    return given


def order_steps(order: str, k: int, terms: int = STEP) -> Order:
    """Return what an order is for this K and a step of so many terms; raise ArgumentError as the model does."""
    found = ORDERS.fullmatch(order) if isinstance(order, str) else None
    if found is None:
        raise ArgumentError(f"order={shown(order)}; allowed are 'chain', 'promote<n>', 'split<s>' and 'split<s>-chain'")
    steps, blocks = -(-k // terms), checks.tiles(k)
    number = checks.count(f"the number of {order}", int(found[2] or found[3] or 1), 1)
    if found[1] == "promote":
        if number % terms:
            raise ArgumentError(f"order={order!r}; n of promote<n> must be a multiple of a step's {terms} products")
        return Order(min(number // terms, steps), steps, 1)
    if number > blocks:
        raise ArgumentError(f"{order} has more parts than K = {k} has blocks of {TILE}, {blocks}")
    part = steps if number == 1 else -(-blocks // number) * TILE // terms
    return Order(TILE // terms if found[1] else part, part, -(-steps // part))


def _right(call: Call[A], b: Any, left: A, experts: int | None, kind: int | None = None) -> A:
    """Return `b`, [N, K] or [experts, N, K], of codes, or of the `FloatKind`."""
    view = call.look("b", b)
    if checks.KINDS.get(view.dtype) != kind or (kind is None and view.dtype != U8):
        allowed = "uint8" if kind is None else "bfloat16 and uint16 (bfloat16 bits)"
        raise DtypeError(f"b has dtype {view.dtype}; allowed is {allowed}")
    if len(view.shape) != (2 if experts is None else 3) or (experts is not None and view.shape[0] != experts):
        wanted = "[N, K]" if experts is None else f"[{experts}, N, K], one matrix an expert"
        raise ShapeError(f"b has shape {view.shape}; allowed is {wanted}")
    k = left.shape[1]
    if view.shape[-1] != k or k == 0:
        raise ShapeError(f"a has K = {k} and b has K = {view.shape[-1]}; both are K-major, of one K of at least 1")
    call.check_last(view)
    call.check_beside(view, left)
    return view


def _scales(
    call: Call[A], name: str, x: Any, rows: int, k: int, left: A, experts: int | None = None, squares: bool = True
) -> Scales[A]:
    """Return checked scales; with `experts` one axis more is allowed, without `squares` those of 128x128 are not."""
    if x is None:
        return Scales()
    view = call.look(name, x)
    call.check_beside(view, left)
    if view.dtype not in (U8, F32):
        raise ScaleError(f"{name} has dtype {view.dtype}; allowed are uint8 (E8M0 bytes) and float32")
    shape = tuple(view.shape)
    call.check_finite(name, view)
    if all(n == 1 for n in shape):
        return Scales(view, "tensor")
    if experts is not None:
        if len(shape) != 3 or shape[0] != experts:
            raise ShapeError(f"{name} has shape {shape}; with {experts} splits it has three axes, {experts} first")
        shape = shape[1:]
    blocks = checks.tiles(k)
    allowed = {(checks.tiles(rows), blocks): "squares"} if squares else {}
    allowed |= {(rows, 1): "rows", (rows, blocks): "rows"}
    if shape not in allowed:
        raise ShapeError(f"{name} has shape {view.shape}; allowed are one item and {', '.join(map(str, allowed))}")
    return Scales(view, allowed[shape], shape[1] > 1, experts is not None)
