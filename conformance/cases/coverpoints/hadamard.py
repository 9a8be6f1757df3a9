"""Coverpoints of rotations (N22)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.arrays import float32_bits, unpack_nibbles
from refnum.hadamard import SIGNS

from ..case import Case
from .point import Counts, Golden, Group

_CODES = {f"code {code:X}": "an element" for code in range(16)}
_SCALES = {0x00: "underflow", 0x07: "subnormal", 0x38: "1", 0x7E: "448"}


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {
        "NaN element": "", "Inf element": "", "group of zeros": "", "unlike infinities": "in a group",
        "one binade": "of a group", "more than 12 binades": "of a group", "more than 36 binades": "of a group",
        "published signs": "", "other signs": "", "one row": "M is 1",
    }  # fmt: skip
    return names if params["axis"] else {**names, "short last group": "of 16 rows"}


def _value_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {"NaN result": "", "infinite result": "", "overflow": "of finite numbers", "zero result": "",
             "subnormal result": "kept"}  # fmt: skip
    negative = params["dtype"] == "bfloat16" or (params["order"], params["input"]) == ("exact", "float32")
    return {**names, "negative zero": "a result"} if negative else names


def _code_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    scales = {f"scale {code:02X}": words for code, words in _SCALES.items()}
    return {**_CODES, **scales, "given maximum": "`tensor_amax`", "own maximum": "after the rotation"}


def _groups(case: Case) -> np.ndarray:
    """float32 bits of the groups, [n, 16]."""
    bits = float32_bits(case.inputs["x"])
    if case.params["axis"]:
        return bits.reshape(-1, 16)
    missing = np.zeros((-len(bits) % 16, bits.shape[1]), np.uint32)
    tall = np.concatenate([bits, missing])
    return tall.reshape(len(tall) // 16, 16, bits.shape[1]).transpose(0, 2, 1).reshape(-1, 16)


def _count(case: Case, golden: Golden) -> Counts:
    bits = _groups(case)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    infinite = magnitude == 0x7F800000
    exponent = np.maximum(magnitude >> np.uint32(23), np.uint32(1)).astype(np.int32)
    low = np.where(magnitude == 0, 255, exponent).min(axis=1, initial=255)
    span = np.where(magnitude == 0, 0, exponent).max(axis=1, initial=0) - low
    negative = (bits >> np.uint32(31)) == 1
    hits = {
        "NaN element": magnitude > 0x7F800000, "Inf element": infinite,
        "group of zeros": magnitude.max(axis=1, initial=0) == 0,
        "unlike infinities": (infinite & negative).any(axis=1) & (infinite & ~negative).any(axis=1),
        "one binade": span == 0, "more than 12 binades": span > 12, "more than 36 binades": span > 36,
    }  # fmt: skip
    published = case.params.get("signs", SIGNS) == SIGNS
    rows = len(case.inputs["x"])
    said = {"published signs": published, "other signs": not published, "one row": rows == 1,
            "short last group": rows % 16 > 0 and not case.params["axis"]}  # fmt: skip
    return {name: int(np.count_nonzero(hit)) for name, hit in hits.items()} | {n: int(h) for n, h in said.items()}


def _values(case: Case, golden: Golden) -> Counts:
    values = golden["values"]
    sign, inf, least = (1 << 31, 0x7F800000, 1 << 23) if values.itemsize == 4 else (1 << 15, 0x7F80, 1 << 7)
    magnitude = values & values.dtype.type(sign - 1)
    finite = bool(((float32_bits(case.inputs["x"]) & 0x7FFFFFFF) < 0x7F800000).all())
    hits = {
        "NaN result": magnitude > inf, "infinite result": magnitude == inf, "overflow": (magnitude == inf) & finite,
        "zero result": values == 0, "negative zero": values == sign,
        "subnormal result": (magnitude > 0) & (magnitude < least),
    }  # fmt: skip
    return {name: int(np.count_nonzero(hit)) for name, hit in hits.items()}


def _codes(case: Case, golden: Golden) -> Counts:
    codes, scales = np.bincount(unpack_nibbles(golden["packed"]).ravel(), minlength=16), golden["scales"]
    given = "tensor_amax" in case.inputs
    return {
        **{f"code {code:X}": int(n) for code, n in enumerate(codes)},
        **{f"scale {code:02X}": int(np.count_nonzero(scales == code)) for code in _SCALES},
        "given maximum": int(given), "own maximum": int(not given),
    }  # fmt: skip


hadamard16 = (Group("rotation", _names, _count), Group("rotated values", _value_names, _values))
hadamard_quantize_nvfp4 = (Group("rotation", _names, _count), Group("codes of rotations", _code_names, _codes))
