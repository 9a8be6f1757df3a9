"""Coverpoints of scale bytes: the ones written at the edges, the ones read at the edges, and decoded results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import refnum
from refnum.formats import BF16, FP32

from ..case import Case
from ..domains.quantizers import pins
from ..draw.bits import float_bits, input_format
from ..recipes.distributions import layout_of
from .elements import FROM_FLOAT, FROM_FP4
from .point import Counts, Golden, Group, histogram, read_float

EDGES = (0, 1, 6, 7, 126, 127, 128, 246, 247, 248, 252, 253, 254, 255)
"""Bytes at which a rule clamps, a decoder flushes, or a result stops being finite."""

DECODERS = ("dequantize_mxfp4", "dequantize_mx", "dequantize_fp8_tiles")
CASTS = ("decode_e2m1", "decode_e4m3", "decode_e8m0")


def reachable(operation: str, profile: str, params: Mapping[str, Any]) -> set[int]:
    """Return the bytes that an operation can write."""
    if operation in FROM_FLOAT:
        items = sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in params.items())
        chosen = refnum.get_profile(profile)
        found = set(pins(operation, profile, tuple(items)))
        if operation == "quantize_fp8_tiles":
            return found | {127}
        return found | {chosen.zero_scale, 255} | ({254} if chosen.nonfinite == "satfinite" else set())
    if operation == "fp8_to_mxfp4":
        return _raised(set(range(256)), profile)
    if operation == "mxfp4_columns":
        return set(range(256))
    if operation == "fp8_columns":
        return set(range(255))
    if operation in FROM_FP4:
        return set(range(249))  # at most 254 - 6
    if params.get("to") == "mxfp4":
        return reachable("quantize_mxfp4", profile, {"input": "float32"})
    return reachable("quantize_fp8_tiles", profile, {"input": "float32", "tile": (1, 128)})


def _raised(bytes_: set[int], profile: str) -> set[int]:
    """Leave out the bytes that a profile's floor under amax makes impossible, but for that of a zero block."""
    chosen = refnum.get_profile(profile)
    low = 0
    if chosen.amax_floor is not None:
        x = np.array([[chosen.amax_floor] + [0] * 31], np.uint32).view(np.float32)
        low = int(refnum.quantize_mxfp4(x, chosen)[1][0, 0])
    return {byte for byte in bytes_ if byte >= low} | {chosen.zero_scale}


def _written_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    can = reachable(operation, profile, params)
    return {f"scale byte {byte} written": "in the output" for byte in EDGES if byte in can}


def _written(case: Case, golden: Golden) -> Counts:
    found = histogram("scale byte", golden["scales"], EDGES)
    return {f"{name} written": count for name, count in found.items()}


def _read_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {f"scale byte {byte} read": "in the input" for byte in EDGES} if operation not in CASTS else {}
    names["NaN result"] = "from a NaN code or byte 255"
    if operation not in CASTS:
        names |= {"subnormal result": "of the output format", "Inf result": "a magnitude of 2**128 or more",
                  "finite result under byte 254": "small enough codes stay finite"}  # fmt: skip
    signed = "E8M0" not in operation and operation != "decode_e8m0"
    if signed and params.get("element") != "MXINT8":
        names["negative zero result"] = "the sign of a zero is kept"
    if operation == "decode_e2m1":
        del names["NaN result"]
    if operation == "decode_e8m0":
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


WRITERS = frozenset((*FROM_FLOAT, *FROM_FP4, "fp8_to_mxfp4", "fp8_columns", "swiglu_quantize"))
WRITTEN = Group("scale bytes written", WRITERS, _written_names, _written)


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


SCALE_CAST = Group("float to E8M0", frozenset({"encode_e8m0"}), _cast_names, _cast)
READ = Group("decoding", frozenset((*DECODERS, *CASTS)), _read_names, _read)
