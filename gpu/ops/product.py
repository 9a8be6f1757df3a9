"""Launcher of the model of FP8 products on CUDA cores (clause N19): every bit of a named order, far from its speed."""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refnum.errors import ArgumentError, DtypeError, ScaleError, ShapeError, shown

from .. import checks
from ..device import arrays, plans
from ..device.arrays import View
from ..device.driver import driver
from ..device.outputs import Outputs
from . import launch

KERNEL, SIDE, THREADS, STEP, TILE = "matmul_fp8", 64, 128, 32, checks.TILE
DEFINES = ("BLOCKS=3",)
FORMATS = ("E4M3", "E5M2")
NAMES = ("e4m3_e4m3", "e5m2_e4m3", "e4m3_e5m2", "e5m2_e5m2")
SCALING = ("", "_blocks", "_whole")
ORDERS = re.compile(r"chain|(promote|split)([1-9][0-9]{0,9})|split([1-9][0-9]{0,9})-chain")
U8, F32 = np.dtype(np.uint8), np.dtype(np.float32)


class ProductScales(ctypes.Structure):
    """Mirror of `refnum::ProductScales` in kernels/matmul_fp8.cu."""

    _fields_ = [
        ("items", ctypes.c_void_p), ("first", ctypes.c_int64), ("row_stride", ctypes.c_int64),
        ("block_stride", ctypes.c_int64), ("tall", ctypes.c_uint32), ("wide", ctypes.c_uint32),
    ]  # fmt: skip


