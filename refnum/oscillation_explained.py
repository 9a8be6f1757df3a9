"""Explain what is done about an oscillating weight: its float32 operations and comparisons (clause N24)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import float32_bits, unpack_nibbles
from .codec import decode_table, value
from .float_steps import (
    Chain,
    Explained,
    Place,
    Room,
    agreed,
    bits_at,
    exact_text,
    float_text,
    is_above,
    is_finite,
    is_nan,
    number,
    of,
    order_of,
    result_bits,
    taken,
)  # fmt: skip
from .formats import E2M1, E4M3
from .oscillation import (
    _EPSILON,
    _WIDTHS,
    CHANNELS,
    MOST_STEPS,
    _fraction,
    _number,
    osci_reset,
    osci_reset_by_distance,
    out_control,
    q_ramping,
    ramping_step,
)  # fmt: skip
from .steps import fields, show
from .tetrajet_v2 import BLOCK_V2, TILE

_MAGNITUDE, _LARGE = 0x7FFFFFFF, 1 << 31


def _scalar(name: str, given: Any) -> int:
    """float32 bits of a number, or of its numerator and denominator."""
    return int(_number(name, given)[0])


def _ramping(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "dist_w dist_q", "alpha beta most")
    result = q_ramping(**given)
    beta, most = int(given.get("beta", 5)), int(given.get("most", MOST_STEPS))
    chain, (w, q) = Chain("N24.9"), (bits_at(given[name], at) for name in ("dist_w", "dist_q"))
    chain.element(dist_w=w, dist_q=q)
    above = chain.divide("dist_q / alpha", q, _scalar("alpha", given.get("alpha", (16, 1))))
    below = chain.add("dist_w + 1e-8", w, int(_EPSILON))
    whole, words = _floor_quotient(above, below)
    chain.say("quotient", words)
    period = min(beta * whole + 1, most)
    chain.say("period", f"min({beta} * {whole} + 1, {most}) = {period}")
    return chain.steps, agreed({"period": period}, period=result_bits(result, at))


def _floor_quotient(a: int, b: int) -> tuple[int, str]:
    """The floor of the exact quotient of float32 numbers, as N24.9 bounds it, and the words for it."""
    if is_nan(a) or is_nan(b) or not (is_finite(a) or is_finite(b)) or not (a & _MAGNITUDE or b & _MAGNITUDE):
        return 0, "no number: counts as 0"
    if (a | b) & 1 << 31:
        return 0, "of a negative distance: counts as 0"
    if not is_finite(a) or not b:
        return _LARGE, "infinite: counts as 2^31"
    exact = number(a) / number(b) if is_finite(b) else Fraction(0)
    if exact >= _LARGE:
        return _LARGE, f"{exact_text(exact)}: 2^31 or more counts as 2^31"
    floor = math.floor(exact)
    return floor, f"{exact_text(exact)}, at least {floor} and below {floor + 1}: counts as {floor}"


def _step(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "total count grad period")
    results = ramping_step(**given)
    chain, (total, grad) = Chain("N24.10"), (bits_at(given[name], at) for name in ("total", "grad"))
    before, period = (int(np.asarray(given[name])[at]) for name in ("count", "period"))
    chain.say("element", f"total {float_text(total)}, grad {float_text(grad)}, count {before}, period {period}", "N0")
    special = np.argwhere(~np.isfinite(_wide(given["grad"])))
    if len(special):
        chain.say("sum", f"the gradient at {special[0].tolist()} is NaN or Inf: no total changes")
        summed = total
    else:
        summed = chain.add("sum", total, grad)
    steps = before + 1
    due = steps % period == 0
    chain.say("due", f"{before} + 1 = {steps} is {'a' if due else 'no'} multiple of {period}: {int(due)}")
    mean = chain.divide("mean", summed, chain.round("steps", Fraction(steps))) if due else 0
    if not due:
        chain.say("mean", "not due: 0x00000000 = 0")
    chain.say("count", "begins anew: 0" if due else f"{steps}")
    kept = 0 if due else summed
    chain.say("total", f"{'begins anew' if due else 'the sum'}: {float_text(kept)}")
    golden = dict(zip(("total", "count", "due", "mean"), (result_bits(one, at) for one in results), strict=True))
    return chain.steps, agreed({"total": kept, "count": 0 if due else steps, "due": int(due), "mean": mean}, **golden)


def _wide(array: Any) -> np.ndarray:
    return float32_bits(np.ascontiguousarray(array)).view(np.float32)


def _reset(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "w packed scales outer", "threshold")
    result = osci_reset(**given)
    (row, column), chain = at, Chain("N24.14")
    code, scale = int(unpack_nibbles(given["packed"])[at]), int(given["scales"][row, column // BLOCK_V2])
    chain.element(w=bits_at(given["w"], at))
    chain.say("code", f"{fields(E2M1, code)}, value {show(value(E2M1, code), bool(code & 8))}", "N1")
    text = f"{fields(E4M3, scale)}, value {show(value(E4M3, scale), bool(scale >> 7))}"
    chain.say("scale byte", text, "N24.11")
    inner, level = int(decode_table(E4M3)[scale]), int(decode_table(E2M1)[code])
    product = chain.multiply("outer * scale", bits_at(given["outer"], (row, column // TILE)), inner)
    quotient = chain.divide("w / p", bits_at(given["w"], at), product)
    off = chain.subtract("distance", quotient, level) & _MAGNITUDE
    threshold = _scalar("threshold", given.get("threshold", (495, 1000)))
    bound = chain.multiply("threshold * width", threshold, int(_WIDTHS[code & 7]))
    flag = int(is_above(off, bound))
    chain.say("flags", f"|distance| {float_text(off)} is {'' if flag else 'not '}above {float_text(bound)}: {flag}")
    return chain.steps, agreed({"flags": flag}, flags=result_bits(result, at))


def _by_distance(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "dist_w dist_q", "threshold")
    result = osci_reset_by_distance(**given)
    chain, (w, q) = Chain("N24.14"), (bits_at(given[name], at) for name in ("dist_w", "dist_q"))
    chain.element(dist_w=w, dist_q=q)
    least = _scalar("threshold", given.get("threshold", (16, 1)))
    ratio = chain.divide("dist_q / dist_w", q, w)
    flag = int(bool(w & _MAGNITUDE) and not is_nan(ratio) and not is_above(least, ratio))
    words = f"{float_text(ratio)} is {'' if flag else 'not '}at least {float_text(least)}"
    chain.say("flags", f"{words if w & _MAGNITUDE else 'dist_w is 0'}: {flag}")
    return chain.steps, agreed({"flags": flag}, flags=result_bits(result, at))


def _control(arguments: Mapping[str, Any], at: Place) -> Explained:
    given = taken(arguments, "norms", "share")
    result = out_control(**given)
    row = [int(bits) for bits in float32_bits(np.ascontiguousarray(given["norms"]))[at[:-1]]]
    chain, k, share = Chain("N24.15"), len(row), _fraction("share", given.get("share", (1, 10)))
    part = math.floor(share * k)
    raised = -(-part // CHANNELS) * CHANNELS
    count = min(raised, k // CHANNELS * CHANNELS)
    chain.element(norms=row[at[-1]])
    lowered = f", lowered to {count}" if count < raised else ""
    chain.say("channels", f"floor({share} * {k}) = {part}, raised to {raised}{lowered} of {k}")
    places = [(1 << 32) if is_nan(bits) else order_of(bits) for bits in row]
    own = places[at[-1]]
    above, first = sum(one > own for one in places), sum(one == own for one in places[: at[-1]])
    flag = int(above + first < count)
    chain.say("rank", f"{above} norms are larger, and {first} before it are equal: {above + first} come first")
    chain.say("flags", f"{'among' if flag else 'not among'} the first {count}: {flag}")
    return chain.steps, agreed({"flags": flag}, flags=result_bits(result, at))


OSCILLATION: Room = {
    "q_ramping": (of("dist_w"), _ramping),
    "ramping_step": (of("total"), _step),
    "osci_reset": (of("w"), _reset),
    "osci_reset_by_distance": (of("dist_w"), _by_distance),
    "out_control": (of("norms"), _control),
}
