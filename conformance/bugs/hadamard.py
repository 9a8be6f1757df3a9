"""Wrong rules of rotations (N22): other signs, other rows of the matrix, other roundings, a maximum taken too early."""

from __future__ import annotations

from typing import Any

import numpy as np

import refnum
from refnum import softfloat
from refnum.arrays import float32_bits
from refnum.hadamard import SIGNS

from ..cases.case import Case
from .tools import INF, MAGNITUDE, Outputs, Rule, changed

BY_SIGN_CHANGES = (0, 8, 12, 4, 6, 14, 10, 2, 3, 11, 15, 7, 5, 13, 9, 1)
"""Rows of the matrix in the order of their changes of sign, as a Walsh matrix has them."""


def _signs(case: Case) -> int:
    return int(case.params.get("signs", SIGNS))


def other_signs(change: Any) -> Rule:
    """Return the rule of a kernel that negates other elements than those of the mask."""

    def rule(case: Case, golden: Outputs) -> Outputs | None:
        return changed(case, signs=change(_signs(case)))

    return rule


OTHER_SIGNS = (
    other_signs(lambda signs: 0),
    other_signs(lambda signs: int(f"{signs:016b}"[::-1], 2)),
    other_signs(lambda signs: signs ^ 0xFFFF),
    other_signs(lambda signs: SIGNS),
)
"""No signs, the most significant bit first, a set bit that means plus, the published ones whatever is given."""


def other_order(case: Case, golden: Outputs) -> Outputs | None:
    """A sum in float32 where it is to be exact, or the other way round."""
    return changed(case, order="sequential" if case.params["order"] == "exact" else "exact")


def _rotated(case: Case, dtype: str) -> np.ndarray:
    """The rotation of a case in a dtype."""
    params = case.params
    found: np.ndarray = refnum.hadamard16(case.inputs["x"], _signs(case), params["axis"], params["order"], dtype)
    return found


def _quantised(case: Case, rotated: np.ndarray) -> Outputs:
    """The codes of other numbers than those of the rotation, in the case's own orientation."""
    rows = rotated if case.params["axis"] else np.ascontiguousarray(rotated.T)
    more: dict[str, Any] = {name: case.inputs[name] for name in ("tensor_amax", "rbits") if name in case.inputs}
    found = refnum.quantize_nvfp4(rows, case.params.get("variant", "TE"), **more)
    return dict(zip(("packed", "scales", "tensor_amax"), found, strict=True))


def by_sign_changes(case: Case, golden: Outputs) -> Outputs | None:
    """Row j of the matrix is another one: the results of a group are permuted."""
    values = _rotated(case, case.params.get("dtype", "bfloat16"))
    axis = case.params["axis"]
    tall, wide = values.shape
    shape = (tall, wide // 16, 16) if axis else (tall // 16, 16, wide)
    moved = np.take(values.reshape(shape), BY_SIGN_CHANGES, axis=2 if axis else 1).reshape(tall, wide)
    return {"values": moved} if "dtype" in case.params else _quantised(case, moved)


def rounded_twice(case: Case, golden: Outputs) -> Outputs | None:
    """An exact sum is rounded to float32, and that to bfloat16."""
    if case.params["order"] != "exact" or case.params.get("dtype", "bfloat16") != "bfloat16":
        return None
    words = softfloat.to_bfloat16(_rotated(case, "float32").view(np.uint32))
    values = words.view(_rotated(case, "bfloat16").dtype)
    return {"values": values} if "dtype" in case.params else _quantised(case, values)


def not_rounded(case: Case, golden: Outputs) -> Outputs | None:
    """The rotated numbers are quantised as they are in float32, not rounded to bfloat16."""
    return None if "dtype" in case.params else _quantised(case, _rotated(case, "float32"))


def maximum_before(case: Case, golden: Outputs) -> Outputs | None:
    """The maximum of the tensor is that before the rotation."""
    if "dtype" in case.params or "tensor_amax" in case.inputs:
        return None
    magnitude = float32_bits(case.inputs["x"]) & MAGNITUDE
    amax = np.where(magnitude > INF, np.uint32(0), magnitude).max(initial=0).reshape(1).astype(np.uint32)
    given = Case(case.operation, case.profile, case.params, {**case.inputs, "tensor_amax": amax.view(np.float32)})
    return changed(given)
