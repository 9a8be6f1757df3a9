"""Coverpoints of the row-wise conversions between FP8 and MXFP4 (N7, N8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..case import Case
from .distances import DISTANCE
from .elements import ROUNDING
from .point import Counts, Golden, Group
from .scales import above_floor, below, written


def _direct_names(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    return {
        "NaN code": "makes its block NaN", "negative NaN code": "0xFF", "tile byte 255": "makes its blocks NaN",
        "tile byte 0": "2**-127", "tile byte 254": "2**127", "zero block beside others": "in one tile",
        "zero block": "every code zero", "negative zero": "code 0x80", "subnormal block maximum": "codes 1..7 only",
        "largest code as maximum": "448", "short tile": "fewer than four blocks",
    }  # fmt: skip


def _direct(case: Case, golden: Golden) -> Counts:
    codes, scales = case.inputs["codes"], case.inputs["scales"]
    if not codes.size:
        return {}
    blocks = (codes & 0x7F).reshape(codes.shape[0], -1, 32).max(axis=2)
    missing = -blocks.shape[1] % 4
    tiles = np.pad(blocks, ((0, 0), (0, missing)), constant_values=255).reshape(codes.shape[0], -1, 4)
    zero = tiles == 0
    beside = zero.any(axis=2) & ((tiles > 0) & (tiles < 0x7F)).any(axis=2)
    counts = {
        "NaN code": codes & 0x7F == 0x7F, "negative NaN code": codes == 0xFF, "negative zero": codes == 0x80,
        "tile byte 255": scales == 255, "tile byte 0": scales == 0, "tile byte 254": scales == 254,
        "zero block": blocks == 0, "zero block beside others": beside, "largest code as maximum": blocks == 0x7E,
        "subnormal block maximum": (blocks > 0) & (blocks < 8),
        "short tile": np.full(len(codes) if missing else 0, True),
    }  # fmt: skip
    return {name: int(np.count_nonzero(hit)) for name, hit in counts.items()}


fp8_to_mxfp4 = (ROUNDING, written(above_floor), Group("direct quantisation", _direct_names, _direct))
mxfp4_to_fp8 = (ROUNDING, written(below(249)), DISTANCE)  # at most 254 - 6
