"""Coverpoints of optimiser steps (N27)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..case import Case
from .point import Counts, Golden, Group

_MAGNITUDE, _INF, _NORMAL = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000), np.uint32(1 << 23)
_ARRAYS = ("gradient", "weight", "m", "v")
_KINDS = ("NaN", "infinite", "zero", "negative zero", "subnormal")


def _hits(bits: np.ndarray) -> dict[str, np.ndarray]:
    magnitude = bits & _MAGNITUDE
    return {
        "NaN": magnitude > _INF, "infinite": magnitude == _INF, "zero": bits == 0,
        "negative zero": bits == np.uint32(1 << 31), "subnormal": (magnitude > 0) & (magnitude < _NORMAL),
    }  # fmt: skip


def _names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {f"{kind} {name}": "given" for name in _ARRAYS for kind in _KINDS} | {"negative v": "given"}
    forgotten, anew = params.get("forget") == "after", params.get("reset") or params.get("forget") == "before"
    results = ("weight",) if forgotten else ("weight", "m", "v")
    names |= {
        f"{kind} {name} after": "a result"
        for name in results
        for kind in _KINDS
        if kind != "negative zero" or name == "weight" or (name == "m" and not anew)
    }
    if operation == "spam_apply":
        rare = ["negative zero weight"] if params["decay"] else []
        rare += ["infinite m", "infinite v", "subnormal v"] if params["clip"] and params["reset"] else []
        names = {
            name: words
            for name, words in names.items()
            if name.removesuffix(" after") not in rare or "after" not in name
        }
    if operation == "spam_apply" and params["clip"]:
        names["a spike"] = "clipped"
    if operation == "stable_spam_apply":
        names |= {
            "above the limit": "clipped",
            "a norm of 0": "gradients stay",
            "a norm above 0": "gradients are scaled",
        }
    return names


def _count(case: Case, golden: Golden) -> Counts:
    given = {name: case.inputs[name].view(np.uint32) for name in _ARRAYS}
    hits = {f"{kind} {name}": hit for name, bits in given.items() for kind, hit in _hits(bits).items()}
    hits |= {f"{k} {name} after": hit for name in ("weight", "m", "v") for k, hit in _hits(golden[name]).items()}
    hits["negative v"] = (given["v"] >> 31 == 1) & (given["v"] << 1 > 0)
    scalars, gradient = case.inputs["factors"].reshape(-1), case.inputs["gradient"]
    with np.errstate(all="ignore"):
        if case.operation == "spam_apply" and case.params["clip"]:
            v = np.zeros_like(case.inputs["v"]) if case.params["reset"] else case.inputs["v"]
            hits["a spike"] = gradient * gradient > v * scalars[0]
        if case.operation == "stable_spam_apply":
            hits["above the limit"] = np.abs(gradient) > scalars[1]
            hits |= {"a norm of 0": scalars[3:4] == 0, "a norm above 0": scalars[3:4] > 0}
    return {label: int(np.count_nonzero(hit)) for label, hit in hits.items()}


adam_apply = spam_apply = stable_spam_apply = (Group("optimiser step", _names, _count),)
