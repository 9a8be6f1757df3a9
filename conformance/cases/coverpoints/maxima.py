"""Coverpoints of the blocks that a quantiser reads: where the maximum lies, which lanes are special, scale steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import refnum
from refnum.formats import Format

from ..case import Case
from ..draw.bits import float_bits, input_format
from ..draw.coded import Layout
from ..recipes.distributions import target_of
from .elements import element_of
from .point import Counts, Golden, Group, read_float, rule_exponent


def _step(rule: str, fmt: Format) -> int:
    """Fraction (23 bits) of a maximum at which the rule's exponent steps; 0 where it steps at a power of two."""
    width = fmt.fraction_bits if fmt.kind == "integer" else fmt.mantissa_bits
    return {"floor": 0, "ceil": 0, "rceil": fmt.max_fraction23, "even": (1 << 23) - (1 << 22 - width)}[rule]


def _lanes(params: Mapping[str, Any], operation: str) -> int:
    return 32 if target_of(operation, params).block == 32 else 128


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    fmt = input_format(params["input"])
    chosen = refnum.get_profile(profile)
    names = {
        "maximum at the scale rule's step": "the largest maximum (rceil) or the smallest (other rules) of a scale",
        "maximum one ulp above the step": "the next input value",
        "maximum one ulp below the step": "the previous input value",
        "zero block": "every element is zero", "block of negative zeros": "every element is -0",
        "negative zero": "an element that is -0", "block with a subnormal maximum": "subnormal in the input format",
        "NaN and Inf in one block": "NaN decides", "negative NaN": "sign bit set", "negative Inf": "-Inf",
        "block with Inf and no NaN": "Inf decides", "largest finite value": "of the input format",
    }  # fmt: skip
    if fmt.exponent_bits == 8 and chosen.amax_floor is None:
        names["scale clamped at byte 0"] = "the rule asks for less than 2**-127"
    last = (1 << fmt.mantissa_bits) - 1
    if _step(chosen.scale_rule, element_of(operation, params)) >> 23 - fmt.mantissa_bits == last:
        del names["maximum one ulp above the step"]  # it is the next power of two
    for lane in range(_lanes(params, operation)):
        names[f"maximum in lane {lane}"] = "the only element of that magnitude"
        names[f"NaN in lane {lane}"] = "a NaN there"
        names[f"Inf in lane {lane}"] = "an Inf there"
    return names


def _blocks(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Patterns of x as blocks u32 [n, B], and which of the B places are real (a last tile may be short)."""
    bits = float_bits(case.inputs["x"]).astype(np.uint32)
    rows, columns = case.params.get("tile", (1, 32))
    rows = max(1, min(int(rows), bits.shape[0]))  # a tile of few rows is not blown up to 128
    layout = Layout(element_of(case.operation, case.params), rows, int(columns))
    down, right = layout.grid(bits.shape)
    padded = np.zeros((down * layout.rows, right * layout.columns), np.uint32)
    padded[: bits.shape[0], : bits.shape[1]] = bits
    real = np.zeros(padded.shape, bool)
    real[: bits.shape[0], : bits.shape[1]] = True

    def cut(array: np.ndarray) -> np.ndarray:
        four = array.reshape(down, layout.rows, right, layout.columns).swapaxes(1, 2)
        return four.reshape(down * right, layout.rows * layout.columns)

    return cut(padded), cut(real)


def _count(case: Case, golden: Golden) -> Counts:
    if not case.inputs["x"].size:
        return {}
    fmt = input_format(case.params["input"])
    element = element_of(case.operation, case.params)
    chosen = refnum.get_profile(case.profile)
    bits, real = _blocks(case)
    magnitude = bits & np.uint32(fmt.sign_mask - 1)
    infinity = np.uint32(fmt.inf_code or 0)
    nan, inf = magnitude > infinity, magnitude == infinity
    top = magnitude.max(axis=1)
    ordinary = (top > 0) & (top < infinity)
    amax = read_float(top[ordinary], fmt)
    step = _step(chosen.scale_rule, element) >> 23 - fmt.mantissa_bits
    field = (1 << fmt.mantissa_bits) - 1
    normal = top[ordinary] >> np.uint32(fmt.mantissa_bits) > 0
    fraction = (top[ordinary] & np.uint32(field))[normal].astype(int)
    negative_zero = (bits == fmt.sign_mask) & real
    has_nan, has_inf = nan.any(axis=1), inf.any(axis=1)
    clamped = rule_exponent(chosen.scale_rule, element, amax) < -127
    counts = {
        "maximum at the scale rule's step": fraction == step,
        "maximum one ulp above the step": fraction == step + 1,
        "maximum one ulp below the step": fraction == (step - 1) % (field + 1),
        "zero block": top == 0, "block of negative zeros": (negative_zero | ~real).all(axis=1),
        "negative zero": negative_zero, "block with a subnormal maximum": ~normal,
        "NaN and Inf in one block": has_nan & has_inf, "negative NaN": nan & (bits > magnitude),
        "negative Inf": inf & (bits > magnitude), "block with Inf and no NaN": has_inf & ~has_nan,
        "largest finite value": magnitude == fmt.max_code, "scale clamped at byte 0": clamped,
    }  # fmt: skip
    found = {name: int(np.count_nonzero(hit)) for name, hit in counts.items()}
    return found | _by_lane(case, magnitude, top, nan, inf, ordinary)


def _by_lane(
    case: Case, magnitude: np.ndarray, top: np.ndarray, nan: np.ndarray, inf: np.ndarray, ordinary: np.ndarray
) -> Counts:
    """Specials and unique maxima by lane; for 128x128 tiles a lane is the place along K."""
    width = _lanes(case.params, case.operation)
    peak = magnitude == top[:, None]
    peak &= (ordinary & (peak.sum(axis=1) == 1))[:, None]
    found: Counts = {}
    for name, hit in (("maximum", peak), ("NaN", nan), ("Inf", inf)):
        lane = hit.reshape(-1, width).sum(axis=0)
        found |= {f"{name} in lane {number}": int(count) for number, count in enumerate(lane)}
    return found


BLOCKS = Group("blocks", _names, _count)
