"""Numeric coverpoints: what the cases of an operation must have met before silence means anything.

A GPU kernel has no branches that a coverage tool could see; these points take their place. `expected` lists
those that some legal input reaches, `count` counts them in one case, and the difference is a hole to report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import refnum

from ..case import Case
from ..operation import OPERATIONS
from .blocks import BLOCKS
from .elements import ROUNDING
from .moves import PAYLOAD, SPLITS, SWIGLU
from .point import Counts, Group, merged
from .scales import READ, SCALE_CAST, WRITTEN
from .tiles import DIRECT, DISTANCE

__all__ = ["COVERPOINTS", "Group", "count", "describe", "expected", "holes", "merged"]

COVERPOINTS: tuple[Group, ...] = (
    ROUNDING, BLOCKS, WRITTEN, READ, SCALE_CAST, DISTANCE, DIRECT, SPLITS, PAYLOAD, SWIGLU,
)  # fmt: skip

FUSED = {"quantize_payload": "quantize_mxfp4", "fp8_to_payload": "fp8_to_mxfp4"}
"""Operation that writes payload rows -> the one whose codes and scales they join: it has the same coverpoints."""


def describe(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return every coverpoint of a variant with what it means."""
    found: dict[str, str] = {}
    if OPERATIONS[operation].undefined(profile):
        return found
    operation = FUSED.get(operation, operation)
    for group in COVERPOINTS:
        if operation in group.operations:
            found |= group.names(operation, profile, params)
    return found


def expected(operation: str, profile: str, params: Mapping[str, Any]) -> list[str]:
    """Return the coverpoints that a complete run of a variant hits; one that is not hit is a hole."""
    return list(describe(operation, profile, params))


def count(case: Case, golden_outputs: Mapping[str, np.ndarray]) -> Counts:
    """Return how often one case hits each coverpoint of its variant.

    golden_outputs: as `operation.run_golden` returns them. Whole numbers decide; cost is a few passes over the
    elements. Only expected coverpoints are returned, with 0 for those that the case does not hit.
    """
    if case.operation in FUSED:
        packed, scales = refnum.unpack_payload(golden_outputs["payload"])
        case, golden_outputs = replace(case, operation=FUSED[case.operation]), {"packed": packed, "scales": scales}
    names = expected(case.operation, case.profile, case.params)
    found: Counts = {}
    for group in COVERPOINTS:
        if case.operation in group.operations:
            found |= group.count(case, golden_outputs)
    return {name: int(found.get(name, 0)) for name in names}


def holes(operation: str, profile: str, params: Mapping[str, Any], counts: Mapping[str, int]) -> list[str]:
    """Return the expected coverpoints whose count is 0 or missing."""
    return [name for name in expected(operation, profile, params) if not counts.get(name)]
