"""Which profile a kernel follows: candidates are struck out by its own answers, and each choice keeps its witness.

Every combination of scale rule, rounding, ties, overflow, sign of zero and policy for Inf and NaN is a candidate,
with the zero byte and the floor of amax that the kernel's answers to zeros and to tiny blocks ask for. The golden
model answers each case for all that are left. What no input tells apart is reported as undecided, not guessed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refnum.errors import ArgumentError, RefnumError, UnsupportedError
from refnum.profiles import CHOICES, PROFILES, Profile, get_profile, profile_name

from .api import as_subject
from .calling.call import call
from .case import Case
from .choose import choose
from .compare import observe
from .operation import OPERATIONS, run_golden
from .subject import Subject, accepts
from .verdict import Outcome

FIELDS = ("scale_rule", "rounding", "ties", "overflow", "negative_zero", "nonfinite", "zero_scale", "amax_floor")
SAMPLES = 12
"""Sampled cases beside the corner cases."""
FLOORS = sorted({p.amax_floor for p in PROFILES.values() if p.amax_floor is not None})


@dataclass(frozen=True)
class Witness:
    """An input on which a profile with another choice gives other bytes than the kernel gave."""

    instead: Any
    case: str
    place: str
    given: str
    kernel: str
    other: str


@dataclass
class Inference:
    """What was found out.

    best: the profile that explains most; exact: whether it explains every case. choices: field -> a witness against
    each other value that one was found for. undecided: field -> values that no input told apart. unexplained: cases
    that no candidate explains. cases: how many were compared. refused: how many the kernel refused.
    """

    subject: str
    operation: str
    best: Profile
    cases: int = 0
    refused: int = 0
    choices: dict[str, list[Witness]] = field(default_factory=dict)
    undecided: dict[str, list[Any]] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Whether the profile explains every answer."""
        return not self.unexplained and self.cases > 0


@dataclass(frozen=True)
class Answer:
    """A case and the kernel's answer to it, as bits."""

    case: Case
    observed: dict[str, np.ndarray]


def infer_profile(name: str, operation: str | None, isolate: bool | None = None, seconds: float = 60.0) -> Inference:
    """Return what profile a subject follows.

    Raises ArgumentError when it is not one subject with one operation that has a profile, UnsupportedError when it
    chooses by an argument `profile`, rounds at random, or answers nothing.
    """
    subject = _one(name, isolate)
    operation = _which(subject, operation)
    answers, refused = _answers(subject, operation, seconds)
    left, unexplained = _strike(answers, _candidates(answers))
    best = _named(left)
    found = Inference(subject.name, operation, best, len(answers), refused, unexplained=unexplained)
    for one in FIELDS:
        _weigh(found, one, answers)
    return found


def _one(name: str, isolate: bool | None) -> Subject:
    if isolate is None:
        subject = as_subject(name)
    else:
        usable = choose([name], isolate).usable
        if len(usable) != 1:
            raise ArgumentError(f"{name} has {len(usable)} usable subjects; name one.")
        subject = usable[0]
    usable_here, reason = subject.available()
    if not usable_here:
        raise UnsupportedError(f"{subject.name} cannot be called here: {reason}.")
    return subject


def _which(subject: Subject, operation: str | None) -> str:
    able = [name for name in subject.operations if OPERATIONS[name].profiled]
    if operation is None and len(able) == 1:
        operation = able[0]
    if operation not in able:
        raise ArgumentError(
            f"Give --operation: those of {subject.name} that a profile decides are {', '.join(able) or 'none'}."
        )
    accepted = accepts(subject.operations[operation])
    keywords = accepted[0] if accepted else set()
    if "profile" in keywords:
        raise UnsupportedError(f"{subject.name} takes `profile`: it follows the one that it is given.")
    return operation


def _answers(subject: Subject, operation: str, seconds: float) -> tuple[list[Answer], int]:
    """Return the kernel's answers to corner cases and samples; cases that it refuses are counted."""
    answers: list[Answer] = []
    refused, words = 0, ""
    params = next(
        (p for p in OPERATIONS[operation].variants() if not subject.refuses(operation, _claim(subject), p)), None
    )
    if params is None:
        raise UnsupportedError(f"{subject.name} supports no variant of {operation}.")
    for case in _cases(operation, params):
        called = call(subject, dataclasses.replace(case, profile=_claim(subject)), seconds)
        if called.outcome is not Outcome.PASS:
            refused, words = refused + 1, called.words
            continue
        observed, problem = observe(case, run_golden(case), called.results)
        if problem:
            raise UnsupportedError(f"{subject.name} cannot be compared: {problem}.")
        answers.append(Answer(case, {key: array.copy() for key, array in observed.items()}))
    if not answers:
        raise UnsupportedError(f"{subject.name} answered no case of {operation}: {words}.")
    return answers, refused


def _claim(subject: Subject) -> str:
    return subject.profiles[0] if subject.profiles else "HOPPER"


def _cases(operation: str, params: dict[str, Any]) -> Iterator[Case]:
    from .corners import corner_cases
    from .recipes import sampled_cases

    for profile in ("HOPPER", "OCP", "RECIPE", "DEEPGEMM"):  # their corners lie at other amaxes
        yield from (case for case in corner_cases(operation, profile, params) if case.elements)
    yield from sampled_cases(operation, "HOPPER", params, 0, SAMPLES)


