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
from ..families import part_of
from ..operation import OPERATIONS
from .point import Counts, Group, merged

__all__ = ["Group", "count", "describe", "expected", "holes", "merged"]


def groups(operation: str) -> tuple[Group, ...]:
    """Return the groups of coverpoints of an operation: the tuple of its name in the module of its family."""
    return part_of(__name__, OPERATIONS[operation].family, operation) or ()


def describe(operation: str, profile: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return every coverpoint of a variant with what it means."""
    found: dict[str, str] = {}
    if OPERATIONS[operation].undefined(profile):
        return found
    whose = OPERATIONS[operation].joins or operation
    for group in groups(operation):
        found |= group.names(whose, profile, params)
    return found


def expected(operation: str, profile: str, params: Mapping[str, Any]) -> list[str]:
    """Return the coverpoints that a complete run of a variant hits; one that is not hit is a hole."""
    return list(describe(operation, profile, params))


def count(case: Case, golden_outputs: Mapping[str, np.ndarray]) -> Counts:
    """Return how often one case hits each coverpoint of its variant.

    Args:
        case: any case of a judged operation.
        golden_outputs: as `operation.run_golden` returns them.

    Returns:
        Expected coverpoint -> hits, 0 for one that the case does not hit. Integers decide; the cost is a few passes
        over the elements.
    """
    whose = OPERATIONS[case.operation].joins
    if whose:
        packed, scales = refnum.unpack_payload(golden_outputs["payload"])
        case, golden_outputs = replace(case, operation=whose), {"packed": packed, "scales": scales}
    names = expected(case.operation, case.profile, case.params)
    found: Counts = {}
    for group in groups(case.operation):
        found |= group.count(case, golden_outputs)
    return {name: int(found.get(name, 0)) for name in names}


def holes(operation: str, profile: str, params: Mapping[str, Any], counts: Mapping[str, int]) -> list[str]:
    """Return the expected coverpoints whose count is 0 or missing."""
    return [name for name in expected(operation, profile, params) if not counts.get(name)]
