"""A variant right behind another one: a kernel that keeps a plan, or compiled code, must not take another variant's.

The other variant differs in one parameter, in the profile, or in a layout of scales; one with layouts or a key of
random bits is asked right behind the same without, and behind the same in other layouts. Each pair of calls has a shape
of its own, which the other variant meets first. Behind each other value of a parameter some more calls follow in forms
of their own: addresses, storages, dtypes.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import refnum

from ..case import Case, plain
from ..layouts import IN, OUT, PLAIN
from ..operation import OPERATIONS
from .build import build
from .mixed import form
from .plan import base_beside, tables

SPECIAL = frozenset({IN, OUT, "random"})
"""Parameters that only some variants have."""
FIRST, STEP = 35, 2
"""Rows, or elements, of the first pair of calls, and by how many those of the next have more."""
FORMED = 4
"""Calls in forms of their own behind each other value of a parameter; one behind another profile or layout."""


def others_of(operation: str, profile: str, params: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the profile and parameters of each variant that differs from one in a single thing."""
    row = OPERATIONS[operation]
    others: list[tuple[str, Mapping[str, Any]]] = [
        (profile, other) for other in row.variants() if sum(params[name] != other[name] for name in other) == 1
    ]
    others += [(name, params) for name in refnum.PROFILES if row.profiled and name != profile]
    if not SPECIAL.isdisjoint(params):
        others = [(profile, {name: level for name, level in params.items() if name not in SPECIAL})]
    others += [
        (profile, {**params, name: layout})
        for name in row.layouts
        for layout in row.stored_as
        if layout not in (PLAIN, params.get(name))
    ]
    return others


def cases_beside(operation: str, profile: str, params: Mapping[str, Any]) -> list[Case]:
    """Return an ordinary case of each of `others_of`."""
    return list(_beside(operation, profile, json.dumps(plain(params))))


@functools.lru_cache(maxsize=4)
def _beside(operation: str, profile: str, params: str) -> tuple[Case, ...]:
    every = others_of(operation, profile, json.loads(params))
    return tuple(build(operation, name, other, base_beside(operation, other), place)
                 for place, (name, other) in enumerate(every))  # fmt: skip


def cases_in_turn(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[tuple[Case, Case]]:
    """Yield pairs of cases of a shape: of another variant, then of this one; always the same."""
    base = base_beside(operation, params)
    tall = next(name for name in ("rows", "rows of an expert", "elements") if name in base)
    forms, dice, place = tables(operation, profile, params)[0], Random(f"{operation} {profile} {params}"), -1
    for name, other in others_of(operation, profile, params):
        changed = [f"{key} {level}" for key, level in other.items() if params.get(key) != level]
        changed += [f"no {key}" for key in params if key not in other]
        for turn in range(1 + (FORMED if name == profile and other.keys() == params.keys() else 1)):
            place += 1
            shape = {**base, tall: FIRST + STEP * place, "after": [*changed, name][0]}
            formed = {**shape, **(form(shape, forms, dice) if turn else {})}
            before = build(operation, name, other, shape, 2 * place)
            yield before, build(operation, profile, params, formed, 2 * place + 1)


def another(case: Case, refused: Callable[[str, str, Mapping[str, Any]], object]) -> Case:
    """Return a small case of another variant than a case's, and of another shape, for a call at the same time.

    refused: operation, profile, parameters -> whether that variant cannot be asked; the case's own stands last.
    """
    operation, row = case.operation, OPERATIONS[case.operation]
    choices, known = list(row.variants()), list(refnum.PROFILES)
    own = {name: case.params[name] for name in row.params if name in case.params}
    at, rounding = choices.index(own) if own in choices else 0, refnum.get_profile(case.profile).rounding
    start = known.index(case.profile) + 1 if case.profile in known else 0
    alike = [name for name in (*known[start:], *known[:start]) if refnum.PROFILES[name].rounding == rounding]
    profiles = [*(name for name in alike if row.profiled and name != case.profile), case.profile]
    every = itertools.product(profiles, (*choices[at + 1 :], *choices[: at + 1]))
    profile, params = next((one for one in every if not refused(operation, *one)), (case.profile, choices[at]))
    base, (rows, *_) = base_beside(operation, params), (*next(iter(case.inputs.values())).shape, 0)
    tall = next(name for name in ("rows", "rows of an expert", "elements") if name in base)
    return build(operation, profile, params, {**base, tall: FIRST + STEP * (rows == FIRST)}, 2 * at + 1)
