"""Coverpoints of the matrix products (N19)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..case import Case
from ..draw.bits import float_bits
from ..draw.products import scale_kinds
from .point import Counts, Golden, Group

_SCALES = {"tensor": "one scale", "row": "one scale a row", "block": "1x128 scales", "square": "128x128 scales"}


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    order = str(params["order"])
    found = {
        "short last step": "K is no multiple of 32", "several runs of 128": "K is above 128", "negative zero": "a code",
        "NaN result": "canonical", "infinite result": "overflow or an infinite term", "zero result": "+0",
        "negative result": "below zero", "subnormal code": "exponent field 0", "one row": "M is 1",
    }  # fmt: skip
    return {**found, "no scales": "of `a`", **{_SCALES[kind]: "of `a`" for kind in scale_kinds(order) if kind}}


def _kind(case: Case) -> str:
    if "a_scales" not in case.inputs:
        return "no scales"
    scales = case.inputs["a_scales"]
    if scales.size == 1:
        return _SCALES["tensor"]
    if len(scales) != len(case.inputs["a"]):
        return _SCALES["square"]
    return _SCALES["block" if scales.shape[1] > 1 else "row"]


def _count(case: Case, golden: Golden) -> Counts:
    codes, values = case.inputs["a"], golden["values"]
    sign, inf = (1 << 31, 0x7F800000) if values.itemsize == 4 else (1 << 15, 0x7F80)
    magnitude = values & values.dtype.type(sign - 1)
    smallest = 8 if case.params["a_format"] == "E4M3" else 4
    hits = {
        "negative zero": codes == 0x80, "subnormal code": (codes & 0x7F > 0) & (codes & 0x7F < smallest),
        "NaN result": magnitude > inf, "infinite result": magnitude == inf, "zero result": values == 0,
        "negative result": (values != magnitude) & (magnitude <= inf),
    }  # fmt: skip
    rows, k = codes.shape
    said = {"short last step": k % 32 > 0, "several runs of 128": k > 128, "one row": rows == 1, _kind(case): True}
    return {**{name: int(np.count_nonzero(hit)) for name, hit in hits.items()}, **{n: int(h) for n, h in said.items()}}


def _bf16_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return {
        "short last step": "K is no multiple of 16", "several runs of 128": "K is above 128", "one row": "M is 1",
        "negative zero": "an element of `a`", "subnormal element": "of `a`", "NaN result": "canonical",
        "infinite result": "overflow or an infinite term", "zero result": "+0", "negative result": "below zero",
        "subnormal result": "kept",
    }  # fmt: skip


def _bf16_count(case: Case, golden: Golden) -> Counts:
    bits, values = float_bits(case.inputs["a"]), golden["values"]
    sign, inf = (1 << 31, 0x7F800000) if values.itemsize == 4 else (1 << 15, 0x7F80)
    magnitude = values & values.dtype.type(sign - 1)
    smallest = 0x00800000 if values.itemsize == 4 else 0x0080
    hits = {
        "negative zero": bits == 0x8000, "subnormal element": (bits & 0x7FFF > 0) & (bits & 0x7FFF < 0x0080),
        "NaN result": magnitude > inf, "infinite result": magnitude == inf, "zero result": values == 0,
        "negative result": (values != magnitude) & (magnitude <= inf),
        "subnormal result": (magnitude > 0) & (magnitude < smallest),
    }  # fmt: skip
    rows, k = bits.shape
    said = {"short last step": k % 16 > 0, "several runs of 128": k > 128, "one row": rows == 1}
    return {**{name: int(np.count_nonzero(hit)) for name, hit in hits.items()}, **{n: int(h) for n, h in said.items()}}


matmul_fp8 = (Group("products", _names, _count),)
matmul_bf16 = (Group("products", _bf16_names, _bf16_count),)
