"""Conditions over values: a class of element, alone or beside another at some relation of places."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from refnum.arrays import unpack_nibbles
from refnum.formats import BF16, FP16, FP32, Format

from ....cases.entry import Operation
from ....cases.recipes.distributions import layout_of, target_of
from .call import Call
from .condition import Condition, Facts
from .sizes import Maker

FLOATS = {"float32": FP32, "float16": FP16, "bfloat16": BF16, "uint16": BF16}
ELEMENTS = ("x", "gate", "up", "grad", "rows", "codes", "packed")
VECTORS = ("prob", "weights")
VALUED: list[Maker] = []
Test = Callable[[np.ndarray, Format, int], np.ndarray]
"""(magnitudes, format, mantissa bits of the element that they are rounded to) -> which ones are of a class."""


def valued(maker: Maker) -> Maker:
    """Register a maker of conditions."""
    VALUED.append(maker)
    return maker


def infinity(fmt: Format) -> int:
    """Return the magnitude code of infinity, or one that no code has."""
    return fmt.inf_code if fmt.inf_code is not None else top(fmt)


def top(fmt: Format) -> int:
    """Return the number of magnitude codes."""
    return fmt.sign_mask or 1 << fmt.bits


def is_tie(magnitude: np.ndarray, fmt: Format, kept: int) -> np.ndarray:
    """Return which normal magnitudes lie halfway between two values of `kept` mantissa bits."""
    low = fmt.mantissa_bits - kept - 1
    if low < 0:
        return np.zeros(magnitude.shape, bool)
    normal = (magnitude >= 1 << fmt.mantissa_bits) & (magnitude <= fmt.max_code)
    return normal & (magnitude & (2 << low) - 1 == 1 << low)


CLASSES: dict[str, Test] = {
    "zero": lambda m, fmt, kept: m == 0,
    "subnormal": lambda m, fmt, kept: (m > 0) & (m < 1 << fmt.mantissa_bits),
    "tie": is_tie,
    "maximum": lambda m, fmt, kept: m == fmt.max_code,
    "Inf": lambda m, fmt, kept: m == infinity(fmt),
    "NaN": lambda m, fmt, kept: (m > max(fmt.max_code, fmt.inf_code or 0)) & (m < top(fmt)),
}
"""Class of element -> which magnitudes are of it; each has two signs."""
WHOLE = ("zero", "maximum", "Inf", "NaN")
"""Classes of which a whole input may be."""

SCALES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "zero byte": lambda s: s == 0,
    "byte of 1 to 8": lambda s: (s > 0) & (s < 9),
    "byte of 246 to 254": lambda s: (s > 245) & (s < 255),
    "NaN byte": lambda s: s == 255,
}
"""Class of scale byte -> which bytes are of it."""

SPANS = (2, 4, 8, 16, 32, 64, 128, 256)
"""Elements of an aligned group in whose two halves two elements stand: a packed pair, words, blocks, tiles."""


@dataclass(frozen=True)
class Kind:
    """A class of element of a sign, as it is drawn. negative: its sign."""

    name: str
    negative: bool

    def __str__(self) -> str:
        return f"{'-' if self.negative else '+'}{self.name}"

    def found(self, bits: np.ndarray, fmt: Format, kept: int) -> np.ndarray:
        """Return which patterns are of the class."""
        if fmt.kind == "integer":
            return _integer(bits, fmt, self)
        magnitude, sign = bits & (top(fmt) - 1), bits & fmt.sign_mask
        return CLASSES[self.name](magnitude, fmt, kept) & ((sign > 0) == self.negative)

    def pattern(self, fmt: Format, kept: int, dice: Random) -> int | None:
        """Return a pattern of the class, None where the format has none."""
        every = _alphabet(fmt)
        of = every[self.found(every, fmt, kept)]
        near = of[np.abs((of & np.uint32(top(fmt) - 1)).astype(np.int64) - (fmt.bias << fmt.mantissa_bits))
                  < 8 << fmt.mantissa_bits] if self.name == "tie" else of  # fmt: skip
        chosen = near if near.size else of
        return int(chosen[dice.randrange(chosen.size)]) if chosen.size else None


@functools.cache
def _alphabet(fmt: Format) -> np.ndarray:
    """Return the patterns that are planted: all of 16 bits; of wider ones the ends and exponents in the middle."""
    if fmt.bits <= 16:
        return np.arange(1 << fmt.bits, dtype=np.uint32)
    ends = [np.arange(64), np.arange(fmt.max_code - 64, fmt.max_code + 65), fmt.sign_mask - 1 - np.arange(64)]
    middle = (np.arange(120, 135)[:, None] << 23 | np.arange(16)[None, :] << 19).reshape(-1)
    every = np.concatenate([*ends, [0x7FC00000], middle]).astype(np.uint32)
    return np.concatenate([every, every | np.uint32(fmt.sign_mask)])


def _integer(bits: np.ndarray, fmt: Format, kind: Kind) -> np.ndarray:
    """Classes of two's complement: zero, the smallest, the largest of each sign, and odd halves."""
    low = {"zero": 0, "subnormal": 1, "maximum": fmt.max_code}.get(kind.name)
    if low is None or (kind.negative and not low):
        return np.zeros(bits.shape, bool)
    return bits == ((1 << fmt.bits) - low if kind.negative else low)


