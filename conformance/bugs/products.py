"""Wrong rules of matrix products (N19): a step of other precision, other rounding, another largest exponent.

The sums are exact in float64, whose 53 bits hold every sum of 33 terms that are cut as wide as here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refnum import softfloat
from refnum.codec import decode_table
from refnum.formats import get_format
from refnum.layouts import scales_to_layout
from refnum.product import ScalePair, parse_order, scale_pair
from refnum.tensor_core import INSTRUCTIONS, tensor_core_step
from refnum.tiles import TILE

from ..cases.case import Case
from ..cases.crop import experts_of, of_experts
from .tools import INF, MAGNITUDE, Outputs, Rule, changed

FACTS = INSTRUCTIONS["wgmma_fp8"]
LOWEST, ZERO = -126, -133
"""Exponents of the smallest normal float32 and of a term that is zero."""


@dataclass(frozen=True)
class Step:
    """What a faulty step does: bits that terms and results keep, and what differs beside them."""

    term_bits: int = FACTS.fraction_bits
    result_bits: int = FACTS.result_bits
    nearest: bool = False
    nearest_result: bool = False
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
        if self.zeros_join and a.values.shape[1] < FACTS.terms:  # what fills the step are products of zeros
            top = np.maximum(top, a.lowest + b.lowest)
        cut, cut_result = (np.rint if nearest else np.trunc for nearest in (self.nearest, self.nearest_result))
        whole = (cut(products / unit[:, :, None]).sum(axis=2) + cut(total / unit)) * unit
        last = np.ldexp(1.0, np.maximum(np.frexp(whole)[1] - 1, LOWEST) - self.result_bits)
        return np.asarray(cut_result(whole / last) * last)


@dataclass(frozen=True)
class Fused:
    """A step that adds one product after another in float32, each fused: no tensor core's."""

    def __call__(self, a: _Side, b: _Side, total: np.ndarray) -> np.ndarray:
        """Return the sums [M, N] after one more step."""
        bits, left, right = (x.astype(np.float32).view(np.uint32) for x in (total, a.values, b.values))
        for k in range(left.shape[1]):
            bits = softfloat.multiply_add(*np.broadcast_arrays(left[:, k, None], right[None, :, k], bits))
        return np.asarray(bits.view(np.float32).astype(np.float64))


@dataclass(frozen=True)
class _Side:
    """An operand: codes, and values and written exponents of the finite ones, float64 and i64 [R, K]."""

    codes: np.ndarray
    values: np.ndarray
    exponents: np.ndarray
    lowest: int
    """The exponent of subnormal numbers."""

    def cut(self, terms: slice) -> _Side:
        return _Side(self.codes[:, terms], self.values[:, terms], self.exponents[:, terms], self.lowest)


def _side(case: Case, name: str) -> _Side:
    fmt, codes = get_format(str(case.params[f"{name}_format"])), case.inputs[name]
    field = (codes.astype(np.int64) & 0x7F) >> fmt.mantissa_bits
    values = decode_table(fmt)[codes].view(np.float32).astype(np.float64)
    return _Side(codes, np.where(np.isfinite(values), values, 0), np.maximum(field, 1) - fmt.bias, 1 - fmt.bias)


def each_expert(rule: Rule) -> Rule:
    """Return a rule that is applied to the product of every expert that has rows (N19.8)."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        if not of_experts(case):
            return rule(case, golden)
        values, applied = golden["values"].copy(), False
        for rows, one in experts_of(case):
            found = rule(one, {"values": golden["values"][rows]})
            if found is not None:
                values[rows], applied = found["values"].view(values.dtype), True
        return {"values": values} if applied else None

    return wrong


Take = Callable[["_Side", "_Side", np.ndarray], np.ndarray]
"""The float32 bits of the sums [M, N] after one more step, from those before it."""


def stepped(step: Step | Fused) -> Rule:
    """Make a wrong rule that is a product by a faulty step; NaN and infinite terms are the right one's."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        special = {name: bool((~np.isfinite(_values(case, name))).any()) for name in ("a", "b")}

        def take(a: _Side, b: _Side, bits: np.ndarray) -> np.ndarray:
            finite = np.where((bits & MAGNITUDE) >= INF, np.uint32(0), bits).view(np.float32).astype(np.float64)
            found = step(a, b, finite).astype(np.float32).view(np.uint32)
            if not any(special.values()):
                return found
            right = _right(case, a, b, bits)
            return np.where((right & MAGNITUDE) >= INF, right, found)

        return _finished(case, golden, functools.reduce(softfloat.add, _part_sums(case, take)))

    return each_expert(wrong)


def _right(case: Case, a: _Side, b: _Side, bits: np.ndarray) -> np.ndarray:
    """Return what the right step gives."""
    left, right = (np.ascontiguousarray(side.codes) for side in (a, b))
    formats = str(case.params["a_format"]), str(case.params["b_format"])
    return np.asarray(tensor_core_step(left, right, bits.view(np.float32), "wgmma_fp8", *formats)).view(np.uint32)


