"""Coverpoints of logarithmic FP4 (N23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.arrays import float32_bits, unpack_nibbles
from refnum.division import divide
from refnum.logarithmic_tables import THRESHOLDS, threshold_bits

from ..case import Case
from .point import Counts, Golden, Group

_CODES = {f"code {code:X}": "an element" for code in range(16)}
_GIVEN = {name: words for name, words in _CODES.items() if name != "code 8"}
_INPUTS = {"NaN element": "", "Inf element": "", "negative zero": "an element", "subnormal element": "of float32",
           "negative number pruned": "loses its sign", "one row": "M is 1", "no rows": "M is 0"}  # fmt: skip
_MAGNITUDE, _INF = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)


def _counted(hits: Mapping[str, Any], codes: np.ndarray) -> Counts:
    found = {name: int(np.count_nonzero(hit)) for name, hit in hits.items()}
    return found | {f"code {code:X}": int(n) for code, n in enumerate(np.bincount(codes.ravel(), minlength=16))}


def _read(bits: np.ndarray, codes: np.ndarray) -> dict[str, Any]:
    magnitude = bits & _MAGNITUDE
    return {
        "NaN element": magnitude > _INF, "Inf element": magnitude == _INF, "negative zero": bits == np.uint32(1 << 31),
        "subnormal element": (magnitude > 0) & (magnitude < 1 << 23),
        "negative number pruned": (bits > np.uint32(1 << 31)) & (magnitude <= _INF) & (codes == 0),
        "one row": len(bits) == 1, "no rows": len(bits) == 0,
    }  # fmt: skip


def _luq_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return {
        **_GIVEN, **_INPUTS, "given maximum": "`tensor_amax`", "own maximum": "of x", "step 0": "", "step Inf": "",
        "subnormal step": "", "kept by the last word": "r is one below", "pruned by the first word": "a below 1",
        "up by the first word": "f + q is 2^23", "down by the last word": "one below", "exactly a level": "f is 0",
        "beyond the top level": "a above 64",
    }  # fmt: skip


def _luq(case: Case, golden: Golden) -> Counts:
    bits, alpha = float32_bits(np.ascontiguousarray(case.inputs["x"])), golden["alpha"]
    codes = unpack_nibbles(golden["packed"])
    magnitude = bits & _MAGNITUDE
    ordinary = (magnitude > 0) & (magnitude < _INF)
    a = divide(magnitude, np.broadcast_to(alpha, magnitude.shape))
    r, q = (case.inputs[name].astype(np.int64) for name in ("r_under", "r_log"))
    small, large = ordinary & (a < 0x3F800000), ordinary & (a >= 0x3F800000) & (a < _INF)
    scaled = np.ldexp(a.view(np.float32).astype(np.float64), 24)  # exact
    total = (a & np.uint32(0x7FFFFF)).astype(np.int64) + q
    hits = _read(bits, codes) | {
        "given maximum": "tensor_amax" in case.inputs, "own maximum": "tensor_amax" not in case.inputs,
        "step 0": alpha == 0, "step Inf": alpha == _INF, "subnormal step": (alpha > 0) & (alpha < 1 << 23),
        "kept by the last word": small & (r < scaled) & (r + 1 >= scaled),
        "pruned by the first word": small & (r >= scaled) & (r - 1 < scaled),
        "up by the first word": large & (total == 1 << 23), "down by the last word": large & (total == (1 << 23) - 1),
        "exactly a level": large & (a & np.uint32(0x7FFFFF) == 0), "beyond the top level": large & (a > 0x42800000),
    }  # fmt: skip
    return _counted(hits, codes)


def _radix4_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {**_GIVEN, **_INPUTS, "above a bound": "by one float32 step, or of bfloat16", "at a bound": "below it"}
    if params["threshold"] == "0.4" and params["input"] == "bfloat16":
        del names["at a bound"]  # which no bfloat16 is
    return names


def _radix4(case: Case, golden: Golden) -> Counts:
    bits, codes = float32_bits(np.ascontiguousarray(case.inputs["x"])), unpack_nibbles(golden["packed"])
    bounds = threshold_bits(case.params["n0"], case.params["phase"], THRESHOLDS[case.params["threshold"]])
    magnitude, step = bits & _MAGNITUDE, 1 if case.params["input"] == "float32" else 1 << 16
    above = np.isin(magnitude // np.uint32(step), bounds // np.uint32(step) + 1)
    hits = _read(bits, codes) | {"at a bound": np.isin(magnitude, bounds), "above a bound": above}
    return _counted(hits, codes)


def _values_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {**_CODES, "negative zero": "a result", "one row": "M is 1", "no rows": "M is 0"}
    if operation == "dequantize_radix4":
        return names
    return names | {"NaN result": "", "infinite result": "", "subnormal result": "kept", "negative step": ""}


def _values(case: Case, golden: Golden) -> Counts:
    values = golden["values"]
    sign, inf, least = (1 << 31, 0x7F800000, 1 << 23) if values.itemsize == 4 else (1 << 15, 0x7F80, 1 << 7)
    magnitude = values & values.dtype.type(sign - 1)
    step = case.inputs.get("alpha", np.ones(1, np.float32)).view(np.uint32)
    hits = {
        "NaN result": magnitude > inf, "infinite result": magnitude == inf, "negative zero": values == sign,
        "subnormal result": (magnitude > 0) & (magnitude < least), "one row": len(values) == 1,
        "no rows": len(values) == 0, "negative step": step >> np.uint32(31),
    }  # fmt: skip
    return _counted(hits, unpack_nibbles(case.inputs["packed"]))


luq = (Group("LUQ", _luq_names, _luq),)
radix4 = (Group("radix 4", _radix4_names, _radix4),)
dequantize_luq = dequantize_radix4 = (Group("logarithmic codes", _values_names, _values),)
