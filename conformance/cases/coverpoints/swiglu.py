"""Coverpoints of SwiGLU (N11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refnum.formats import BF16, FP32, Format

from ..case import Case
from ..draw.bits import float_bits
from ..operation import OPERATIONS
from .point import Counts, Golden, Group
from .scales import from_blocks, from_tiles, written


def _swiglu_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    names = {f"{kind} {name}": "" for name in ("gate", "up") for kind in _KINDS}
    names |= {"prob": "given", "no prob": "left out", "prob of 0": "", "NaN prob": ""}
    if "grad" in OPERATIONS[operation].inputs:
        names |= {"float32 gradient": "", "bfloat16 gradient": ""}
    return names


_KINDS = ("NaN", "Inf", "-Inf", "zero", "negative zero", "subnormal", "negative", "positive")


def _kinds(bits: np.ndarray, fmt: Format, name: str) -> Counts:
    magnitude = bits & (fmt.sign_mask - 1)
    infinity, negative = int(fmt.inf_code or 0), bits != magnitude
    hits = (magnitude > infinity, bits == infinity, bits == infinity | fmt.sign_mask, bits == 0, bits == fmt.sign_mask,
            (magnitude > 0) & (magnitude < 1 << fmt.mantissa_bits), negative, ~negative)  # fmt: skip
    return {f"{kind} {name}": int(np.count_nonzero(hit)) for kind, hit in zip(_KINDS, hits, strict=True)}


def _swiglu(case: Case, golden: Golden) -> Counts:
    found = _kinds(float_bits(case.inputs["gate"]), BF16, "gate") | _kinds(float_bits(case.inputs["up"]), BF16, "up")
    found |= {"prob": int("prob" in case.inputs), "no prob": int("prob" not in case.inputs)}
    if "prob" in case.inputs:
        prob = _kinds(float_bits(case.inputs["prob"]), FP32, "prob")
        found |= {"prob of 0": prob["zero prob"], "NaN prob": prob["NaN prob"]}
    if "grad" in case.inputs:
        wide = case.inputs["grad"].dtype.itemsize == 4
        found |= {"float32 gradient": int(wide), "bfloat16 gradient": int(not wide)}
    return found


def _reachable(operation: str, profile: str, params: Mapping[str, Any]) -> set[int]:
    if params.get("to") == "mxfp4":
        return from_blocks("quantize_mxfp4", profile, {"input": "float32"})
    return from_tiles("quantize_fp8_tiles", profile, {"input": "float32", "tile": (1, 128)})


INPUTS = Group("SwiGLU inputs", _swiglu_names, _swiglu)

swiglu_quantize = (written(_reachable), INPUTS)
swiglu_backward = (INPUTS,)
