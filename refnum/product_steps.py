"""The steps of one result of a matrix product: every tensor core step with its terms as they are aligned (N19.2)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from . import softfloat
from .codec import value
from .errors import ArgumentError
from .formats import FP32, Format, get_format
from .product import Order, ScalePair, matmul_bf16, matmul_fp8, parse_order, scale_pair
from .steps import Step, show
from .tensor_core import INSTRUCTIONS, NAN, ZERO_EXPONENT, Instruction
from .tiles import TILE

PRODUCTS = {"matmul_fp8": "wgmma_fp8", "matmul_bf16": "wgmma_bf16"}
"""Operation -> the instruction whose steps it takes."""
SHOWN = 64
"""Terms that are shown one by one, at most; of a longer product those of the step that loses the most."""
_INF, _TWO = 0x7F800000, Fraction(2)


@dataclass(frozen=True)
class Term:
    """A finite term of a step that is not zero: value, its written exponent, and what it is in words."""

    name: str
    words: str
    value: Fraction
    exponent: int


@dataclass(frozen=True)
class Summed:
    """One step of a product: its terms of K, the accumulator's bits before and after, and how terms are cut.

    top: the largest exponent of the terms. unit: what terms are cut to multiples of. total: the sum of the cut terms.
    special: why the result is NaN or infinite, or empty.
    """

    first: int
    stop: int
    before: int
    after: int
    terms: list[Term] = field(default_factory=list)
    top: int = ZERO_EXPONENT
    unit: Fraction = Fraction(0)
    total: Fraction = Fraction(0)
    special: str = ""

    @property
    def lost(self) -> Fraction:
        """Return the magnitude of all that is cut from terms and sum."""
        if self.special:
            return Fraction(0)
        cut = sum((abs(term.value - toward_zero(term.value, self.unit)) for term in self.terms), Fraction(0))
        after = value(FP32, self.after)
        return cut + (abs(self.total - after) if isinstance(after, Fraction) else Fraction(0))


def toward_zero(x: Fraction, unit: Fraction) -> Fraction:
    """Return x cut toward zero to a multiple of a unit."""
    whole = abs(x) // unit * unit
    return -whole if x < 0 else whole


def summed(
    facts: Instruction, formats: Sequence[Format], a: Sequence[int], b: Sequence[int], c: int, first: int
) -> Summed:
    """Return one step on codes `a` and `b`, of which the first is term `first` of K, from an accumulator's bits."""
    stop, terms = first + len(a), list(_terms(formats, a, b, first))
    special = _special(formats, a, b, c)
    if special:
        bits, why = special
        return Summed(first, stop, c, bits, special=why)
    start = value(FP32, c)
    assert isinstance(start, Fraction)
    if start:
        terms.insert(0, Term("accumulator", f"0x{c:08X}", start, max(_floor_log2(start), -126)))
    top = max([ZERO_EXPONENT, *(term.exponent for term in terms)])
    unit = _TWO ** (top - facts.fraction_bits)
    total = sum((toward_zero(term.value, unit) for term in terms), Fraction(0))
    return Summed(first, stop, c, _result(total, facts.result_bits), terms, top, unit, total)


def _terms(formats: Sequence[Format], a: Sequence[int], b: Sequence[int], first: int) -> Iterator[Term]:
    for k, pair in enumerate(zip(a, b, strict=True), first):
        sides = [_finite(fmt, code) for fmt, code in zip(formats, pair, strict=True)]
        if 0 in sides:
            continue
        exponents = [max(_floor_log2(side), 1 - fmt.bias) for side, fmt in zip(sides, formats, strict=True)]
        parts = [side / _TWO**e for side, e in zip(sides, exponents, strict=True)]
        codes = " x ".join(f"0x{code:0{fmt.bits // 4}X}" for code, fmt in zip(pair, formats, strict=True))
        exponent = sum(exponents)
        words = f"{codes}: {show(parts[0])} x {show(parts[1])} x 2^{exponent}"
        yield Term(f"term {k}", words, sides[0] * sides[1], exponent)


def _finite(fmt: Format, code: int) -> Fraction:
    exact = value(fmt, code)
    return exact if isinstance(exact, Fraction) else Fraction(0)


