"""Coverpoints of TetraJet (N24)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.arrays import unpack_nibbles
from refnum.formats import E2M1
from refnum.tetrajet import ZERO_BYTE

from ..case import Case
from ..draw.bits import float_bits, input_format
from ..operation import run_golden
from .point import Counts, Golden, Group, read_float, rounding

_TIES = ("0.25", "0.75", "1.25", "1.75", "2.5", "3.5", "5")
_BYTES = {0: "the least scale", 1: "one above it", 252: "the largest that a rule without truncation gives",
          255: "of NaN or Inf", int(ZERO_BYTE): "that of a block of zeros"}  # fmt: skip


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {f"code {code:X}": "an element" for code in range(16)} | {f"byte {b}": words for b, words in _BYTES.items()}
    names |= {"NaN element": "", "Inf element": "", "negative zero": "an element", "one row": "M is 1",
              "no rows": "M is 0", "subnormal element": "of the input format"}  # fmt: skip
    if params["axis"] == 0:
        names["short last block"] = "M is no multiple of 32"
    if operation == "q_ema":
        return names | {"average above the middle": "the upper neighbour", "average of the other sign": "",
                        "NaN average": "counts as below", "Inf average": ""}  # fmt: skip
    if params["rule"] != "exact" and (params["rule"] == "microscaling" or params["ratio"] == "bfloat16"):
        names["element above 6"] = "saturates"
    names |= {f"tie {sign}{name}": f"{sign}{name} times the scale" for sign in "+-" for name in _TIES}
    return names | {"random bytes": "`rbits`"}


def _spread(scales: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    return np.repeat(scales, 32, axis=axis)[: shape[0], : shape[1]]


def _count(case: Case, golden: Golden) -> Counts:
    name = "w" if case.operation == "q_ema" else "x"
    fmt, bits = input_format(case.params["input"]), float_bits(case.inputs[name])
    magnitude, scales = bits & (fmt.sign_mask - 1), golden["scales"]
    byte = _spread(scales, bits.shape, int(case.params["axis"])).astype(np.int32)
    codes = unpack_nibbles(golden["packed"])
    hits = {
        "NaN element": magnitude > (fmt.inf_code or 0), "Inf element": magnitude == fmt.inf_code,
        "negative zero": bits == fmt.sign_mask,
        "subnormal element": (magnitude > 0) & (magnitude < 1 << fmt.mantissa_bits),
        **{f"byte {b}": scales == b for b in _BYTES},
    }  # fmt: skip
    said = {"one row": len(bits) == 1, "no rows": len(bits) == 0, "short last block": len(bits) % 32 > 0,
            "random bytes": "rbits" in case.inputs}  # fmt: skip
    found = {label: int(np.count_nonzero(hit)) for label, hit in hits.items()} | {n: int(h) for n, h in said.items()}
    found |= {f"code {code:X}": int(n) for code, n in enumerate(np.bincount(codes.ravel(), minlength=16))}
    scaled = read_float(bits, fmt).shifted(byte - 127)
    live = scaled.finite & (byte != 255)
    if name == "x":
        inside = type(scaled)(scaled.significand, scaled.exponent, scaled.negative, live, scaled.nan)
        counted = rounding(inside, E2M1)
        above = (scaled.exponent > 2) | ((scaled.exponent == 2) & (scaled.significand > 0xC00000))
        found["element above 6"] = int(np.count_nonzero(live & above & (scaled.significand > 0)))
        return found | {
            label: n for label, n in counted.items() if label.startswith("tie +") or label.startswith("tie -")
        }
    return found | _averages(case, golden, live, bits >> (fmt.bits - 1))


def _averages(case: Case, golden: Golden, live: np.ndarray, sign: np.ndarray) -> Counts:
    """Count averages by kind, and codes that are above what the weight cut to its lower neighbour has."""
    fmt, ema = input_format(case.params["input"]), float_bits(case.inputs["ema"])
    magnitude, zeros = ema & (fmt.sign_mask - 1), np.zeros_like(case.inputs["ema"])
    lower = unpack_nibbles(run_golden(case.with_inputs({"ema": zeros}, {}))["packed"])
    hits = {
        "average above the middle": unpack_nibbles(golden["packed"]) != lower,
        "NaN average": magnitude > (fmt.inf_code or 0), "Inf average": magnitude == fmt.inf_code,
        "average of the other sign": live & (ema >> (fmt.bits - 1) != sign),
    }  # fmt: skip
    return {label: int(np.count_nonzero(hit)) for label, hit in hits.items()}


quantize_tetrajet = q_ema = (Group("TetraJet", _names, _count),)
