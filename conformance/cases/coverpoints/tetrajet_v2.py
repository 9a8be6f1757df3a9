"""Coverpoints of TetraJet-v2 (N24)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.arrays import unpack_nibbles
from refnum.formats import E2M1
from refnum.tetrajet_v2 import scale_products

from ..case import Case
from ..draw.bits import float_bits, input_format
from ..operation import run_golden
from .point import Counts, Golden, Group, read_float, rounding

_TIES = ("0.25", "0.75", "1.25", "1.75", "2.5", "3.5", "5")
_CODES = {f"code {code:X}": "an element" for code in range(16)}
_SCALES = {0: "the sixth is below 2^-10", 1: "of a block of zeros too", 0x7E: "the largest", 0x7F: "NaN"}
_INF, _NORMAL = np.uint32(0x7F800000), np.uint32(1 << 23)


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {**_CODES, **{f"inner scale {code:02X}": words for code, words in _SCALES.items()}}
    names |= {"NaN element": "", "Inf element": "", "negative zero": "an element", "subnormal element": "",
              "a group of zeros": "the outer scale is 1", "an infinite outer scale": "", "no rows": "M is 0",
              "the product of scales is 0": "elements are 0"}  # fmt: skip
    if params["input"] != "float16":
        names["a subnormal outer scale"] = ""
    if params["input"] == "float16":
        del names["the product of scales is 0"]
    if params["seed"] is None:
        return names | {f"tie {sign}{name}": f"{sign}{name} times both scales" for sign in "+-" for name in _TIES}
    return names | {"moved by noise": "to a code that is not the nearest", "noise at a bound": "kept in its region"}


def _count(case: Case, golden: Golden) -> Counts:
    fmt, bits = input_format(case.params["input"]), float_bits(case.inputs["x"])
    magnitude, scales, outer = bits & (fmt.sign_mask - 1), golden["scales"], golden["outer"]
    codes = unpack_nibbles(golden["packed"])
    groups = magnitude.reshape(-1, 128)
    product = np.repeat(scale_products(scales, outer), 16, axis=1)
    hits = {
        "NaN element": magnitude > (fmt.inf_code or 0), "Inf element": magnitude == fmt.inf_code,
        "negative zero": bits == fmt.sign_mask, "a group of zeros": (groups == 0).all(axis=1),
        "subnormal element": (magnitude > 0) & (magnitude < 1 << fmt.mantissa_bits),
        "a subnormal outer scale": (outer > 0) & (outer < _NORMAL), "an infinite outer scale": outer == _INF,
        "the product of scales is 0": product == 0, "no rows": np.array([not len(bits)]),
        **{f"inner scale {code:02X}": scales == code for code in _SCALES},
        **{f"code {code:X}": codes == code for code in range(16)},
    }  # fmt: skip
    found = {label: int(np.count_nonzero(hit)) for label, hit in hits.items()}
    power = (product & np.uint32(0x7FFFFF) == 0) & (product >= _NORMAL) & (product < _INF)
    exponent = (product >> np.uint32(23)).astype(np.int32) - np.int32(127)
    scaled = read_float(bits, fmt).shifted(exponent)
    if case.params["seed"] is not None:
        return found | _noise(case, codes, scaled.significand > 0)
    inside = type(scaled)(scaled.significand, scaled.exponent, scaled.negative, scaled.finite & power, scaled.nan)
    ties = rounding(inside, E2M1).items()
    return found | {label: n for label, n in ties if label.startswith(("tie +", "tie -"))}


def _noise(case: Case, codes: np.ndarray, some: np.ndarray) -> Counts:
    nearest = unpack_nibbles(run_golden(case.with_inputs({}, {"seed": None}))["packed"])
    bound = np.isin(codes & 7, (4, 6)) & (codes == nearest) & some
    return {"moved by noise": int(np.count_nonzero(codes != nearest)), "noise at a bound": int(np.count_nonzero(bound))}


def _read_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return {**_CODES, "NaN scale": "0x7F or 0xFF", "negative scale": "", "subnormal scale": "of E4M3",
            "NaN outer scale": "", "infinite outer scale": "", "outer scale 0": "", "negative outer scale": "",
            "NaN result": "", "infinite result": "", "negative zero": "a result", "subnormal result": "kept",
            "no rows": "M is 0"}  # fmt: skip


def _read(case: Case, golden: Golden) -> Counts:
    values, scales, outer = golden["values"], case.inputs["scales"], case.inputs["outer"].view(np.uint32)
    sign, inf, least = (1 << 31, 0x7F800000, 1 << 23) if values.itemsize == 4 else (1 << 15, 0x7F80, 1 << 7)
    magnitude, size = values & values.dtype.type(sign - 1), outer & np.uint32(0x7FFFFFFF)
    codes = np.bincount(unpack_nibbles(case.inputs["packed"]).ravel(), minlength=16)
    hits = {
        "NaN scale": scales & 0x7F == 0x7F, "negative scale": scales > 0x80, "NaN result": magnitude > inf,
        "subnormal scale": (scales & 0x7F > 0) & (scales & 0x7F < 8), "infinite result": magnitude == inf,
        "negative zero": values == sign, "subnormal result": (magnitude > 0) & (magnitude < least),
        "NaN outer scale": size > _INF, "infinite outer scale": size == _INF, "outer scale 0": size == 0,
        "negative outer scale": outer >> 31 == 1, "no rows": np.array([not len(values)]),
    }  # fmt: skip
    found = {name: int(np.count_nonzero(hit)) for name, hit in hits.items()}
    return found | {f"code {c:X}": int(n) for c, n in enumerate(codes)}


quantize_tetrajet_v2 = (Group("TetraJet-v2", _names, _count),)
dequantize_tetrajet_v2 = (Group("TetraJet-v2", _read_names, _read),)
