"""Which profiles come into question, and which of them is closest to a kernel's answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from refnum.profiles import CHOICES, HOPPER, PROFILES, Profile, get_profile, profile_name

from .answers import Answer
from .nibbles import OURS, in_order, nibble_order
from .score import explaining, scored

OF_SCALES = ("scale_rule", "nonfinite", "zero_scale", "amax_floor")
OF_CODES = ("rounding", "ties", "overflow", "negative_zero")
FIELDS = ("scale_rule", "rounding", "ties", "overflow", "negative_zero", "nonfinite", "zero_scale", "amax_floor")
"""Every field, in the order in which they are told; those of `OF_SCALES` decide scales, all together the codes."""
FLOORS = sorted({p.amax_floor for p in PROFILES.values() if p.amax_floor is not None})

Say = Callable[[str], None]


def closest(answers: Sequence[Answer], say: Say) -> tuple[list[Profile], str]:
    """Return the profiles that explain the answers, or else those that come closest, and the order of nibbles.

    The scales are explained first, then, in the nibble order in which most agree, the codes under each profile that is
    left. There are several profiles if no case decides.
    """
    scales = [name for name, part in answers[0].observed.items() if part.kind == "scales"]
    codes = [name for name in answers[0].observed if name not in scales]
    left = _closest(answers, [HOPPER], scales, OF_SCALES, say)
    order = nibble_order(answers, left[0])
    if order != OURS:
        say(f"packed codes agree best in the nibble order {order}")
        answers = in_order(answers, order)
    return _closest(answers, left, codes, OF_CODES, say), order


def _closest(
    answers: Sequence[Answer], left: list[Profile], outputs: list[str], fields: Iterable[str], say: Say
) -> list[Profile]:
    candidates = _product(left, fields, answers)
    say(f"{' and '.join(outputs)}: {len(candidates)} candidates")
    return explaining(answers, candidates, outputs) or scored(answers, _product(left, fields), outputs, say)


def _product(bases: Iterable[Profile], names: Iterable[str], answers: Sequence[Answer] = ()) -> list[Profile]:
    """Return every combination of values of some fields, the others as in each base.

    Without answers the values are the known ones: a byte that a systematic error gives to zeros is no choice.
    """
    values = {name: values_of(name, answers) for name in names}
    choices = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    return [base.replace(name="candidate", **choice) for base in bases for choice in choices if _meant(choice)]


def _meant(choice: Mapping[str, Any]) -> bool:
    """Whether a combination says something of its own: there are no ties where nothing is rounded to nearest."""
    return choice.get("rounding", "nearest") == "nearest" or choice["ties"] == "even"


def values_of(name: str, answers: Sequence[Answer] = ()) -> list[Any]:
    """Return the values of a field that come into question, with those that the answers to zeros name."""
    if name == "zero_scale":
        return sorted({0, *(p.zero_scale for p in PROFILES.values()), *_zero_bytes(answers)})
    if name == "amax_floor":
        return [None, *FLOORS]
    return [value for value in CHOICES[name] if value != "stochastic"]


def _zero_bytes(answers: Sequence[Answer]) -> set[int]:
    """Return the scale bytes that the kernel gave to inputs that are all zero."""
    found: set[int] = set()
    for answer in answers:
        x = answer.case.inputs.get("x")
        if x is not None and not x.view(f"u{x.dtype.itemsize}").any():
            found |= {int(byte) for byte in np.unique(answer.observed["scales"].elements) if byte <= 254}
    return found


def named(left: Sequence[Profile]) -> Profile:
    """Return the best-known profile among those left: a named one, else the one with the fewest changes."""
    for known in PROFILES.values():
        if any(_same(known, profile) for profile in left):
            return known
    names = [profile_name(profile.replace(name=base)) for profile in left for base in PROFILES]
    return get_profile(min(names, key=lambda name: (name.count("+"), list(PROFILES).index(name.split("+")[0]))))


def _same(one: Profile, other: Profile) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in FIELDS)