def _special(formats: Sequence[Format], a: Sequence[int], b: Sequence[int], c: int) -> tuple[int, str] | None:
    """Return the bits of a step with NaN or infinities among its terms and why (N19.6), or None."""
    found = {"nan"} if (c & 0x7FFFFFFF) > _INF else set()
    if c & 0x7FFFFFFF == _INF:
        found.add("-inf" if c >> 31 else "+inf")
    for pair in zip(a, b, strict=True):
        sides = [value(fmt, code) for fmt, code in zip(formats, pair, strict=True)]
        if not any(isinstance(side, str) for side in sides):
            continue
        minus = sum(code >> (fmt.bits - 1) for fmt, code in zip(formats, pair, strict=True)) == 1
        found.add("nan" if "nan" in sides or 0 in sides else "-inf" if minus else "+inf")
    if "nan" in found or len(found) == 2:
        return int(NAN), "a term is NaN" if "nan" in found else "infinities of both signs"
    return (_INF | ("-inf" in found) << 31, "a term is infinite") if found else None


def _result(total: Fraction, kept_bits: int) -> int:
    """Return the float32 bits of a sum, cut to its significand's fraction bits."""
    if not total:
        return 0
    exponent = max(_floor_log2(total), -126)
    kept = abs(toward_zero(total, _TWO ** (exponent - kept_bits))) / _TWO ** (exponent - 23)
    assert kept.denominator == 1
    bits = min(((exponent + 126) << 23) + kept.numerator, _INF)
    return bits | (total < 0) << 31 if bits else 0


def _floor_log2(x: Fraction) -> int:
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    return exponent - (size < _TWO**exponent)


@dataclass(frozen=True)
class Entry:
    """One result of a product: the codes of its row and column, its order and scales."""

    operation: str
    a: list[int]
    b: list[int]
    formats: tuple[Format, Format]
    order: str
    scales: ScalePair
    out: str

    @property
    def facts(self) -> Instruction:
        """Return the facts of the instruction."""
        return INSTRUCTIONS[PRODUCTS[self.operation]]

    @property
    def plan(self) -> Order:
        """Return what the order's name stands for."""
        return parse_order(self.order, self.facts)


def entry_of(operation: str, arguments: Mapping[str, Any], row: int, column: int) -> tuple[Entry, int]:
    """Return one result of a call, and the bits that the model gives for it.

    Raises ArgumentError for ragged groups, and what the golden function raises.
    """
    if arguments.get("splits") is not None:
        raise ArgumentError(f"explain {operation}: give one expert's product, without splits")
    a, b = np.asarray(arguments["a"]), np.asarray(arguments["b"])
    if operation == "matmul_bf16":
        given, formats = _given(arguments, "order", "out"), ("BF16", "BF16")
        whole, scales = matmul_bf16(a, b, **given), ScalePair(None, None)
    else:
        given = _given(arguments, "a_scales", "b_scales", "order", "out", "a_format", "b_format")
        formats = given.get("a_format", "E4M3"), given.get("b_format", "E4M3")
        whole = matmul_fp8(a, b, **given)
        scales = scale_pair(given.get("a_scales"), given.get("b_scales"), len(a), len(b), a.shape[1])
    if not (row < whole.shape[0] and column < whole.shape[1]):
        raise ArgumentError(f"result ({row}, {column}) is outside the product of shape {whole.shape}")
    lines = [x.view(f"u{x.itemsize}")[i].tolist() for x, i in ((a, row), (b, column))]
    order = str(given.get("order", "chain" if operation == "matmul_bf16" else "promote128"))
    cut = scales.cut(slice(row, row + 1), slice(column, column + 1))
    pair = get_format(formats[0]), get_format(formats[1])
    found = Entry(operation, lines[0], lines[1], pair, order, cut, str(whole.dtype))
    return found, int(whole[row, column].view(f"u{whole.itemsize}"))


def _given(arguments: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: arguments[name] for name in names if name in arguments}


