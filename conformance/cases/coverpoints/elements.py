"""Coverpoints of element rounding: which ties, which overflow, which underflow the cases really meet."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

import refnum
from refnum.arrays import unpack_nibbles
from refnum.formats import E2M1, Format, get_format

from ..case import Case
from ..draw.bits import float_bits, input_format
from ..draw.grid import overflow_threshold
from ..geometry import column_block, spread
from ..operation import OPERATIONS
from ..recipes.distributions import layout_of
from .point import TIES, Counts, Golden, Group, Magnitudes, read_float, rounding

_TEXT = {
    "tie between normal values": "half way between two codes of the normal range",
    "tie between subnormal values": "half way between two codes, zero included, below the normal range",
    "tie at the overflow threshold": "largest value plus half its quantum",
    "beyond the overflow threshold": "rounding to nearest would need a larger code",
    "exact value": "a code's own value",
    "positive value that rounds to zero": "less than half the smallest value",
    "negative value that rounds to zero": "less than half the smallest value; the result is -0",
    "value below the normal range": "the result is subnormal or rounds up to the smallest normal value",
}
_UNDERFLOW = ("exact value", "positive value that rounds to zero", "negative value that rounds to zero",
              "value below the normal range")  # fmt: skip
_OVERFLOW = ("tie at the overflow threshold", "beyond the overflow threshold")


def element_of(operation: str, params: Mapping[str, Any]) -> Format:
    """Return the format that an operation rounds its elements to."""
    return get_format(OPERATIONS[operation].outputs[0].format(params))


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    fmt, row = element_of(operation, params), OPERATIONS[operation]
    names = list(_UNDERFLOW) if fmt.kind == "float" else list(_UNDERFLOW[:-1])
    if not (row.scalar or row.profiled):  # codes are moved to a scale no smaller than their own
        if params.get("underflow") == "te":
            return {}
        names.append("tie between subnormal values")
        ties: tuple[str, ...] = ("0.25", "0.75") if fmt is E2M1 else ()
    else:
        names += ["tie between normal values", "tie between subnormal values"]
        ties = tuple(name for _, name in TIES) if fmt is E2M1 else ()
        rule = refnum.get_profile(profile).scale_rule
        if row.scalar or row.main == "codes":  # a clamp at byte 254 lets FP8 overflow E2M1
            names += _OVERFLOW
        elif rule == "floor":  # a maximum lies below twice 2**emax
            names += [name for name, fits in zip(_OVERFLOW, _above(fmt, params), strict=True) if fits]
        elif rule == "ceil" and fmt.kind == "integer" and params.get("input") == "float16":
            names.remove("tie between normal values")  # all elements are 1 at most, but for a clamp at byte 254
        elif rule == "ceil":
            ties = tuple(name for name in ties if name != "5")  # no element exceeds 4 times the scale
    found = {name: _TEXT[name] for name in names}
    return found | {f"tie {sign}{name}": f"{sign}{name} times the scale" for sign in "+-" for name in ties}


def _above(fmt: Format, params: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether the input format has the overflow threshold, and a value between it and twice 2**emax."""
    significand = overflow_threshold(fmt) / Fraction(2) ** fmt.emax
    quantum = Fraction(1, 1 << input_format(params["input"]).mantissa_bits)
    return significand % quantum == 0, significand < 2 - quantum


def scaled(case: Case, golden: Golden) -> Magnitudes:
    """Return every element divided by its output scale, exactly; elements under byte 255 are not finite."""
    row = OPERATIONS[case.operation]
    if row.main == "values":
        value = read_float(float_bits(case.inputs["x"]), input_format(_input_name(case)))
        if row.scalar:
            return value
        byte = spread(row.outputs[0].block, case, golden["scales"], value.exponent.shape)
        return _below(value, byte.astype(np.int32) - 127, byte == 255)
    codes, layout = case.inputs[row.inputs[0]], layout_of(case.operation, case.params)
    codes = unpack_nibbles(codes) if row.main == "packed" else codes
    value = read_float(codes, layout.element)
    own = layout.spread(case.inputs["scales"], codes.shape).astype(np.int32)
    out = output_bytes(case, golden, codes.shape).astype(np.int32)
    return _below(value, out - own, (own == 255) | (out == 255))


def output_bytes(case: Case, golden: Golden, shape: tuple[int, ...]) -> np.ndarray:
    """Return the output scale byte of every input element of a conversion between FP8 and MXFP4, u8 [M, K]."""
    geometry = OPERATIONS[case.operation].outputs[0].block
    if geometry.startswith("column"):
        return golden["scales"][column_block(case, int(geometry[len("column") :]), shape[0])]
    return spread(geometry, case, golden["scales"], shape)


def _below(value: Magnitudes, exponent: np.ndarray, excluded: np.ndarray) -> Magnitudes:
    moved = value.shifted(exponent)
    return Magnitudes(moved.significand, moved.exponent, moved.negative, moved.finite & ~excluded, moved.nan)


def _input_name(case: Case) -> str:
    return str(case.params.get("input", case.inputs["x"].dtype.name))


def _count(case: Case, golden: Golden) -> Counts:
    return rounding(scaled(case, golden), element_of(case.operation, case.params))


ROUNDING = Group("element rounding", _names, _count)
