"""Whether a mismatch is the right answer under another profile or value: the kernel may follow that one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refnum.errors import RefnumError
from refnum.profiles import PROFILES, Profile

from ..cases.case import DESCRIPTIVE, Case
from ..cases.operation import OPERATIONS, run_golden
from ..subjects.subject import Subject, takes
from .diagnose import Seen

SHOWN, ASKED = 3, 6
"""Profiles that are named, and cases, small ones first, that each must explain."""


def other_profiles(seen: Sequence[Seen]) -> list[str]:
    """Return the named profiles under which every bit of some failing cases is right, none where there is no case."""
    left = [name for name, profile in PROFILES.items() if profile.rounding != "stochastic"]
    for one in sorted(seen, key=lambda one: one.case.elements)[:ASKED]:
        case = one.case
        if not OPERATIONS[case.operation].profiled or "rbits" in case.inputs:
            return []
        left = [name for name in left if name != case.profile and _gives(case, one, PROFILES[name])]
    return left if seen else []


def other_values(seen: Sequence[Seen]) -> list[tuple[str, Any]]:
    """Return (parameter, value) for each other value under which every bit of some failing cases is right."""
    params = OPERATIONS[seen[0].case.operation].params if seen else {}
    left = [(name, value) for name, choices in params.items() if name not in DESCRIPTIVE for value in choices]
    for one in sorted(seen, key=lambda one: one.case.elements)[:ASKED]:
        given = one.case.params
        left = [
            (name, value)
            for name, value in left
            if given.get(name, value) != value and _gives(one.case.with_inputs(params={**given, name: value}), one)
        ]
    return left


def _gives(case: Case, seen: Seen, profile: Profile | None = None) -> bool:
    try:
        golden, observed = run_golden(case, profile), seen.observed
    except RefnumError:
        return False
    return all(name in observed and np.array_equal(bits, observed[name]) for name, bits in golden.items())


def advice(subject: Subject, seen: Sequence[Seen]) -> str:
    """Return what to do where another profile gives what a kernel gave on failing cases, or an empty string."""
    names = other_profiles(seen)[:SHOWN]
    if not names:
        return ""
    case, found = seen[0].case, " or ".join(names)
    if takes(subject.operations[case.operation], "profile"):
        return f"every bit is right under {found}, though the kernel was told {case.profile}"
    declare = f" and declare it in the place of {', '.join(subject.claims(case.operation))}"
    words = f"every bit is right under {found}; if it follows that, try -p {names[0]}"
    return words + (declare if subject.claims(case.operation) else "")


def value_advice(subject: Subject, seen: Sequence[Seen]) -> str:
    """Return what to do where another value of a parameter gives what a kernel gave on failing cases, or ""."""
    values = other_values(seen)[:SHOWN]
    if not values:
        return ""
    case, name = seen[0].case, values[0][0]
    found = " or ".join(f"{parameter}={value}" for parameter, value in values)
    if takes(subject.operations[case.operation], name):
        return f"every bit is right under {found}, though the kernel was told {name}={case.params[name]}"
    return (
        f"every bit is right under {found}; if it follows that, take the argument `{name}` and raise "
        "NotImplementedError for its other values"
    )