class ProductArguments(ctypes.Structure):
    """Mirror of `refnum::ProductArguments` in kernels/matmul_fp8.cu."""

    _fields_ = [
        ("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("sums", ctypes.c_void_p), ("narrow", ctypes.c_void_p),
        ("a_first", ctypes.c_int64), ("b_first", ctypes.c_int64), ("out_first", ctypes.c_int64),
        ("a_stride", ctypes.c_int64), ("b_stride", ctypes.c_int64),
        ("a_scales", ProductScales), ("b_scales", ProductScales),
        ("m", ctypes.c_uint32), ("n", ctypes.c_uint32), ("k", ctypes.c_uint32),
        ("run", ctypes.c_uint32), ("part", ctypes.c_uint32), ("aligned", ctypes.c_uint32),
        ("scales_first", ctypes.c_uint32),
    ]  # fmt: skip


class Order(NamedTuple):
    """Steps of a run and of a part of K, and how many parts there are."""

    run: int
    part: int
    parts: int


def order_steps(order: str, k: int) -> Order:
    """Return what an order of `refnum.matmul_fp8` is for this K; raise ArgumentError as the model does."""
    found = ORDERS.fullmatch(order) if isinstance(order, str) else None
    if found is None:
        raise ArgumentError(f"order={shown(order)}; allowed are 'chain', 'promote<n>', 'split<s>' and 'split<s>-chain'")
    steps, blocks = -(-k // STEP), -(-k // TILE)
    number = checks.count(f"the number of {order}", int(found[2] or found[3] or 1), 1)
    if found[1] == "promote":
        if number % STEP:
            raise ArgumentError(f"order={order!r}; n of promote<n> must be a multiple of a step's {STEP} products")
        return Order(min(number // STEP, steps), steps, 1)
    if number > blocks:
        raise ArgumentError(f"{order} has more parts than K = {k} has blocks of {TILE}, {blocks}")
    part = steps if number == 1 else -(-blocks // number) * TILE // STEP
    return Order(TILE // STEP if found[1] else part, part, -(-steps // part))


class Places(NamedTuple):
    """Where scales lie: items from one row, block of K and expert to the next, and rows that share an item.

    `kind` is `tensor`, `rows` or `squares`; `by_block` says whether each 128 elements of K have a scale.
    """

    row: int = 0
    block: int = 0
    tall: int = 1
    expert: int = 0
    kind: str = "tensor"
    by_block: bool = False


def scale_places(
    name: str, x: View | np.ndarray, strides: Sequence[int], rows: int, k: int, experts: int | None, squares: bool
) -> Places:
    """Return the places of a scale array whose strides count items; raise unless its dtype and shape are allowed.

    With `experts` it has one more axis, unless it holds one item; without `squares` 128x128 is not allowed.
    """
    if x.dtype not in (U8, F32):
        raise ScaleError(f"{name} has dtype {x.dtype}; allowed are uint8 (E8M0 bytes) and float32")
    shape, expert = tuple(x.shape), 0
    if all(n == 1 for n in shape):
        return Places()
    if experts is not None:
        if len(shape) != 3 or shape[0] != experts:
            raise ShapeError(f"{name} has shape {shape}; with {experts} splits it has three axes, {experts} first")
        expert, shape, strides = strides[0], shape[1:], strides[1:]
    blocks = -(-k // TILE)
    allowed = {(-(-rows // TILE), blocks): "squares"} if squares else {}
    allowed |= {(rows, 1): "rows", (rows, blocks): "rows"}
    if shape not in allowed:
        raise ShapeError(f"{name} has shape {x.shape}; allowed are one item and {', '.join(map(str, allowed))}")
    kind, by_block = allowed[shape], shape[1] > 1
    tall = TILE if kind == "squares" else 1
    return Places(strides[0], strides[1] if by_block else 0, tall, expert, kind, by_block)


class Scales(NamedTuple):
    """A checked array of scales, or none."""

    view: View | None
    places: Places = Places()

    def argument(self, first_row: int, expert: int) -> ProductScales:
        """Return the kernel's argument for rows from `first_row` on, or for an expert."""
        if self.view is None:
            return ProductScales(None)
        places = self.places
        first = first_row * places.row + expert * places.expert
        return ProductScales(self.view.address, first, *places[:3], self.view.dtype == F32)


def _scales(
    name: str, x: Any, rows: int, k: int, beside: View, experts: int | None = None, squares: bool = True
) -> Scales:
    if x is None:
        return Scales(None)
    view = arrays.look(name, x)
    launch.neighbours(view, beside)
    strides = [n // view.dtype.itemsize for n in view.strides]
    return Scales(view, scale_places(name, view, strides, rows, k, experts, squares))


def scaling_of(given: Sequence[Places | None], plan: Order) -> int:
    """Return the position in `SCALING`; raise ArgumentError where a run lies in several blocks that have scales."""
    if not any(places and places.by_block for places in given):
        return 2 if any(given) else 0
    if TILE // STEP % plan.run:
        raise ArgumentError("scales of 128 elements of K need runs that lie in one block: promote32, 64, 128 or split")
    return 1


def _right(b: Any, experts: int | None) -> View:
    """Return the view of `b`, [N, K] or [experts, N, K]."""
    view = arrays.look("b", b)
    if view.dtype != U8:
        raise DtypeError(f"b has dtype {view.dtype}; allowed is uint8")
    axes = 2 if experts is None else 3
    if len(view.shape) != axes or (0 not in view.shape and view.shape[-1] > 1 and view.strides[-1] != 1):
        wanted = "[N, K]" if experts is None else "[experts, N, K]"
        raise ShapeError(f"b has shape {view.shape}; allowed is {wanted}, neighbours along K side by side")
    if experts is not None and view.shape[0] != experts:
        raise ShapeError(f"b has shape {view.shape}; with {experts} splits its first axis has {experts}")
    return view


def _output(out: Any) -> tuple[Any, np.dtype[Any]]:
    """Return (the caller's array or None, dtype of the results) of `out`."""
    if isinstance(out, str):
        return None, checks.output_dtype(out)[1]
    dtype = arrays.look("out", out).dtype
    return out, F32 if dtype == F32 else checks.BFLOAT16


def matmul_fp8(
    a: Any,
    b: Any,
    a_scales: Any = None,
    b_scales: Any = None,
    order: str = "promote128",
    out: Any = "float32",
    splits: Sequence[int] | None = None,
    a_format: str = "E4M3",
    b_format: str = "E4M3",
) -> Any:
    """Return a @ b.T of FP8 codes to the bit (N19) -> float32 or bfloat16 [M, N], as `refnum.matmul_fp8`.

    Args:
        a: u8 codes [M, K], any row stride.
        b: u8 codes [N, K]; with `splits` [experts, N, K].
        a_scales: None, or E8M0 bytes u8 or float32 in the shapes of `refnum.matmul_fp8`.
        b_scales: the same of `b`.
        order: "chain", "promote<n>" or "split<s>".
        out: "float32", "bfloat16", or the array to write.
        splits: rows of `a` of each expert.
        a_format: "E4M3" or "E5M2".
        b_format: "E4M3" or "E5M2".

    Returns:
        float32 or bfloat16 [M, N]. A scale that is NaN or Inf cannot be refused here: its results are NaN or Inf.

    Raises:
        DtypeError, ShapeError, ScaleError, ArgumentError.
    """
    left = launch.codes("a", a, 1)
    counts = None if splits is None else checks.row_splits(splits, left.shape[0]).tolist()
    experts = None if counts is None else len(counts)
    right = _right(b, experts)
    launch.neighbours(right, left)
    (m, k), n = left.shape, right.shape[-2]
    if right.shape[-1] != k or k == 0:
        raise ShapeError(f"a has K = {k} and b has K = {right.shape[-1]}; both are K-major, of one K of at least 1")
    kind = checks.choice("a_format", a_format, FORMATS) + 2 * checks.choice("b_format", b_format, FORMATS)
    pair = (
        _scales("a_scales", a_scales, m, k, left, squares=experts is None),
        _scales("b_scales", b_scales, n, k, left, experts),
    )
    plan = order_steps(order, k)
    places = [s.places if s.view else None for s in pair]
    scaling = scaling_of(places, plan)
    given, dtype = _output(out)
    narrow = dtype != F32
    inputs = [left, right, *(s.view for s in pair if s.view)]
    outputs = Outputs(given, [((m, n), dtype)], inputs, 4 * m * n if narrow and plan.parts > 1 else 0)
    result = outputs.views[0].address
    results = (outputs.scratch, result) if narrow else (result, None)
    function = driver().function(KERNEL, f"matmul_{NAMES[kind]}{SCALING[scaling]}", left.device, DEFINES)
    stream, aligned = left.library.stream(left.device), _aligned(left, right)
    rows = [m] if counts is None else counts
    for expert, (count, end) in enumerate(zip(rows, itertools.accumulate(rows), strict=True)):
        if count == 0 or n == 0:
            continue
        first, of_expert = end - count, 0 if experts is None else expert * right.strides[0]
        arguments = ProductArguments(
            left.address, right.address, *results, first * left.strides[0], of_expert, first * n, left.strides[0],
            right.strides[-2], pair[0].argument(first, 0), pair[1].argument(0, expert), count, n, k,
            plan.run, plan.part, aligned, scales_first(places, scaling),
        )  # fmt: skip
        plans.launch(function, left.device, (-(-n // SIDE), -(-count // SIDE)), THREADS, stream, arguments)
    return outputs.finish()


def scales_first(places: Sequence[Places | None], scaling: int) -> bool:
    """Whether the two scales of a result are multiplied before anything else (N19.5)."""
    kinds = [p.kind for p in places if p is not None]
    return "squares" in kinds if scaling == 1 else kinds != ["rows", "rows"]


def _aligned(left: View, right: View) -> int:
    """Whether 16 bytes of any row can be read at once."""
    return int(all(n % 16 == 0 for v in (left, right) for n in (v.address, *v.strides[:-1])))
