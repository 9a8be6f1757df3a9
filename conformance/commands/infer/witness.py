"""For each choice of a profile the smallest case that decides it: another value would give another code there."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnum.profiles import Profile

from ...cases.case import Case
from .answers import Answer
from .candidates import values_of


@dataclass(frozen=True)
class Witness:
    """An input on which a profile with another choice gives another code than the kernel gave.

    place: the element of an output, as in `packed code [0, 3]`. given: the input that it follows from.
    """

    instead: Any
    case: str
    place: str
    given: str
    kernel: str
    other: str


class Doubt(enum.Enum):
    """Why there is no witness: both values give the same everywhere, or the kernel agrees nowhere where they differ."""

    SAME = "no input tried tells them apart"
    NEITHER = "where they differ, the kernel does not give what the best one gives"


def weigh(best: Profile, name: str, answers: Sequence[Answer]) -> Iterator[tuple[Any, Witness | Doubt]]:
    """Yield every other value of one field, the rest as in the best profile, with the verdict on it."""
    for value in values_of(name):
        if value != getattr(best, name):
            other = best.replace(name="other", **{name: value})
            yield value, _verdict(best, other, value, answers)


def _verdict(best: Profile, other: Profile, value: Any, answers: Sequence[Answer]) -> Witness | Doubt:
    doubt = Doubt.SAME
    for answer in answers:
        right, wrong = answer.golden(best), answer.golden(other)
        if right is None or wrong is None:
            return Doubt.SAME
        for name in reversed(right):  # scales come last and say more
            apart = right[name] != wrong[name]
            if not apart.any():
                continue
            doubt = Doubt.NEITHER
            places = np.argwhere(apart & (right[name] == answer.observed[name].elements))
            if len(places):
                return _witness(answer, name, tuple(int(i) for i in places[0]), value, wrong[name])
    return doubt


def _witness(answer: Answer, name: str, place: tuple[int, ...], value: Any, wrong: np.ndarray) -> Witness:
    part = answer.observed[name]
    observed = part.elements
    shown = f"{name}{' code' if part.kind == 'packed' else ''} [{', '.join(map(str, place))}]"
    given = _given(answer.case, place, observed.shape[-1])
    return Witness(value, answer.label, shown, given, f"0x{int(observed[place]):02X}", f"0x{int(wrong[place]):02X}")


def _given(case: Case, place: tuple[int, ...], width: int) -> str:
    """Return the input that an element follows from: the one at its place, or the largest of its block."""
    name = "x" if "x" in case.inputs else next(iter(case.inputs))
    array = case.inputs[name]
    if array.ndim != 2 or len(place) != 2 or place[0] >= array.shape[0]:
        return str(case)
    row, column = place
    wide = max(1, array.shape[1] // max(1, width))
    part = array[row, column * wide : (column + 1) * wide]
    if not part.size:
        return str(case)
    floating = array.dtype.kind != "u"
    magnitudes = np.abs(part.astype(np.float64)) if floating else part & 0x7F
    top = part[int(np.argmax(magnitudes))]
    words = f"{float(top):.9g}" if floating else f"0x{int(top):02X}"
    return f"{name} = {words}" if part.size == 1 else f"largest {name} of the block = {words}"
