"""Explain one element of DGE: its place and the integers that decide its slope; and one of OCC (clause N25)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import float32_bits, own_bits
from .codec import value
from .estimators import _BOUNDS, _alpha, _cap, _released_place, dge, occ
from .float_steps import bits_text
from .formats import BF16, FP32
from .softfloat import INF
from .steps import Step, show

_GRID = [Fraction(0), *(Fraction(float(one)) for one in _BOUNDS.view(np.float32)), Fraction(6)]
"""The values of E2M1 that are not negative."""


def _number(bits: int, wide: bool) -> str:
    return bits_text(FP32 if wide else BF16, bits)


def _bits(array: Any) -> int:
    return int(np.asarray(array).view(f"u{array.dtype.itemsize}"))


def dge_steps(arguments: Mapping[str, Any], place: tuple[int, ...]) -> tuple[list[Step], int]:
    """Return the steps of one element of `dge`, and its bits."""
    given = {name: arguments[name] for name in ("x", "k", "cap", "target", "compat") if name in arguments}
    result = dge(**given)[place]
    bits, own = _bits(result), int(float32_bits(np.asarray(given["x"]))[place])
    wide, k, cap = result.dtype.itemsize == 4, int(given.get("k", 5)), value(BF16, _cap(given.get("cap", 3)))
    released = given.get("compat", "paper") == "ms-amp"
    last = Step("result", f"bits {_number(bits, wide)} of {result.dtype.name}", "N25.2")
    steps = [Step("element", f"bits {_number(own, True)}", "N0")]
    exact, clause = value(FP32, own), "N25.3" if released else "N25.1"
    if exact == "nan" or (own & 0x7FFFFFFF > 0x40C00000 and not (released and own >> 31)):
        words = "NaN" if exact == "nan" else "beyond 6"
        return [*steps, Step("edge", f"{words} under {'ms-amp' if released else 'paper'}", clause), last], bits
    t, words = _released(own) if released else _paper(exact)
    steps.append(Step("place", words, clause))
    if k == 1 or t is None or t == 0:
        words = "k is 1: the slope is 1" if k == 1 else "t is 0: the cap" if t == 0 else "t is infinite: the slope is 0"
        return [*steps, Step("slope", words, clause), last], bits
    steps.append(Step("slope", f"|t|^(1/{k} - 1)/{k}, at most {show(cap)}", clause))
    middles = [_middle(bits - 1, wide), _middle(bits, wide)]
    below, above = (_is_above(middle, t, k) for middle in middles)
    if Fraction(value(FP32 if wide else BF16, bits)) == cap:
        assert below, "the slope is the cap but lies below it"
        words = f"({k} m)^{k} |t|^{k - 1} < 1 for m = {show(middles[0])}: the cap or more"
    else:
        assert below and not above, "the slope does not lie between the middles beside the model's"
        words = f"({k} m)^{k} |t|^{k - 1} is below 1 for m = {show(middles[0])}, and 1 or more for {show(middles[1])}"
    return [*steps, Step("rounding", words, "N25.2"), last], bits


def _paper(exact: Any) -> tuple[Fraction | None, str]:
    size = abs(exact)
    low = max(one for one in _GRID[:-1] if one <= size)
    high = min(one for one in _GRID if one > low)
    t = abs((2 * size - low - high) / (high - low))
    side = f"from {show(low)} to {show(high)}" if exact >= 0 else f"from {show(-high)} to {show(-low)}"
    return t, f"|t| = {show(t)} in the interval {side}"


def _released(own: int) -> tuple[Fraction | None, str]:
    word, exponent = (int(part[0]) for part in _released_place(np.array([own], np.uint32)))
    t = None if exponent >= 1000 else word * Fraction(2) ** exponent
    return t, f"|t| = {'inf' if t is None else show(t)} by the float32 steps of the released code"


def _middle(bits: int, wide: bool) -> Fraction:
    """The middle between a positive number of the target and the next."""
    fmt = FP32 if wide else BF16
    return (Fraction(value(fmt, bits)) + Fraction(value(fmt, bits + 1))) / 2


def _is_above(middle: Fraction, t: Fraction, k: int) -> bool:
    """Whether the slope is above a number (N25.2)."""
    return (k * middle) ** k * t ** (k - 1) < 1


def occ_steps(arguments: Mapping[str, Any], row: int, column: int) -> tuple[list[Step], int]:
    """Return the steps of one element of `occ`, and the bits that it is clamped to."""
    given = {name: arguments[name] for name in ("x", "alpha", "axis") if name in arguments}
    clamped, residual, thresholds = occ(**given)
    own, axis = int(own_bits(np.asarray(given["x"]))[row, column]), given.get("axis", "tensor")
    wide, alpha = clamped.dtype.itemsize == 4, _alpha(given.get("alpha", (99, 100)))
    m, k = clamped.shape
    vector, count = {"tensor": (0, m * k), "token": (row, k), "channel": (column, m)}[axis]
    indices = (1 - alpha) * count // 1, min(alpha * count // 1, count - 1)
    low, high = (_bits(thresholds[side, vector]) for side in (0, 1))
    bits, rest = _bits(clamped[row, column]), _bits(residual[row, column])
    ends = f"elements {indices[0]} and {indices[1]} of {count} in order: {_number(low, wide)} and {_number(high, wide)}"
    infinite = int(INF) if wide else int(INF) >> 16
    nan = [one & ~(1 << (31 if wide else 15)) > infinite for one in (own, low, high)]
    how = "NaN, or a threshold that is" if any(nan) else "between them" if bits == own else "moved to the nearer one"
    return [
        Step("element", f"bits {_number(own, wide)}", "N0"),
        Step("thresholds", ends, "N25.4"),
        Step("clamp", f"{how}: {_number(bits, wide)}", "N25.4"),
        Step("residual", f"x - clamped, rounded once: {_number(rest, wide)}", "N25.4"),
    ], bits
