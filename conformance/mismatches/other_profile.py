"""Whether a mismatch is another profile's right answer: then the kernel is not wrong but was asked for another one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refnum.errors import RefnumError
from refnum.profiles import PROFILES

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
        left = [name for name in left if name != case.profile and _gives(name, one)]
    return left if seen else []


def _gives(profile: str, seen: Seen) -> bool:
    try:
        golden, observed = run_golden(seen.case, PROFILES[profile]), seen.observed
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
