"""Explain one element of a rotation: its group, the signs of its sum, the sum and its rounding (clause N22)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import contiguous, float32_bits
from .codec import value
from .formats import FP32
from .hadamard import GROUP, SIGNS, hadamard16
from .nvfp4_explained import quantize_steps
from .softfloat import INF, NAN, SIGN, add, multiply, to_bfloat16
from .steps import Step, show

_QUARTER = np.uint32(0x3E800000)


def _given(arguments: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: arguments[name] for name in names if name in arguments}


def _flips(signs: int, lane: int) -> list[bool]:
    """Whether each element of a group is subtracted in the sum of a lane."""
    return [bool((i & lane).bit_count() + (signs >> i & 1) & 1) for i in range(GROUP)]


def rotate_steps(arguments: Mapping[str, Any], row: int, column: int) -> tuple[list[Step], int]:
    """Return the steps of the element of `hadamard16` that has the place [row, column], and its bits."""
    given = _given(arguments, "x", "signs", "axis", "order", "dtype")
    result = hadamard16(**given)
    axis, order, x = int(given.get("axis", -1)), given.get("order", "exact"), float32_bits(given["x"])
    along, lane = (column, column % GROUP) if axis else (row, row % GROUP)
    group = slice(along - lane, along - lane + GROUP)
    members = x[row, group] if axis else x[group, column]
    members = np.concatenate([members, np.zeros(GROUP - len(members), np.uint32)])
    flips = _flips(int(given.get("signs", SIGNS)), lane)
    bits = int(np.asarray(result[row, column]).view(f"u{result.dtype.itemsize}"))
    own = int(x[row, column])
    pattern = "".join("-" if flip else "+" for flip in flips)
    steps = [
        Step("element", f"bits 0x{own:08X}, value {show(value(FP32, own), bool(own >> 31))}", "N0"),
        Step("group", ", ".join(show(value(FP32, int(one)), bool(int(one) >> 31)) for one in members), "N22.1"),
        Step("signs", f"{pattern}: those of the mask, and of row {lane} of the matrix", "N22.1"),
    ]
    terms = members ^ np.where(flips, SIGN, np.uint32(0))
    made, expected = (_exact if order == "exact" else _sequential)(terms, result.dtype.itemsize == 4)
    assert expected == bits, f"the model's bits 0x{bits:X} are not the sum's 0x{expected:X}"
    width = 2 * result.dtype.itemsize
    named = Step("result", f"bits 0x{bits:0{width}X} of {result.dtype.name}", "N22.2" if order == "exact" else "N22.3")
    return [*steps, *made, named], bits


def _exact(terms: np.ndarray[Any, Any], wide: bool) -> tuple[list[Step], int]:
    """The exact sum and a quarter of it, rounded once."""
    found = [value(FP32, int(term)) for term in terms]
    numbers = [one for one in found if not isinstance(one, str)]
    if len(numbers) < GROUP:
        infinite = {bool(int(term) >> 31) for term in terms if int(term) & 0x7FFFFFFF == int(INF)}
        nan = len(infinite) > 1 or any(int(term) & 0x7FFFFFFF > int(INF) for term in terms)
        word = "NaN, or infinities of both signs: NaN" if nan else "infinities of one sign: that infinity"
        bits = int(NAN) if nan else int(INF) | (True in infinite) << 31
        return [Step("sum", word, "N22.2")], bits if wide else bits >> 16
    total = sum(numbers, Fraction(0))
    shown = "exactly" if Fraction(float(total)) == total else "about"  # as a float64 at the longest
    steps = [Step("sum", f"{shown} {show(total)}, a quarter of it is {show(total / 4)}", "N22.2")]
    return steps, _rounded(total / 4, 24 if wide else 8)


def _rounded(number: Fraction, digits: int) -> int:
    """Bits of a multiple of a power of two rounded once to float32 (24 digits) or bfloat16 (8), zero as +0."""
    if number == 0:
        return 0
    size = abs(number)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length(), -126)
    units = round(size / Fraction(2) ** (exponent - digits + 1))
    bits = min(((exponent + 126) << (digits - 1)) + units, 255 << (digits - 1))
    return bits | (number < 0) << (digits + 7)


def _sequential(terms: np.ndarray[Any, Any], wide: bool) -> tuple[list[Step], int]:
    """The float32 sums, one after another."""
    total, sums = np.zeros(1, np.uint32), []
    for term in terms:
        part = multiply(np.array([int(term) & 0x7FFFFFFF], np.uint32), _QUARTER) | np.uint32(int(term)) & SIGN
        total = add(total, part)
        sums.append(show(value(FP32, int(total[0])), bool(int(total[0]) >> 31)))
    bits = int(total[0]) if int(total[0]) & 0x7FFFFFFF <= int(INF) else int(NAN)
    steps = [Step("sum", f"float32 sums of quarters: {', '.join(sums)}", "N22.3")]
    return steps, bits if wide else int(to_bfloat16(np.array([bits], np.uint32))[0])


def rotate_quantize_steps(arguments: Mapping[str, Any], row: int, column: int) -> tuple[list[Step], int, int]:
    """Return the steps of one element of `hadamard_quantize_nvfp4`, its code and the E4M3 code of its block's scale.

    The place is that in x; for axis 0 the code stands at [column, row].
    """
    rotation = _given(arguments, "x", "signs", "axis", "order")
    steps, _ = rotate_steps(rotation, row, column)
    rotated, down = hadamard16(**rotation), int(arguments.get("axis", -1)) == 0
    given = {**arguments, "x": contiguous(rotated.T) if down else rotated}
    more, code, scale = quantize_steps(given, *((column, row) if down else (row, column)))
    return (
        [*steps, *(Step(f"rotated {s.name}" if s.name == "element" else s.name, s.text, s.clause) for s in more)],
        (code),
        scale,
    )
