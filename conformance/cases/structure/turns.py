"""A variant right behind another one: a kernel that keeps a plan, or compiled code, must not take another variant's.

The other variant differs in one parameter, in the profile, or in a layout of scales; one with layouts or a key of
random bits is asked right behind the same without, and behind the same in other layouts. Each pair of calls has a shape
of its own, which the other variant meets first. Behind each other value of a parameter some more calls follow in forms
of their own: addresses, storages, dtypes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import refnum

from ..case import Case, plain
from ..layouts import IN, OUT, PLAIN
from ..operation import OPERATIONS
from .build import build
from .covering import Level, Row
from .mixed import form
from .plan import base_beside, tables, uniform_levels

SPECIAL = frozenset({IN, OUT, "random"})
"""Parameters that only some variants have."""
FIRST, STEP = 35, 2
"""Rows, or elements, of the first pair of calls, and by how many those of the next have more."""
Refused = Callable[[str, str, Mapping[str, Any]], object]
"""(operation, profile, parameters) -> whether that variant cannot be asked."""
UNIFORM_OF = 6
"""Variants that are together asked each element all over, behind another variant."""
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


def far_from(
    operation: str, profile: str, params: Mapping[str, Any], refused: Refused
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return few variants that together have each other value of every parameter, and every other profile.

    As much as may be differs in each: one call behind it is a call behind another value of every parameter.
    """
    near = [one for one in others_of(operation, profile, params) if not refused(operation, *one)]
    if not SPECIAL.isdisjoint(params):
        return near
    every = [one for one in OPERATIONS[operation].variants() if not refused(operation, profile, one)]
    apart = [{(name, str(level)) for name, level in one.items() if level != params[name]} for one in every]
    wanted, found = set[tuple[str, str]]().union(*apart), list[Mapping[str, Any]]()
    while wanted:
        best = max(range(len(every)), key=lambda place: (len(apart[place] & wanted), len(apart[place])))
        found.append(every[best])
        wanted -= apart[best]
    found, names = found or [params], [name for name, _ in near if name != profile] or [profile]
    laps = max(len(found), len(names)) if near else 0
    far = [(names[turn % len(names)], found[turn % len(found)]) for turn in range(laps)]
    far = [one for one in far if not refused(operation, *one)] or near
    return far + [one for one in near if one[1].keys() != params.keys()]


def case_beside(operation: str, profile: str, params: Mapping[str, Any], levels: Row, seed: int) -> Case:
    """Return an ordinary case of a variant, with some levels, of a shape that tells it from those beside it."""
    return _ordinary(operation, profile, json.dumps(plain(params)), tuple(levels.items()), seed)


@functools.lru_cache(maxsize=64)
def _ordinary(operation: str, profile: str, params: str, levels: tuple[tuple[str, Level], ...], seed: int) -> Case:
    given = json.loads(params)
    return build(operation, profile, given, {**base_beside(operation, given), **dict(levels)}, seed)


def opposite(case: Case) -> tuple[Row, Row]:
    """Return levels of a call that has the optional inputs which a case lacks, and the other way round; and dtypes."""
    forms, _, shapes = tables(case.operation, case.profile, case.params)
    optional = [name for name, levels in shapes.items() if "absent" in levels]
    has: Row = {name: "absent" if name in case.inputs else "given" for name in optional}
    return has, {name: levels[1] for name, levels in forms.items() if name.endswith(".dtype") and len(levels) > 1}


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
    yield from _uniform_in_turn(operation, profile, params, place + 1)


def _uniform_in_turn(
    operation: str, profile: str, params: Mapping[str, Any], place: int
) -> Iterator[tuple[Case, Case]]:
    """Yield pairs of which the second one has an input that is one element all over, some for each variant.

    The first one is of a variant of `far_from`, and has the optional inputs that the second one lacks.
    """
    every = [plain(one) for one in OPERATIONS[operation].variants()]
    if plain(params) not in every or OPERATIONS[operation].family == "product":
        return
    apart = far_from(operation, profile, params, lambda _, name, other: (name, *other) != (profile, *params))
    far = apart or [(profile, params)]
    own, base = every.index(plain(params)), base_beside(operation, params)
    step = len(every) // UNIFORM_OF | 1  # odd, as most parameters have two values
    optional = [name for name, levels in tables(operation, profile, params)[2].items() if "absent" in levels]
    levels = uniform_levels(operation, profile, params)[own % step :: step]
    tall = next(name for name in ("rows", "rows of an expert", "elements") if name in base)
    for turn, level in enumerate(levels):
        shape, (_, other) = {**base, tall: FIRST + STEP * (place + turn)}, far[(own + turn) % len(far)]
        ways = ("given", "absent") if level.partition(" ")[0] in optional else ("absent", "given")
        has, had = (Row(dict.fromkeys(optional, way)) for way in ways)
        before = build(operation, profile, other, {**shape, **had}, 2 * (place + turn))
        levels_of = {**shape, **has, "uniform": level, "after": "another variant"}
        yield before, build(operation, profile, params, levels_of, 2 * (place + turn) + 1)


def another(case: Case, refused: Refused) -> Case:
    """Return a small case of another variant than a case's, and of another shape, for a call at the same time.

    The case's own where no other can be asked.
    """
    operation, row = case.operation, OPERATIONS[case.operation]
    own = {name: case.params[name] for name in row.params if name in case.params}
    profile, params = next(iter(far_from(operation, case.profile, own, refused)), (case.profile, own))
    base, (rows, *_) = base_beside(operation, params), (*next(iter(case.inputs.values())).shape, 0)
    tall = next(name for name in ("rows", "rows of an expert", "elements") if name in base)
    return build(operation, profile, params, {**base, tall: FIRST + STEP * (rows == FIRST)}, 1)