def taken(entry: Entry) -> tuple[list[Summed], list[Step], int]:
    """Return all steps of a result in order, what is done with their results in words, and the float32 bits."""
    steps: list[Summed] = []
    after: list[Step] = []
    sums = []
    for runs in entry.plan.ranges(len(entry.a)):
        total = _word(0)
        for start, stop in runs:
            steps += _run(entry, start, stop)
            last, name = _word(steps[-1].after), f"run {start}-{stop - 1}"
            if entry.scales.by_block:
                total = entry.scales.add_scaled(total, last, start // TILE)
                after.append(_bits_step(name, "times its scales, added to the sum", total, "N19.5"))
            elif entry.plan.run is not None:
                total = softfloat.add(total, last)
                after.append(_bits_step(name, "added to the sum in float32", total, "N19.4"))
            else:
                total = last
        sums.append(total)
    total = functools.reduce(softfloat.add, sums)
    if len(sums) > 1:
        after.append(_bits_step("parts", f"{len(sums)} sums added in float32", total, "N19.4"))
    if not entry.scales.by_block and not entry.scales.absent:
        total = entry.scales.scale_sum(total)
        after.append(_bits_step("scales", "the sum times both scales", total, "N19.5"))
    bits = int(total[0, 0])
    return steps, after, int(NAN) if bits & 0x7FFFFFFF > _INF else bits


def _run(entry: Entry, start: int, stop: int) -> list[Summed]:
    steps: list[Summed] = []
    for first in range(start, stop, entry.facts.terms):
        terms = slice(first, min(first + entry.facts.terms, stop))
        c = steps[-1].after if steps else 0
        steps.append(summed(entry.facts, entry.formats, entry.a[terms], entry.b[terms], c, first))
    return steps


def _word(bits: int) -> np.ndarray:
    return np.array([[bits]], np.uint32)


def _bits_step(name: str, words: str, total: Any, clause: str) -> Step:
    bits = int(total[0, 0])
    exact = value(FP32, bits) if bits & 0x7FFFFFFF <= _INF else "nan"
    return Step(name, f"{words}: {show(exact)}, bits 0x{bits:08X}", clause)


def product_steps(
    operation: str, arguments: Mapping[str, Any], row: int, column: int, at: int | None = None
) -> tuple[list[Step], int]:
    """Return the steps of one result of a matrix product, and its bits.

    Args:
        operation: a key of `PRODUCTS`.
        arguments: those of the golden function by name.
        row: of `a`.
        column: of the result, a row of `b`.
        at: the term of K whose step's terms are shown one by one; None is every step of a short product.

    Raises:
        ArgumentError, and what the golden function raises. AssertionError if these steps contradict the model.
    """
    entry, bits = entry_of(operation, arguments, row, column)
    steps, after, total = taken(entry)
    narrow = total if entry.out == "float32" else _narrowed(total)
    assert narrow == bits, f"the model's bits 0x{bits:X} are not those of its steps, 0x{narrow:X}"
    shown = _shown(steps, at)
    found = [_operands(entry, row, column, len(steps))]
    for number, one in enumerate(steps):
        found += step_lines(entry.facts, one, number, one in shown)
    found += after
    if entry.out != "float32":
        found.append(Step("out", f"rounded to bfloat16: 0x{bits:04X}", "N19.8"))
    return found, bits


def _narrowed(bits: int) -> int:
    if bits & 0x7FFFFFFF > _INF:
        return 0x7FFF
    return int(softfloat.to_bfloat16(np.array([bits], np.uint32))[0])


def _shown(steps: list[Summed], at: int | None) -> list[Summed]:
    if at is not None:
        return [one for one in steps if one.first <= at < one.stop]
    if sum(len(one.terms) for one in steps) <= SHOWN:
        return steps
    return [max(steps, key=lambda one: one.lost)]


def _operands(entry: Entry, row: int, column: int, steps: int) -> Step:
    names = " x ".join(fmt.name for fmt in entry.formats)
    words = f"row {row} of a, row {column} of b: {len(entry.a)} terms"
    return Step("operands", f"{words}; {names}, order {entry.order}, {steps} step{'s' * (steps > 1)}", "N19.4")


def step_lines(facts: Instruction, one: Summed, number: int, terms: bool) -> list[Step]:
    """Return a step in a line, or with its terms as they are aligned, one a line."""
    name, where = f"step {number}", f"terms {one.first} to {one.stop - 1}"
    if one.special:
        return [Step(name, f"{where}: {one.special}, bits 0x{one.after:08X}", "N19.6")]
    place = one.top - facts.fraction_bits
    head = f"{where}: largest exponent {one.top}, each is cut to a multiple of 2^{place}"
    last = value(FP32, one.after)
    bits = f"{show(last)}, bits 0x{one.after:08X}"
    if not terms:
        return [Step(name, f"{head}; {bits}", "N19.2")]
    lines = [Step(name, head, "N19.2")]
    for term in one.terms:
        kept = toward_zero(term.value, one.unit)
        rest = "" if kept == term.value else f", kept {show(kept)}, cut {show(term.value - kept)}"
        lines.append(Step(term.name, f"{term.words} = {show(term.value)}{rest}", "N19.2"))
    cut = "" if one.total == last or isinstance(last, str) else f", cut {show(one.total - last)}"
    words = f"{show(one.total)}{cut}, {facts.result_bits} fraction bits: {bits}"
    return [*lines, Step("sum", words, "N19.2")]
