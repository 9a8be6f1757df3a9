"""What a coverpoint is, and the exact reading of values that the counting shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnum.formats import Format

from ..case import Case
from ..draw.bits import normalise
from ..draw.grid import overflow_threshold

Counts = dict[str, int]
Golden = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Group:
    """Coverpoints that are counted together.

    names: (operation, profile, params) -> {coverpoint: what it means}, only those
    that some legal input reaches. count: (case, golden outputs as unsigned integers) -> counts; points that
    are not hit may be missing.
    """

    name: str
    names: Callable[[str, str, Mapping[str, Any]], dict[str, str]]
    count: Callable[[Case, Golden], Counts]


@dataclass(frozen=True)
class Magnitudes:
    """Exact magnitudes significand * 2**(exponent - 23), the leading one at bit 23; significand 0 is zero.

    finite, nan: bool; negative: bool. Inf is neither finite nor nan.
    """

    significand: np.ndarray
    exponent: np.ndarray
    negative: np.ndarray
    finite: np.ndarray
    nan: np.ndarray

    def shifted(self, exponent: np.ndarray) -> Magnitudes:
        """Divide by 2**exponent (i32, broadcast)."""
        return Magnitudes(self.significand, self.exponent - exponent, self.negative, self.finite, self.nan)


def read_float(bits: np.ndarray, fmt: Format) -> Magnitudes:
    """Read patterns of a float format exactly (subnormals included)."""
    wide = bits.astype(np.uint32)
    magnitude = wide & np.uint32(fmt.sign_mask - 1)
    field = (magnitude >> np.uint32(fmt.mantissa_bits)).astype(np.int32)
    fraction = magnitude & np.uint32((1 << fmt.mantissa_bits) - 1)
    lead, rest = normalise(fraction)
    small = field == 0
    exponent = np.where(small, lead + np.int32(1 - fmt.bias - fmt.mantissa_bits), field - np.int32(fmt.bias))
    normal = (fraction << np.uint32(23 - fmt.mantissa_bits)) | np.uint32(1 << 23)
    significand = np.where(small, np.where(fraction == 0, np.uint32(0), rest | np.uint32(1 << 23)), normal)
    top = np.uint32(fmt.max_code)
    finite = magnitude <= top
    nan = magnitude > (top if fmt.inf_code is None else np.uint32(fmt.inf_code))
    return Magnitudes(significand, exponent, wide != magnitude, finite, nan)


def rounding(value: Magnitudes, fmt: Format, prefix: str = "") -> Counts:
    """Count how scaled values meet the grid of an element format: ties, results, overflow (N2)."""
    width = fmt.mantissa_bits if fmt.kind == "float" else fmt.fraction_bits
    lowest = np.int32(1 - fmt.bias if fmt.kind == "float" else 0)
    live = value.finite & (value.significand != 0)
    significand, exponent = value.significand[live], value.exponent[live]
    negative = value.negative[live]
    quantum = np.maximum(exponent, lowest) - np.int32(width)
    if fmt.kind == "integer":
        quantum = np.full_like(exponent, -width)
    place = np.clip(quantum - np.int32(1) - exponent + np.int32(23), -1, 24)  # the bit worth half a quantum
    half = np.where((place >= 0) & (place <= 23), np.uint32(1) << np.clip(place, 0, 23).astype(np.uint32), np.uint32(0))
    rest = significand & ((half << np.uint32(1)) - np.uint32(1))
    tie = (half != 0) & (rest == half)
    below = place > 23  # less than half a quantum: rounds to zero
    side = _against(exponent, significand, fmt)
    subnormal = (exponent < lowest) & ~below
    beyond = side > 0
    inside = side < 0
    counts: dict[str, np.ndarray] = {
        "tie between normal values": tie & inside & (exponent >= lowest),
        "tie between subnormal values": tie & (exponent < lowest),
        "tie at the overflow threshold": tie & (side == 0),
        "beyond the overflow threshold": beyond,
        "exact value": ~tie & (rest == 0) & (half != 0) & inside,
        "positive value that rounds to zero": below & ~negative,
        "negative value that rounds to zero": below & negative,
        "value below the normal range": subnormal,
    }
    found = {prefix + name: int(np.count_nonzero(hit)) for name, hit in counts.items()}
    if fmt.name == "E2M1":
        found |= _named_ties(exponent[tie & inside], significand[tie & inside], negative[tie & inside], prefix)
    return found


def _against(exponent: np.ndarray, significand: np.ndarray, fmt: Format) -> np.ndarray:
    """-1, 0 or 1: the magnitude lies below, at or beyond largest value + half a quantum."""
    threshold = overflow_threshold(fmt)
    place = threshold.numerator.bit_length() - threshold.denominator.bit_length()
    bits = int(threshold * 2 ** (23 - place)) if place <= 23 else int(threshold / 2 ** (place - 23))
    bigger = (exponent > place) | ((exponent == place) & (significand > bits))
    equal = (exponent == place) & (significand == bits)
    return np.where(bigger, 1, np.where(equal, 0, -1))


TIES = ((1, "0.25"), (3, "0.75"), (5, "1.25"), (7, "1.75"), (10, "2.5"), (14, "3.5"), (20, "5"))
"""The midpoints of E2M1 in quarters."""


def _named_ties(exponent: np.ndarray, significand: np.ndarray, negative: np.ndarray, prefix: str) -> Counts:
    quarters = (significand >> (np.int32(21) - exponent).astype(np.uint32)).astype(np.int64)
    counts: Counts = {}
    for sign, which in (("+", ~negative), ("-", negative)):
        found = np.bincount(quarters[which], minlength=32)
        counts |= {f"{prefix}tie {sign}{name}": int(found[quarter]) for quarter, name in TIES}
    return counts


def rule_exponent(rule: str, fmt: Format, amax: Magnitudes) -> np.ndarray:
    """Exponent of the block scale before any clamp, i32 (N3); written a second time, without the model."""
    fraction = (amax.significand & np.uint32(0x7FFFFF)).astype(np.int64)
    step = {"floor": 1 << 24, "ceil": 1, "rceil": fmt.max_fraction23 + 1}
    width = fmt.fraction_bits if fmt.kind == "integer" else fmt.mantissa_bits
    step["even"] = (1 << 23) - (1 << 22 - width)
    return amax.exponent - np.int32(fmt.emax) + (fraction >= step[rule])


def merged(*parts: Counts) -> Counts:
    """Add counts by name."""
    total: Counts = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + int(count)
    return total


def histogram(prefix: str, values: np.ndarray, wanted: range | tuple[int, ...]) -> Counts:
    """Count each wanted number among non-negative values as `prefix number`."""
    top = max(wanted) + 1
    found = np.bincount(np.minimum(values.astype(np.int64).reshape(-1), top), minlength=top + 1)
    return {f"{prefix} {number}": int(found[number]) for number in wanted}
