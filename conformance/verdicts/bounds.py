"""Results of products against the bounds over all orders (N19.7), where they are not the named order's."""

from __future__ import annotations

from typing import Any

import numpy as np

import refnum
from refnum import softfloat

from ..cases.case import Case
from ..cases.crop import experts_of

FIRST = 64
"""Results that are looked at before all others: most wrong answers show there."""


def within_bounds(case: Case, observed: np.ndarray, where: np.ndarray) -> bool:
    """Return whether some order may give all results of a product, see `beyond_bounds`."""
    first = where & (np.cumsum(where).reshape(where.shape) <= FIRST)
    return not beyond_bounds(case, observed, first).any() and not beyond_bounds(case, observed, where & ~first).any()


def beyond_bounds(case: Case, observed: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return which results of a product no order gives.

    Args:
        case: the product.
        observed: its results as bits, u32 (float32) or u16 (bfloat16), [M, N].
        where: bool [M, N], the results to look at; the others are taken to be right.

    Returns:
        bool [M, N].
    """
    beyond = where.copy()
    for rows, one in experts_of(case):
        beyond[rows] = _beyond(one, observed[rows], where[rows])
    return beyond


def _beyond(case: Case, observed: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return `beyond_bounds` of one expert's product."""
    if not where.any():
        return where
    formats = {name: case.params.get(name, "BF16") for name in ("a_format", "b_format")}
    given: dict[str, Any] = {**case.inputs, **formats}
    ends = [end.view(np.uint32) for end in refnum.product_bounds(**given, where=where)]
    if observed.itemsize == 2:  # one more rounding, which is monotone
        ends = [softfloat.to_bfloat16(end) for end in ends]
    low, value, high = (_float(x) for x in (ends[0], observed, ends[1]))
    anything = (low == -np.inf) & (high == np.inf)
    nan = np.isnan(low) & np.isnan(value)
    return np.asarray(where & ~(anything | nan | ((low <= value) & (value <= high))))


def _float(bits: np.ndarray) -> np.ndarray:
    """Return bits of float32 or bfloat16 as float32; comparisons of these are exact."""
    wide = bits if bits.itemsize == 4 else bits.astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)
