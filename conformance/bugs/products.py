"""Wrong rules of matrix products (N19): a step of other precision, other rounding, another largest exponent.

The sums are exact in float64, whose 53 bits hold every sum of 33 terms that are cut as wide as here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refnum import softfloat
from refnum.codec import decode_table
from refnum.formats import Format, get_format
from refnum.product import parse_order
from refnum.tensor_core import INSTRUCTIONS

from ..cases.case import Case
from .tools import Outputs, Rule, changed

FACTS = INSTRUCTIONS["wgmma_fp8"]
LOWEST, ZERO = -126, -133
"""Exponents of the smallest normal float32 and of a term that is zero."""


@dataclass(frozen=True)
class Step:
    """What a faulty step does: bits that terms and results keep, and what differs beside them."""

    term_bits: int = FACTS.fraction_bits
    result_bits: int = FACTS.result_bits
    nearest: bool = False
    normalised: bool = False
    zeros_join: bool = False
    products_alone: bool = False

    def __call__(self, a: _Side, b: _Side, total: np.ndarray) -> np.ndarray:
        """Return the sums [M, N] after one more step."""
        products = a.values[:, None, :] * b.values[None, :, :]
        exponents = a.exponents[:, None, :] + b.exponents[None, :, :]
        if self.normalised:
            exponents = np.where(products == 0, exponents, np.frexp(products)[1] - 1)
        if not self.zeros_join:
            exponents = np.where(products == 0, ZERO, exponents)
        top = np.maximum(exponents.max(axis=2), ZERO)
        if not self.products_alone:
            top = np.maximum(top, np.where(total == 0, ZERO, np.maximum(np.frexp(total)[1] - 1, LOWEST)))
        unit = np.ldexp(1.0, top - self.term_bits)
        cut = np.rint if self.nearest else np.trunc
        whole = (cut(products / unit[:, :, None]).sum(axis=2) + cut(total / unit)) * unit
        last = np.ldexp(1.0, np.maximum(np.frexp(whole)[1] - 1, LOWEST) - self.result_bits)
        return np.asarray(cut(whole / last) * last)


@dataclass(frozen=True)
class _Side:
    """An operand: values and written exponents, float64 and i64 [R, K]."""

    values: np.ndarray
    exponents: np.ndarray

    def cut(self, terms: slice) -> _Side:
        return _Side(self.values[:, terms], self.exponents[:, terms])


def _side(fmt: Format, codes: np.ndarray) -> _Side:
    field = (codes.astype(np.int64) & 0x7F) >> fmt.mantissa_bits
    return _Side(decode_table(fmt)[codes].view(np.float32).astype(np.float64), np.maximum(field, 1) - fmt.bias)


def stepped(step: Step) -> Rule:
    """Make a wrong rule that is a product of finite codes without scales, by a faulty step."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        a, b = (_side(get_format(str(case.params[f"{name}_format"])), case.inputs[name]) for name in ("a", "b"))
        finite = np.isfinite(a.values).all() and np.isfinite(b.values).all()
        if not finite or {"a_scales", "b_scales"} & set(case.inputs):
            return None
        parts = parse_order(str(case.params["order"]), FACTS).ranges(a.values.shape[1])
        sums = [_part(step, a, b, runs) for runs in parts]
        total = sums[0]
        for other in sums[1:]:
            total = softfloat.add(total, other)
        narrow = case.params["out"] == "bfloat16"
        return {"values": (softfloat.to_bfloat16(total) if narrow else total).view(golden["values"].dtype)}

    return wrong


def _part(step: Step, a: _Side, b: _Side, runs: list[tuple[int, int]]) -> np.ndarray:
    """Return the float32 bits of a part: runs by steps, added up where there are several."""
    total = np.zeros((len(a.values), len(b.values)), np.uint32)
    for start, stop in runs:
        sums = np.zeros(total.shape)
        for first in range(start, stop, FACTS.terms):
            terms = slice(first, min(first + FACTS.terms, stop))
            sums = step(a.cut(terms), b.cut(terms), sums)
        bits = sums.astype(np.float32).view(np.uint32)
        total = bits if len(runs) == 1 else softfloat.add(total, bits)
    return total


def scales_transposed(case: Case, golden: Outputs) -> Outputs | None:
    """The scales of `a` by block are read down its rows first."""
    scales = case.inputs.get("a_scales")
    if scales is None or 1 in scales.shape:
        return None
    return changed(case, a_scales=np.ascontiguousarray(scales.reshape(scales.shape[::-1]).T))


def in_order(order: str) -> Rule:
    """Make a wrong rule that takes another order, without scales by block."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        by_block = any(scales.size > 1 and scales.shape[1] > 1 for name, scales in case.inputs.items() if "_" in name)
        return None if by_block or case.params["order"] == order else changed(case, order=order)

    return wrong
