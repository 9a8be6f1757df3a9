"""A variant right behind another one: a kernel that keeps a plan, or compiled code, must not take another variant's.

The other variant differs in one parameter, in the profile, or in the layout of its scales, which may be that of bytes.
Each pair of calls has a shape of its own, which the other variant meets first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import refnum

from ..case import Case
from ..layouts import IN, OUT
from ..operation import OPERATIONS
from .build import build
from .plan import base_beside

FIRST, STEP = 35, 2
"""Rows, or elements, of the first pair of calls, and by how many those of the next have more."""
RANDOM, MOST_LAYOUTS = "random", 2
"""The parameter of a variant with keyed random bits; and other layouts than plain bytes behind which one is called."""


def cases_in_turn(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[tuple[Case, Case]]:
    """Yield pairs of cases of a shape: of another variant, then of this one; always the same."""
    row = OPERATIONS[operation]
    base = base_beside(operation, params)
    tall = next(name for name in ("rows", "rows of an expert", "elements") if name in base)
    layouts = [name for name in (IN, OUT) if name in params]
    others: list[tuple[str, Mapping[str, Any]]]
    if layouts or RANDOM in params:
        laid = [{**params, name: layout} for name in layouts for layout in row.stored_as[1:]]
        laid = [other for other in laid if other != params][:MOST_LAYOUTS]
        others = [(profile, other) for other in ({name: params[name] for name in row.params}, *laid)]
    else:
        own = [other for other in row.variants() if sum(params[name] != other[name] for name in other) == 1]
        others = [(profile, other) for other in own]
        others += [(name, params) for name in refnum.PROFILES if row.profiled and name != profile]
    for place, (name, other) in enumerate(others):
        differs = [key for key in {**params, **other} if params.get(key) != other.get(key)]
        changed = [f"{key} {other.get(key, 'plain')}" for key in differs] or [name]
        shape = {**base, tall: FIRST + STEP * place, "after": changed[0]}
        yield build(operation, name, other, shape, 2 * place), build(operation, profile, params, shape, 2 * place + 1)
