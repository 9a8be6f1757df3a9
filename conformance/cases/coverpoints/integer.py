"""Coverpoints of the integer quantisers (N26)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refnum.arrays import float32_bits

from ..case import Case
from .point import Counts, Golden, Group, histogram

_MAGNITUDE, _INF, _NORMAL = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000), np.uint32(1 << 23)
_INPUTS = {"NaN": "an element", "infinite": "an element", "negative zero": "an element", "subnormal": "an element"}
_CODES = {f"code {code}": "" for code in range(16)}
Names = Callable[[str, str, Mapping[str, Any]], dict[str, str]]


def _bits(case: Case) -> np.ndarray:
    return float32_bits(np.ascontiguousarray(case.inputs["x"]))


def _counts(hits: Mapping[str, np.ndarray]) -> Counts:
    return {name: int(np.count_nonzero(hit)) for name, hit in hits.items()}


def _elements(bits: np.ndarray) -> Counts:
    magnitude = bits & _MAGNITUDE
    return _counts({
        "NaN": magnitude > _INF, "infinite": magnitude == _INF, "negative zero": bits == np.uint32(1 << 31),
        "subnormal": (magnitude > 0) & (magnitude < _NORMAL),
    })  # fmt: skip


def _names(own: dict[str, str]) -> Names:
    return lambda operation, profile, params: {**_INPUTS, **_CODES, **own}


def _tensor(case: Case, golden: Golden) -> Counts:
    bits, scale = _bits(case), golden["scale"]
    magnitude = bits & _MAGNITUDE
    top = np.where(magnitude < _INF, magnitude, np.uint32(0)).max(initial=0)
    wide = np.float64(np.uint32(top).view(np.float32)) * 2 / 15
    own = np.array([scale.view(np.float32)[0] == np.float32(wide)])
    known = {"no elements": np.array([not bits.size]), "the scale is 0": scale == 0,
             "the largest magnitude is the clip": own & (scale > 0),
             "a subnormal scale": (scale > 0) & (scale < _NORMAL), "the scale is infinite": scale == _INF}  # fmt: skip
    return {**_elements(bits), **histogram("code", golden["codes"], range(16)), **_counts(known)}


def _groups(case: Case) -> np.ndarray:
    bits = _bits(case)
    return bits.reshape(-1, int(case.params["group"])) if bits.size else bits.reshape(0, 1)


def _affine(case: Case, golden: Golden) -> Counts:
    bits, scales = _bits(case), golden["scales"].reshape(-1)
    groups = _groups(case)
    magnitude, negative = groups & _MAGNITUDE, groups >= np.uint32(1 << 31)
    least = np.uint32(0x38D1B717) if case.operation == "efficient_qat" else np.uint32(0x3532F4FC)
    found = {"all positive": ~negative & (magnitude > 0), "all negative": negative & (magnitude > 0),
             "all alike": groups == groups[:, :1], "all NaN": magnitude > _INF}  # fmt: skip
    hits = {name: hit.all(axis=1) for name, hit in found.items()} | {"the least scale": scales == least}
    zeros = golden["zeros"].reshape(-1)
    common = {**_elements(bits), **histogram("code", golden["codes"], range(16)), **_counts(hits)}
    if case.operation == "int4_affine":
        infinite = _counts({"an infinite scale": scales == _INF})
        return {**common, **histogram("zero point", zeros, range(16)), **infinite}
    value = zeros.view(np.float32)
    return {**common, **_counts({
        "the largest scale": scales == np.uint32(0x461C4000), "zero point below 0": value < 0,
        "zero point of 0 to 15": (value >= 0) & (value <= 15), "zero point above 15": value > 15,
        "zero point -0": zeros == np.uint32(1 << 31), "zero point without units": np.abs(value) > 2**24,
    })}  # fmt: skip


def _kept(case: Case, golden: Golden) -> Counts:
    groups, scales = _groups(case), golden["scales"].reshape(-1)
    places = golden["kept"].reshape(-1, 2).astype(np.int64)
    magnitude = np.where((groups & _MAGNITUDE) > _INF, np.uint32(0), groups & _MAGNITUDE)
    number = np.arange(len(groups))
    first, second = (magnitude[number, places[:, side]] for side in (0, 1))
    hits = {"the first kept is left": places[:, 0] < places[:, 1],
            "the first kept is right": places[:, 0] > places[:, 1],
            "two equal ones are kept": (first == second) & (first > 0), "a kept zero": second == 0,
            "an infinite one is kept": first == _INF, "an infinite scale": scales == _INF,
            "the least scale": scales == np.uint32(0x358637BD),
            "the third is as large": (scales == second) & (second > 0)}  # fmt: skip
    return {**_elements(_bits(case)), **histogram("code", golden["codes"], range(16)), **_counts(hits)}


def _qat_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = ("the largest code", "the least code", "the code 0", "a vector with NaN", "a vector with Inf",
             "a vector of zeros", "a value that is NaN")  # fmt: skip
    own = dict.fromkeys(names, "")
    return {**_INPUTS, **own, **({"a value of -0": ""} if params["symmetric"] else {})}


def _qat(case: Case, golden: Golden) -> Counts:
    bits, codes, values = _bits(case), golden["codes"].view(np.int32), golden["values"]
    magnitude = (bits.reshape(1, -1) if case.params["layerwise"] else bits) & _MAGNITUDE
    width, whole = int(case.params["bits"]), magnitude.shape[1] > 0
    ends = (1 - (1 << width - 1), (1 << width - 1) - 1) if case.params["symmetric"] else (0, (1 << width) - 1)
    hits = {"the largest code": codes == ends[1], "the least code": codes == ends[0], "the code 0": codes == 0,
            "a vector with NaN": (magnitude > _INF).any(axis=1), "a vector with Inf": (magnitude == _INF).any(axis=1),
            "a vector of zeros": (magnitude == 0).all(axis=1) & whole, "a value that is NaN": values > _INF,
            "a value of -0": values == np.uint32(1 << 31)}  # fmt: skip
    return {**_elements(bits), **_counts(hits)}


_ENDS = {"all positive": "a group", "all negative": "a group", "all alike": "a group", "all NaN": "a group",
         "the least scale": ""}  # fmt: skip
sawb = (
    Group("SAWB", _names({
        "no elements": "", "the scale is 0": "", "the largest magnitude is the clip": "the formula gives none",
        "a subnormal scale": "", "the scale is infinite": "",
    }), _tensor),
)  # fmt: skip
int4_affine = (
    Group("affine INT4", _names({
        **_ENDS, **{f"zero point {code}": "" for code in range(16)}, "an infinite scale": "",
    }), _affine),
)  # fmt: skip
efficient_qat = (
    Group("affine INT4", _names({
        **_ENDS, "the largest scale": "", "zero point below 0": "", "zero point of 0 to 15": "",
        "zero point above 15": "", "zero point -0": "", "zero point without units": "beyond 2^24",
    }), _affine),
)  # fmt: skip
int4_keep_two = (
    Group("two kept elements", _names({
        "the first kept is left": "", "the first kept is right": "", "two equal ones are kept": "", "a kept zero": "",
        "an infinite one is kept": "", "an infinite scale": "", "the least scale": "", "the third is as large": "",
    }), _kept),
)  # fmt: skip
llm_qat = (Group("LLM-QAT", _qat_names, _qat),)


def _read_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = ("no zero points", "whole zero points", "float32 zero points", "one scale", "a scale of 0", "no rows",
             "a negative scale", "a NaN scale", "an infinite scale", "a value of -0", "a subnormal value",
             "an infinite value", "a value that is NaN")  # fmt: skip
    return {**_CODES, **dict.fromkeys(names, "")}


def _read(case: Case, golden: Golden) -> Counts:
    values, scales = golden["values"], case.inputs["scales"].view(np.uint32)
    size, magnitude, zeros = scales & _MAGNITUDE, values & _MAGNITUDE, case.inputs.get("zeros")
    kind = "no" if zeros is None else "whole" if zeros.dtype == np.uint8 else "float32"
    said = {f"{kind} zero points": True, "one scale": scales.shape == (1,), "no rows": not len(values)}
    hits = {"a scale of 0": size == 0, "a negative scale": (scales >> 31 == 1) & (size > 0), "a NaN scale": size > _INF,
            "an infinite scale": size == _INF, "a value of -0": values == np.uint32(1 << 31),
            "a subnormal value": (magnitude > 0) & (magnitude < _NORMAL), "an infinite value": magnitude == _INF,
            "a value that is NaN": magnitude > _INF}  # fmt: skip
    codes = histogram("code", case.inputs["codes"], range(16))
    return {**codes, **_counts(hits), **{name: int(hit) for name, hit in said.items()}}


def _fp4(case: Case, golden: Golden) -> Counts:
    bits, tops = _bits(case), case.inputs["maxval"].view(np.uint32)
    top = tops if len(tops) == 1 else tops[:, None]
    magnitude = bits & _MAGNITUDE
    hits = {"above the largest": (magnitude > top) & (magnitude <= _INF), "the largest itself": magnitude == top,
            "a value of -0": golden["values"] == np.uint32(1 << 31),
            "a small one that gives 0": (golden["values"] & _MAGNITUDE == 0) & (magnitude > 0)}  # fmt: skip
    rows = {"a number for each row": np.array([len(tops) != 1]), "no rows": np.array([not len(bits)])}
    return {**_elements(bits), **histogram("code", golden["codes"], range(16)), **_counts({**hits, **rows})}


dequantize_int4 = (Group("INT4", _read_names, _read),)
llm_fp4 = (
    Group("LLM-FP4", _names({
        "above the largest": "", "the largest itself": "", "a value of -0": "", "a small one that gives 0": "",
        "a number for each row": "`maxval`", "no rows": "M is 0",
    }), _fp4),
)  # fmt: skip
