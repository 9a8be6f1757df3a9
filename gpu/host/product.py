"""The host build's FP8 products: the device kernel's arithmetic, one result after another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refnum.errors import DtypeError, ShapeError

from .. import checks
from ..checks import Outputs
from ..ops.product import F32, FORMATS, Places, order_steps, scale_places, scales_first, scaling_of
from .build import address, library

Array = np.ndarray[Any, Any]


def matmul_fp8(
    a: Array,
    b: Array,
    a_scales: Array | None = None,
    b_scales: Array | None = None,
    order: str = "promote128",
    out: Any = "float32",
    splits: Sequence[int] | None = None,
    a_format: str = "E4M3",
    b_format: str = "E4M3",
) -> Array:
    """Return a @ b.T of FP8 codes (N19) -> float32 or bfloat16 [M, N]; `out` names the dtype or is the array to write.

    Scales that are NaN or Inf are not refused here.
    """
    m, k = checks.codes("a", a, 1)
    counts = None if splits is None else checks.row_splits(splits, m).tolist()
    experts = None if counts is None else len(counts)
    n = _right(b, k, experts)
    kind = checks.choice("a_format", a_format, FORMATS) + 2 * checks.choice("b_format", b_format, FORMATS)
    pair = (_scales("a_scales", a_scales, m, k, squares=experts is None), _scales("b_scales", b_scales, n, k, experts))
    plan = order_steps(order, k)
    present = [s.places if s.items is not None else None for s in pair]
    scaling = scaling_of(present, plan)
    given, dtype = (None, checks.output_dtype(out)[1]) if isinstance(out, str) else (out, _dtype(out))
    inputs = [a, b, *(x for x in (a_scales, b_scales) if x is not None)]
    results = Outputs(given, [((m, n), dtype)], inputs)
    left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
    strides = np.array([number for s in pair for number in s.strides], np.int64)
    rows = [m] if counts is None else counts
    for expert, (count, end) in enumerate(zip(rows, itertools.accumulate(rows), strict=True)):
        if count == 0 or n == 0:
            continue
        first = end - count
        part, columns = results.arrays[0][first:end], right if experts is None else right[expert]
        places = (address(part), None) if dtype == F32 else (None, address(part))
        library().refnum_matmul_fp8(
            address(left[first:end]), address(columns), pair[0].address(first, 0), pair[1].address(0, expert),
            count, n, k, plan.run, plan.part, address(strides), scaling, scales_first(present, scaling), kind,
            *places,
        )  # fmt: skip
    return results.finish()


class _Scales(NamedTuple):
    """A contiguous array of scales, or none."""

    items: Array | None
    places: Places = Places()

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Items from a row and a block of K to the next, rows that share an item, whether an item is a float32."""
        return *self.places[:3], self.items is not None and self.items.dtype == F32

    def address(self, first_row: int, expert: int) -> int | None:
        """Return where the scales of rows from `first_row` on begin, or those of an expert."""
        if self.items is None:
            return None
        first = first_row * self.places.row + expert * self.places.expert
        return address(self.items) + first * self.items.itemsize


def _scales(name: str, x: Array | None, rows: int, k: int, experts: int | None = None, squares: bool = True) -> _Scales:
    if x is None:
        return _Scales(None)
    if not checks.plain(x):
        raise DtypeError(f"{name} is a {type(x).__name__}; the host build takes NumPy arrays")
    items = np.ascontiguousarray(x)
    strides = [n // items.itemsize for n in items.strides]
    return _Scales(items, scale_places(name, x, strides, rows, k, experts, squares))


def _right(b: Array, k: int, experts: int | None) -> int:
    """Return N of `b`, [N, K] or [experts, N, K]."""
    if not checks.plain(b) or b.dtype != np.uint8:
        raise DtypeError(f"b has dtype {checks.called(b)}; allowed is uint8")
    if b.ndim != (2 if experts is None else 3) or (experts is not None and b.shape[0] != experts):
        raise ShapeError(f"b has shape {b.shape}; allowed is {'[N, K]' if experts is None else f'[{experts}, N, K]'}")
    if b.shape[-1] != k or k == 0:
        raise ShapeError(f"a has K = {k} and b has K = {b.shape[-1]}; both are K-major, of one K of at least 1")
    return int(b.shape[-2])


def _dtype(out: Any) -> np.dtype[Any]:
    """Return the dtype of the results that the caller's array holds."""
    return F32 if getattr(out, "dtype", None) == F32 else checks.BFLOAT16