def _candidates(answers: list[Answer]) -> list[Profile]:
    """Return every combination of choices, with the zero bytes and floors that the answers name."""
    bytes_seen = sorted({0, *(p.zero_scale for p in PROFILES.values()), *_zero_bytes(answers)})
    roundings = [("nearest", ties) for ties in CHOICES["ties"]] + [("toward_zero", "even")]
    rest = [CHOICES[name] for name in ("scale_rule", "overflow", "negative_zero", "nonfinite")]
    combined: Iterator[Any] = itertools.product(roundings, *rest, bytes_seen, [None, *FLOORS])
    return [
        Profile(
            "candidate", rule, rounding, ties, overflow=overflow, negative_zero=zero, zero_scale=byte,
            nonfinite=nonfinite, amax_floor=floor,
        )
        for (rounding, ties), rule, overflow, zero, nonfinite, byte, floor in combined
    ]  # fmt: skip


def _zero_bytes(answers: list[Answer]) -> set[int]:
    """Return the scale bytes that the kernel gave to inputs that are all zero."""
    found: set[int] = set()
    for answer in answers:
        x = answer.case.inputs.get("x")
        if x is not None and "scales" in answer.observed and not x.view(f"u{x.dtype.itemsize}").any():
            found |= {int(byte) for byte in np.unique(answer.observed["scales"]) if byte <= 254}
    return found


def _strike(answers: list[Answer], left: list[Profile]) -> tuple[list[Profile], list[str]]:
    """Return the candidates that explain the most, and the cases that none of those left could explain.

    Small cases first: most candidates fall at once, and the large cases are asked of few.
    """
    unexplained = []
    for answer in sorted(answers, key=lambda answer: answer.case.elements):
        kept = [profile for profile in left if _explains(answer, profile)]
        if kept:
            left = kept
        else:
            unexplained.append(f"{answer.case.label or 'sampled'}: {answer.case}")
    return left, unexplained


def _explains(answer: Answer, profile: Profile) -> bool:
    try:
        golden = run_golden(answer.case, profile)
    except RefnumError:  # a choice that this element format does not have
        return False
    return all(np.array_equal(golden[name], answer.observed[name]) for name in golden)


def _named(left: list[Profile]) -> Profile:
    """Return the best-known profile among those left: a named one, else the one with the fewest changes."""
    for known in PROFILES.values():
        if any(_same(known, profile) for profile in left):
            return known
    names = [profile_name(profile.replace(name=base)) for profile in left for base in PROFILES]
    return get_profile(min(names, key=lambda name: (name.count("+"), list(PROFILES).index(name.split("+")[0]))))


def _same(one: Profile, other: Profile) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in FIELDS)


def _weigh(found: Inference, name: str, answers: list[Answer]) -> None:
    """Look for a witness against every other value of one field, the rest as in the best profile."""
    for value in _others(name, found.best):
        other = found.best.replace(name="other", **{name: value})
        witness = _witness(found.best, other, value, answers)
        if witness is None:
            found.undecided.setdefault(name, []).append(value)
        else:
            found.choices.setdefault(name, []).append(witness)


def _others(name: str, best: Profile) -> list[Any]:
    if name == "zero_scale":
        values: list[Any] = sorted({p.zero_scale for p in PROFILES.values()})
    elif name == "amax_floor":
        values = [None, *FLOORS]
    else:
        values = [value for value in CHOICES[name] if value != "stochastic"]
    return [value for value in values if value != getattr(best, name)]


def _witness(best: Profile, other: Profile, value: Any, answers: list[Answer]) -> Witness | None:
    for answer in sorted(answers, key=lambda answer: answer.case.elements):
        try:
            right, wrong = run_golden(answer.case, best), run_golden(answer.case, other)
        except RefnumError:
            return None
        for name in reversed(right):  # scales come last and say more
            differ = (right[name] != wrong[name]) & (right[name] == answer.observed[name])
            if differ.any():
                place = tuple(int(i) for i in np.argwhere(differ)[0])
                kernel, instead = (int(array[place]) for array in (answer.observed[name], wrong[name]))
                shown = f"{name}[{', '.join(map(str, place))}]"
                given = _given(answer.case, name, place)
                return Witness(
                    value, answer.case.label or "sampled", shown, given, f"0x{kernel:02X}", f"0x{instead:02X}"
                )
    return None


def _given(case: Case, output: str, place: tuple[int, ...]) -> str:
    """Return the inputs that the byte at a place follows from: the pair of elements, or the largest of the block."""
    name = "x" if "x" in case.inputs else next(iter(case.inputs))
    array = case.inputs[name]
    if array.ndim != 2 or len(place) != 2 or place[0] >= array.shape[0]:
        return str(case)
    row, column = place
    wide = max(1, array.shape[1] // max(1, _width(case, output)))
    part = array[row, column * wide : (column + 1) * wide]
    if part.size <= 2:
        return f"{name} = {', '.join(f'{float(v):.9g}' if name == 'x' else f'0x{int(v):02X}' for v in part)}"
    magnitudes = np.abs(part.astype(np.float64)) if name == "x" else part & 0x7F
    top = part[int(np.argmax(magnitudes))]
    return f"largest {name} of the block = " + (f"{float(top):.9g}" if name == "x" else f"0x{int(top):02X}")


def _width(case: Case, output: str) -> int:
    return int(run_golden(case)[output].shape[-1])
