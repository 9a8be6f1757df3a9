"""Coverpoints of NVFP4 (N21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.arrays import unpack_nibbles

from ..case import Case
from ..draw.bits import float_bits, input_format
from .point import Counts, Golden, Group

_CODES = {f"code {code:X}": "an element" for code in range(16)}
_SCALES = {0x00: "underflow", 0x01: "the least subnormal", 0x07: "subnormal", 0x08: "the least normal", 0x38: "1",
           0x7E: "448"}  # fmt: skip


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {
        **_CODES, "given maximum": "`tensor_amax`", "own maximum": "of x", "NaN element": "",
        "Inf element": "", "negative zero": "an element", "zero block": "no element but zeros",
        "subnormal element": "of the input format", "short last block": "of 16 rows", "one row": "M is 1",
        "NaN scale": "of a zero tensor maximum",
    }  # fmt: skip
    if params["tile"][0] == 1:
        del names["short last block"]
    least = {"TORCHAO": 0x08, "MODELOPT": 0x01}.get(str(params["variant"]), 0)
    if not least:
        del names["NaN scale"]
    return names | {f"scale {code:02X}": words for code, words in _SCALES.items() if code >= least}


def _count(case: Case, golden: Golden) -> Counts:
    fmt = input_format(case.params["input"])
    bits = float_bits(case.inputs["x"])
    magnitude = bits & (fmt.sign_mask - 1)
    codes, scales = np.bincount(unpack_nibbles(golden["packed"]).ravel(), minlength=16), golden["scales"]
    top = magnitude.reshape(-1, 16).max(axis=1) if magnitude.size else magnitude.reshape(-1)
    hits = {
        "NaN element": magnitude > (fmt.inf_code or 0), "Inf element": magnitude == fmt.inf_code,
        "negative zero": bits == fmt.sign_mask, "zero block": top == 0, "NaN scale": scales == 0x7F,
        "subnormal element": (magnitude > 0) & (magnitude < 1 << fmt.mantissa_bits),
        **{f"scale {code:02X}": scales == code for code in _SCALES},
    }  # fmt: skip
    said = {
        "given maximum": "tensor_amax" in case.inputs,
        "own maximum": "tensor_amax" not in case.inputs,
        "short last block": len(bits) % 16 > 0,
        "one row": len(bits) == 1,
    }
    found = {name: int(np.count_nonzero(hit)) for name, hit in hits.items()}
    return found | {n: int(h) for n, h in said.items()} | {f"code {c:X}": int(n) for c, n in enumerate(codes)}


def _read_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return {**_CODES, "NaN scale": "0x7F or 0xFF", "negative scale": "", "subnormal scale": "of E4M3",
            "NaN result": "", "infinite result": "", "negative zero": "a result", "subnormal result": "kept",
            "NaN maximum": "counts as 0", "negative maximum": "its sign is not read", "one row": "M is 1"}  # fmt: skip


def _read(case: Case, golden: Golden) -> Counts:
    values, scales = golden["values"], case.inputs["scales"]
    amax = int(case.inputs["tensor_amax"].view(np.uint32)[0])
    sign, inf, least = (1 << 31, 0x7F800000, 1 << 23) if values.itemsize == 4 else (1 << 15, 0x7F80, 1 << 7)
    magnitude = values & values.dtype.type(sign - 1)
    codes = np.bincount(unpack_nibbles(case.inputs["packed"]).ravel(), minlength=16)
    hits = {
        "NaN scale": scales & 0x7F == 0x7F, "negative scale": scales > 0x80, "NaN result": magnitude > inf,
        "subnormal scale": (scales & 0x7F > 0) & (scales & 0x7F < 8), "infinite result": magnitude == inf,
        "negative zero": values == sign, "subnormal result": (magnitude > 0) & (magnitude < least),
    }  # fmt: skip
    said = {"NaN maximum": amax & 0x7FFFFFFF > 0x7F800000, "negative maximum": amax >> 31 == 1,
            "one row": len(values) == 1}  # fmt: skip
    found = {name: int(np.count_nonzero(hit)) for name, hit in hits.items()}
    return found | {n: int(h) for n, h in said.items()} | {f"code {c:X}": int(n) for c, n in enumerate(codes)}


quantize_nvfp4 = (Group("NVFP4", _names, _count),)
dequantize_nvfp4 = (Group("NVFP4", _read_names, _read),)
