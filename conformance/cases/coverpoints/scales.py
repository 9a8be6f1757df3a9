"""Coverpoints of scale bytes: the ones written at the edges, the ones read at the edges, and decoded results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import refnum
from refnum.formats import BF16, FP32

from ..case import Case
from ..domains.quantizers import pins
from ..draw.bits import float_bits, input_format
from ..operation import OPERATIONS
from ..recipes.distributions import layout_of
from .point import Counts, Golden, Group, histogram, read_float

EDGES = (0, 1, 6, 7, 126, 127, 128, 246, 247, 248, 252, 253, 254, 255)
"""Bytes at which a rule clamps, a decoder flushes, or a result stops being finite."""

Reachable = Callable[[str, str, Mapping[str, Any]], set[int]]
"""(operation, profile, parameters) -> the bytes that an operation can write."""


def from_blocks(operation: str, profile: str, params: Mapping[str, Any]) -> set[int]:
    """Return the bytes of a quantiser of floats in MX blocks: those of finite maxima, of zero blocks and of NaN."""
    chosen = refnum.get_profile(profile)
    saturated = {254} if chosen.nonfinite == "satfinite" else set()
    return {*_of_maxima(operation, profile, params), chosen.zero_scale, 255, *saturated}


def from_tiles(operation: str, profile: str, params: Mapping[str, Any]) -> set[int]:
    """Return the bytes of a quantiser of floats in FP8 tiles: those of finite maxima, and 127."""
    return _of_maxima(operation, profile, params) | {127}


def _of_maxima(operation: str, profile: str, params: Mapping[str, Any]) -> set[int]:
    items = sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in params.items())
    return set(pins(operation, profile, tuple(items)))


def above_floor(operation: str, profile: str, params: Mapping[str, Any]) -> set[int]:
    """Return all bytes but those that a profile's floor under amax makes impossible; that of a zero block stays."""
    chosen = refnum.get_profile(profile)
    low = 0
    if chosen.amax_floor is not None:
        x = np.array([[chosen.amax_floor] + [0] * 31], np.uint32).view(np.float32)
        low = int(refnum.quantize_mxfp4(x, chosen)[1][0, 0])
    return {*range(low, 256), chosen.zero_scale}


def below(count: int) -> Reachable:
    """Return the rule of an operation that can write every byte below a number, and no other."""
    return lambda operation, profile, params: set(range(count))


def written(reachable: Reachable) -> Group:
    """Return the coverpoints of the edges that an operation can write."""

    def names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
        can = reachable(operation, profile, params)
        return {f"scale byte {byte} written": "in the output" for byte in EDGES if byte in can}

    return Group("scale bytes written", names, _written)


def _written(case: Case, golden: Golden) -> Counts:
    found = histogram("scale byte", golden["scales"], EDGES)
    return {f"{name} written": count for name, count in found.items()}


def _read_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    scalar, fmt = OPERATIONS[operation].scalar, layout_of(operation, params).element
    names = {f"scale byte {byte} read": "in the input" for byte in EDGES} if not scalar else {}
    names["NaN result"] = "from a NaN code or byte 255"
    if not scalar:
        names |= {"subnormal result": "of the output format", "Inf result": "a magnitude of 2**128 or more",
                  "finite result under byte 254": "small enough codes stay finite"}  # fmt: skip
    if fmt.kind == "float":
        names["negative zero result"] = "the sign of a zero is kept"
    if scalar and fmt.nan_code is None:
        del names["NaN result"]
    if fmt.kind == "scale":
        names["subnormal result"] = "byte 0 is 2**-127"
    return names


def _read(case: Case, golden: Golden) -> Counts:
    bits = golden["values"]
    fmt = FP32 if bits.dtype == np.uint32 else BF16
    magnitude = bits & (fmt.sign_mask - 1)
    infinity = int(fmt.inf_code or 0)
    counts = {
        "NaN result": magnitude > infinity, "Inf result": magnitude == infinity,
        "negative zero result": bits == fmt.sign_mask,
        "subnormal result": (magnitude > 0) & (magnitude < 1 << fmt.mantissa_bits),
    }  # fmt: skip
    found = {name: int(np.count_nonzero(hit)) for name, hit in counts.items()}
    if "scales" in case.inputs:
        scales = case.inputs["scales"]
        read = histogram("scale byte", scales, EDGES)
        found |= {f"{name} read": count for name, count in read.items()}
        byte = layout_of(case.operation, case.params).spread(scales, magnitude.shape)
        found["finite result under byte 254"] = int(np.count_nonzero((byte == 254) & (magnitude < infinity)))
    return found


def _cast_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {"power of two": "exact under every rounding", "midpoint": "1.5 * 2**k", "one ulp above a midpoint": "",
             "one ulp below a midpoint": "", "one ulp above a power of two": "", "subnormal": "of the input format",
             "negative": "the sign is left out", "zero": "", "Inf": "", "NaN": ""}  # fmt: skip
    if input_format(params["input"]).exponent_bits == 8:
        names |= {"below 2**-127": "the smallest scale", "above 2**127": "may overflow to 255"}
    return names


def _cast(case: Case, golden: Golden) -> Counts:
    fmt = input_format(case.params["input"])
    bits = float_bits(case.inputs["x"])
    value = read_float(bits, fmt)
    live = value.finite & (value.significand != 0)
    field = (bits & ((1 << fmt.mantissa_bits) - 1)).astype(int)[live & (value.exponent >= 1 - fmt.bias)]
    half = 1 << fmt.mantissa_bits - 1
    counts = {
        "power of two": field == 0, "midpoint": field == half, "one ulp above a midpoint": field == half + 1,
        "one ulp below a midpoint": field == half - 1, "one ulp above a power of two": field == 1,
        "subnormal": live & (value.exponent < 1 - fmt.bias), "negative": live & value.negative,
        "zero": value.finite & (value.significand == 0), "NaN": value.nan, "Inf": ~value.finite & ~value.nan,
        "below 2**-127": live & (value.exponent < -127),
        "above 2**127": live & (value.exponent == 127) & (value.significand > 1 << 23),
    }  # fmt: skip
    return {name: int(np.count_nonzero(hit)) for name, hit in counts.items()}


SCALE_CAST = Group("float to E8M0", _cast_names, _cast)
READ = Group("decoding", _read_names, _read)