def format_of(operation: Operation, name: str, array: np.ndarray, element: Any) -> tuple[Format, int]:
    """Return the format of an input's elements, and the mantissa bits that stay when they are rounded.

    element: the format or its name, for an operation that takes one.
    """
    params = {"element": getattr(element, "name", element)} if "element" in operation.params else {}
    if name in ("codes", "packed"):
        fmt = layout_of(operation.name, params).element
        return fmt, fmt.mantissa_bits - 1
    return FLOATS[array.dtype.name], target_of(operation.name, params).element.mantissa_bits


def patterns(call: Call, name: str) -> tuple[np.ndarray, Format, int] | None:
    """Return (patterns u [M, K], their format, mantissa bits that stay when rounded) of an input of elements."""
    array = call.array(name)
    if array is None or array.ndim != 2 or not (array.dtype == np.uint8 or array.dtype.name in FLOATS):
        return None
    fmt = format_of(call.operation, name, array, call.arguments.get("element", "E2M1"))
    bits = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return unpack_nibbles(bits) if name == "packed" else bits, *fmt


def draw_kind(dice: Random) -> Kind:
    """Draw a class and a sign."""
    return Kind(dice.choice(list(CLASSES)), dice.random() < 0.5)


def facing(one: np.ndarray, other: np.ndarray, span: int, axis: int, swapped: bool) -> np.ndarray:
    """Return where `one` stands in one half of a group of `span` whose other half has an element of `other`.

    one, other: bool [M, K]. swapped: whether `one` stands in the upper half.
    """
    if axis == 0:
        return facing(one.T, other.T, span, 1, swapped).T
    rows, columns = one.shape
    whole = -(-columns // span) * span
    wide = [np.zeros((rows, whole), bool) for _ in range(2)]
    wide[0][:, :columns], wide[1][:, :columns] = one, other
    first, second = (part.reshape(rows, whole // span, 2, span // 2) for part in wide)
    hit = np.zeros(first.shape, bool)
    mine, its = (1, 0) if swapped else (0, 1)
    hit[:, :, mine] = first[:, :, mine] & second[:, :, its].any(axis=-1, keepdims=True)
    return hit.reshape(rows, whole)[:, :columns]


def _names(operation: Operation) -> list[str]:
    return [name for name in operation.inputs if name in ELEMENTS]


@valued
def one_class(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """An element of a class, anywhere."""
    names = _names(operation)
    if not names:
        return None
    name, kind = dice.choice(names), draw_kind(dice)

    def places(call: Call) -> np.ndarray | None:
        given = patterns(call, name)
        return None if given is None else np.argwhere(kind.found(*given))

    return _condition("value", f"{name} has {kind}", places, {f"values:{name}": [(kind, 0, 0)]})


@valued
def uniform(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """An input of nothing but elements of one class."""
    names = _names(operation)
    if not names:
        return None
    name, kind = dice.choice(names), Kind(dice.choice(WHOLE), dice.random() < 0.5)

    def places(call: Call) -> np.ndarray | None:
        given = patterns(call, name)
        if given is None:
            return None
        found = kind.found(*given)
        return np.argwhere(found) if found.size > 1 and found.all() else None

    return _condition("uniform input", f"{name} is {kind} all over", places, {f"all:{name}": kind})


@valued
def pair(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """An element of one class beside one of another, in the halves of an aligned group along a row or a column."""
    names = _names(operation)
    if not names:
        return None
    name, one, other = dice.choice(names), draw_kind(dice), draw_kind(dice)
    axis, swapped = int(dice.random() < 0.75), dice.random() < 0.5
    span = dice.choice(SPANS) if axis else dice.choice((2, 32, 64, 128, 256))

    def places(call: Call) -> np.ndarray | None:
        given = patterns(call, name)
        if given is None:
            return None
        return np.argwhere(facing(one.found(*given), other.found(*given), span, axis, swapped))

    words = f"{name} has {one} in the {'upper' if swapped else 'lower'} half of {span} {'columns' if axis else 'rows'} "
    away = dice.randrange(span // 2), dice.randrange(span // 2) + span // 2
    mine, its = away[::-1] if swapped else away
    plant = [(one, *((0, mine) if axis else (mine, 0))), (other, *((0, its) if axis else (its, 0)))]
    wants = {f"values:{name}": plant, "least columns" if axis else "least rows": max(256, span)}
    return _condition("pair of values", f"{words}whose other half has {other}", places, wants)


@valued
def two_inputs(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """An element of a class in one input over one of another class in the next input, at the same place."""
    names = [name for name in _names(operation) if name in ("gate", "up", "grad")]
    if len(names) < 2:
        return None
    first, second = dice.sample(names, 2)
    one, other = draw_kind(dice), draw_kind(dice)

    def places(call: Call) -> np.ndarray | None:
        here, there = patterns(call, first), patterns(call, second)
        return None if here is None or there is None else np.argwhere(one.found(*here) & other.found(*there))

    return _condition("pair of inputs", f"{first} has {one} where {second} has {other}", places,
                      {f"values:{first}": [(one, 0, 3)], f"values:{second}": [(other, 0, 3)]})  # fmt: skip


@valued
def vector_and_row(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """A weight or probability of a class, over a row that has an element of another class."""
    vectors = [name for name in operation.optional if name in VECTORS]
    if not vectors:
        return None
    vector, name = vectors[0], dice.choice(_names(operation))
    weight, kind = draw_kind(dice), draw_kind(dice)

    def places(call: Call) -> np.ndarray | None:
        given, factors = patterns(call, name), call.array(vector)
        if given is None or factors is None or factors.dtype.name not in FLOATS:
            return None
        bits = np.ascontiguousarray(factors).view(f"u{factors.itemsize}")
        chosen = weight.found(bits, FLOATS[factors.dtype.name], 0)
        rows = np.zeros(given[0].shape[0], bool)
        at = padded_rows(call) if call.routed else np.arange(chosen.size)
        rows[at[chosen]] = True
        return np.argwhere(kind.found(*given) & rows[:, None])

    wants = {f"given:{vector}": True, f"values:{vector}": [(weight, 0, 0)], f"values:{name}": [(kind, 0, 5)]}
    return _condition("weight beside row", f"{vector} has {weight} where a row of {name} has {kind}", places, wants)


def padded_rows(call: Call) -> np.ndarray:
    """Return the row of the padded matrix at which each routed row lies: i64 [rows]."""
    align, start, found = int(call.arguments.get("align", 32)), 0, []
    for count in call.splits:
        found.append(start + np.arange(count))
        start += -(-count // align) * align
    return np.concatenate(found) if found else np.zeros(0, np.int64)


@valued
def scale_pair(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """A scale byte of one class in the block before or after one of another class, or in the row below."""
    if "scales" not in operation.inputs:
        return None
    one, other = dice.choice(list(SCALES)), dice.choice(list(SCALES))
    axis, step = dice.choice((0, 1)), dice.choice((-1, 1))

    def places(call: Call) -> np.ndarray | None:
        scales = call.array("scales")
        if scales is None or scales.dtype != np.uint8 or scales.ndim != 2:
            return None
        there = np.zeros(scales.shape, bool)
        ends = [(slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))][step > 0]
        index = [(part, slice(None)) if axis == 0 else (slice(None), part) for part in ends]
        there[index[0]] = SCALES[other](scales)[index[1]]
        return _spread(call, scales, np.argwhere(SCALES[one](scales) & there))

    word = {(0, 1): "below", (0, -1): "above", (1, 1): "behind", (1, -1): "before"}[axis, step]
    wants = {
        "scales": [(one, 1, 1), (other, 1 + step * (axis == 0), 1 + step * (axis == 1))],
        "least columns": 512,
        "least rows": 3,
    }
    return _condition("pair of scales", f"scales has a {one}, {word} it a {other}", places, wants)


@valued
def scale_and_code(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """A code of a class under a scale byte of a class."""
    names = [name for name in _names(operation) if name in ("codes", "packed")]
    if "scales" not in operation.inputs or not names:
        return None
    name, kind, byte = names[0], draw_kind(dice), dice.choice(list(SCALES))

    def places(call: Call) -> np.ndarray | None:
        given, scales = patterns(call, name), call.array("scales")
        if given is None or scales is None or scales.dtype != np.uint8 or scales.ndim != 2 or not scales.size:
            return None
        hit = kind.found(*given)
        tall, wide = _block(call, scales)
        under = np.repeat(np.repeat(SCALES[byte](scales), wide, axis=1), tall, axis=0)
        return np.argwhere(hit & under[: hit.shape[0], : hit.shape[1]])

    return _condition("code under scale", f"{name} has {kind} under a {byte}", places,
                      {f"values:{name}": [(kind, 0, 2)], "scales": [(byte, 0, 0)]})  # fmt: skip


def _block(call: Call, scales: np.ndarray) -> tuple[int, int]:
    """Return (rows, columns) of elements that a byte of the input scales covers."""
    rows, columns = call.arguments.get("tile", (1, 0)) if "tile" in call.arguments else (1, 0)
    return int(rows), int(columns) or (32 if "packed" in call.operation.inputs or "element" in call.arguments else 128)


def _spread(call: Call, scales: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the first element of the block of each scale byte."""
    return places * np.array(_block(call, scales))


def _condition(kind: str, words: str, places: Callable[[Call], np.ndarray | None], wants: dict[str, Any]) -> Condition:
    def holds(call: Call) -> bool:
        found = places(call)
        return found is not None and len(found) > 0

    return Condition(kind, words, holds, lambda _: wants, places)


def makers() -> Iterator[Maker]:
    """Yield the makers of conditions over values."""
    yield from VALUED
