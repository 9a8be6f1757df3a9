"""Coverpoints of DGE and OCC (N25)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.arrays import float32_bits

from ..case import Case
from .point import Counts, Golden, Group

EDGES = np.array([0, 0x3F000000, 0x3F800000, 0x3FC00000, 0x40000000, 0x40400000, 0x40800000, 0x40C00001], np.uint32)
_INTERVALS = ("0 to 0.5", "0.5 to 1", "1 to 1.5", "1.5 to 2", "2 to 3", "3 to 4", "4 to 6")
_INF = np.uint32(0x7F800000)


def _slope_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    sides = {f"{sign}{name}": "an interval" for sign in "+-" for name in _INTERVALS}
    return {**sides, "beyond 6": "", "below -6": "", "NaN": "", "infinite": "", "subnormal": "an input",
            "the cap": "a result", "1/k": "a result", "between": "a slope that is neither", "a bound of intervals": "",
            "a middle": "t is 0"}  # fmt: skip


def _slopes(case: Case, golden: Golden) -> Counts:
    bits = float32_bits(np.ascontiguousarray(case.inputs["x"]).reshape(-1))
    magnitude, negative = bits & np.uint32(0x7FFFFFFF), bits >= np.uint32(1 << 31)
    values = golden["values"].reshape(-1)
    top, least = (0x40400000, 0x3E4CCCCD) if values.itemsize == 4 else (0x4040, 0x3E4D)
    where = np.searchsorted(EDGES, magnitude, side="right") - 1
    middles = np.array([0x3E800000, 0x3F400000, 0x3FA00000, 0x3FE00000, 0x40200000, 0x40600000, 0x40A00000], np.uint32)
    finite, inside = magnitude < _INF, magnitude < EDGES[-1]
    hits = {
        "beyond 6": ~inside & finite & ~negative, "below -6": ~inside & finite & negative, "NaN": magnitude > _INF,
        "infinite": magnitude == _INF, "subnormal": (magnitude > 0) & (magnitude < np.uint32(1 << 23)),
        "the cap": values == top, "1/k": values == least, "between": (values > least) & (values < top),
        "a bound of intervals": np.isin(magnitude, EDGES[:-1]) | (magnitude == np.uint32(0x40C00000)),
        "a middle": np.isin(magnitude, middles),
    }  # fmt: skip
    for number, name in enumerate(_INTERVALS):
        hits["+" + name] = (where == number) & ~negative
        hits["-" + name] = (where == number) & negative
    return {name: int(np.count_nonzero(hit)) for name, hit in hits.items()}


def _clamp_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return {"raised": "to the lower threshold", "lowered": "to the upper one", "kept": "between them",
            "NaN element": "", "NaN threshold": "", "infinite threshold": "", "equal thresholds": "",
            "negative zero": "an element", "an inexact residual": "", "no elements": "", "one vector": "",
            "the greatest is the threshold": "100 elements or fewer"}  # fmt: skip


def _clamps(case: Case, golden: Golden) -> Counts:
    x = np.ascontiguousarray(case.inputs["x"])
    bits, out, residual = x.view(f"u{x.itemsize}"), golden["clamped"], golden["residual"]
    sign, infinity = (1 << 31, 0x7F800000) if x.itemsize == 4 else (1 << 15, 0x7F80)
    limits = golden["thresholds"]
    magnitude, ends = bits & bits.dtype.type(sign - 1), limits & limits.dtype.type(sign - 1)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        wide = [float32_bits(a.view(x.dtype)).view(np.float32).astype(np.float64) for a in (bits, out, residual)]
        inexact = (wide[0] - wide[1] != wide[2]) & (magnitude < infinity) & (ends.max(initial=0) < infinity)
    vectors = {"tensor": x.size, "token": x.shape[1], "channel": x.shape[0]}[case.params["axis"]]
    hits = {
        "raised": (wide[0] < wide[1]), "lowered": wide[0] > wide[1], "kept": bits == out,
        "NaN element": magnitude > infinity, "NaN threshold": ends > infinity, "infinite threshold": ends == infinity,
        "equal thresholds": limits[0] == limits[1], "negative zero": bits == sign, "an inexact residual": inexact,
    }  # fmt: skip
    said = {
        "no elements": not x.size,
        "one vector": limits.shape[1] == 1,
        "the greatest is the threshold": 0 < vectors <= 100,
    }
    return {n: int(np.count_nonzero(h)) for n, h in hits.items()} | {n: int(h) for n, h in said.items()}


dge = (Group("DGE", _slope_names, _slopes),)
occ = (Group("OCC", _clamp_names, _clamps),)