def _values(case: Case, name: str) -> np.ndarray:
    return decode_table(get_format(str(case.params[f"{name}_format"])))[case.inputs[name]].view(np.float32)


def _scales(case: Case) -> ScalePair:
    a, b = case.inputs["a"], case.inputs["b"]
    return scale_pair(case.inputs.get("a_scales"), case.inputs.get("b_scales"), len(a), len(b), a.shape[1])


def _part_sums(case: Case, take: Take) -> list[np.ndarray]:
    """Return the float32 bits of every part's sum, scaled by block."""
    a, b, scales, plan = (
        _side(case, "a"),
        _side(case, "b"),
        _scales(case),
        parse_order(str(case.params["order"]), FACTS),
    )
    sums = []
    for runs in plan.ranges(a.values.shape[1]):
        total = zero = np.zeros((len(a.values), len(b.values)), np.uint32)
        for start, stop in runs:
            run = zero
            for first in range(start, stop, FACTS.terms):
                terms = slice(first, min(first + FACTS.terms, stop))
                run = take(a.cut(terms), b.cut(terms), run)
            if scales.by_block:
                total = scales.add_scaled(total, run, start // TILE)
            else:
                total = run if plan.run is None else softfloat.add(total, run)
        sums.append(total)
    return sums


def _finished(case: Case, golden: Outputs, bits: np.ndarray) -> Outputs:
    """Return the outputs of a whole sum: scaled, NaN made canonical, narrowed."""
    scales = _scales(case)
    whole = not scales.by_block and not scales.absent
    return _narrowed(case, golden, scales.scale_sum(bits) if whole else bits)


def _narrowed(case: Case, golden: Outputs, bits: np.ndarray) -> Outputs:
    nan = (bits & MAGNITUDE) > INF
    if case.params["out"] == "bfloat16":
        return {"values": np.where(nan, np.uint16(0x7FFF), softfloat.to_bfloat16(bits)).view(golden["values"].dtype)}
    return {"values": np.where(nan, np.uint32(0x7FFFFFFF), bits).view(golden["values"].dtype)}


@each_expert
def zero_kept_its_sign(case: Case, golden: Outputs) -> Outputs | None:
    """Multiply a whole sum by the product of its scales and add no +0: an exact zero keeps its sign."""
    scales = _scales(case)
    if scales.by_block or scales.absent or not scales.scales_first:
        return None
    sums = functools.reduce(softfloat.add, _part_sums(case, functools.partial(_right, case)))
    return _narrowed(case, golden, softfloat.multiply(sums, softfloat.multiply(*scales.factors(0))))


Relaid = Callable[[np.ndarray], np.ndarray]


def with_scales(relaid: Relaid, names: tuple[str, ...] = ("a_scales", "b_scales")) -> Rule:
    """Make a wrong rule that reads scales of blocks of K of some operands in another way."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        by_block = {name: case.inputs[name] for name in names if name in case.inputs}
        by_block = {name: scales for name, scales in by_block.items() if scales.size > 1 and scales.shape[1] > 1}
        changes = {name: np.ascontiguousarray(relaid(scales)) for name, scales in by_block.items()}
        return changed(case, **changes) if changes else None

    return each_expert(wrong)


def turned(scales: np.ndarray) -> np.ndarray:
    """Return scales as they are read down the rows first."""
    return scales.reshape(scales.shape[::-1]).T


def first_block(scales: np.ndarray) -> np.ndarray:
    """Return the first block's scales in the place of every block's."""
    return np.repeat(scales[:, :1], scales.shape[1], axis=1)


def next_block(scales: np.ndarray) -> np.ndarray:
    """Return every block's scales moved on by one; the last block keeps its own."""
    return np.concatenate([scales[:, 1:], scales[:, -1:]], axis=1)


def swizzled(scales: np.ndarray) -> np.ndarray:
    """Return what plain rows read where bytes are stored in tiles of 128x4 (N6.5)."""
    if scales.dtype != np.uint8:
        return scales
    return scales_to_layout(scales, "swizzled").reshape(-1)[: scales.size].reshape(scales.shape)


def parts_raced(twice: bool) -> Rule:
    """Make a wrong rule of a split product: its last part is added twice, or overwrites the others."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        sums = (
            _part_sums(case, functools.partial(_right, case)) if str(case.params["order"]).startswith("split") else []
        )
        if len(sums) < 2:
            return None
        return _finished(case, golden, functools.reduce(softfloat.add, [*sums, sums[-1]] if twice else sums[-1:]))

    return each_expert(wrong)


def in_order(order: str) -> Rule:
    """Make a wrong rule that takes another order, without scales by block."""

    def wrong(case: Case, golden: Outputs) -> Outputs | None:
        by_block = any(scales.size > 1 and scales.shape[1] > 1 for name, scales in case.inputs.items() if "_" in name)
        return None if by_block or case.params["order"] == order else changed(case, order=order)

    return each_expert(wrong)
