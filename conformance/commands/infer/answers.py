"""A kernel's answers to the cases by which its profile is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import refnum
from refnum.arrays import unpack_nibbles
from refnum.errors import ArgumentError, RefnumError, UnsupportedError
from refnum.profiles import Profile

from ...cases.case import Case
from ...cases.corners import corner_cases
from ...cases.levels import Outcome
from ...cases.operation import OPERATIONS, outputs_of, run_golden
from ...cases.recipes import sampled_cases
from ...subjects.calls.call import call
from ...subjects.choose import as_subject, choose
from ...subjects.subject import Subject, accepts
from ...verdicts.compare import observe
from ...verdicts.smoke import of_numpy

SAMPLES = 12
"""Sampled cases beside the corner cases."""
CORNERS_OF = ("HOPPER", "OCP", "RECIPE", "DEEPGEMM")
"""Profiles whose corner cases are asked: they lie at other amaxes."""


@dataclass(frozen=True)
class Part:
    """The elements of one output, u8: a code or a scale byte each. kind: as in the table of operations."""

    kind: str
    elements: np.ndarray


@dataclass(frozen=True)
class Answer:
    """A case and the kernel's answer to it, by output, see `parts`."""

    case: Case
    observed: dict[str, Part]

    @property
    def label(self) -> str:
        """What kind of case it is."""
        return self.case.label or "sampled"

    def golden(self, profile: Profile) -> dict[str, np.ndarray] | None:
        """Return the golden elements under a profile; None where it has a choice that the element format lacks."""
        try:
            bits = run_golden(self.case, profile)
        except RefnumError:
            return None
        return {name: part.elements for name, part in parts(self.case, bits).items()}


def parts(case: Case, bits: dict[str, np.ndarray]) -> dict[str, Part]:
    """Return outputs with one element a place: packed codes u8 [..., K/2] become u8 [..., K], the even one first.

    A payload is told apart into its codes and its scales (N12).
    """
    found: dict[str, Part] = {}
    for output in outputs_of(case):
        array = bits[output.name]
        if output.name == "payload":
            packed, scales = refnum.unpack_payload(array)
            found |= {"packed": Part("packed", unpack_nibbles(packed)), "scales": Part("scales", scales)}
        else:
            found[output.name] = Part(output.kind, unpack_nibbles(array) if output.kind == "packed" else array)
    return found


def one_subject(name: str, isolate: bool | None) -> Subject:
    """Return the one usable subject of a name."""
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


def one_operation(subject: Subject, operation: str | None) -> str:
    """Return the operation to ask: the one that is named, or the only one that a profile decides."""
    able = [name for name in subject.operations if OPERATIONS[name].profiled]
    if operation is None and len(able) == 1:
        operation = able[0]
    if operation not in able:
        raise ArgumentError(
            f"Give --operation {' or '.join(able)}: {subject.name} has these operations that a profile decides."
            if able
            else f"No profile decides an operation of {subject.name}; run `refnum check`, which names the value of a "
            "parameter under which every bit is right."
        )
    accepted = accepts(subject.operations[operation])
    keywords = accepted[0] if accepted else set()
    if "profile" in keywords:
        raise UnsupportedError(f"{subject.name} takes `profile`: it follows the one that it is given.")
    return operation


def ask(subject: Subject, operation: str, seconds: float, say: Callable[[str], None]) -> tuple[list[Answer], int]:
    """Return the kernel's answers to corner cases and samples, small ones first, and how many cases it refused."""
    profile = subject.profiles[0] if subject.profiles else "HOPPER"
    variants = OPERATIONS[operation].variants()
    params = next((p for p in variants if not subject.refuses(operation, profile, p)), None)
    if params is None:
        raise UnsupportedError(f"{subject.name} supports no variant of {operation}.")
    cases = sorted(_cases(operation, params), key=lambda case: case.elements)
    say(f"{subject.name}: {len(cases)} cases are tried")
    answers: list[Answer] = []
    refused, words = 0, ""
    for case in cases:
        called = call(subject, dataclasses.replace(case, profile=profile), seconds)
        if called.outcome is not Outcome.PASS:
            refused, words = refused + 1, called.words
            continue
        observed, problem = observe(case, run_golden(case), called.results)
        if problem:
            raise UnsupportedError(f"{subject.name} cannot be compared: {problem}.")
        answers.append(Answer(case, parts(case, {key: array.copy() for key, array in observed.items()})))
    if not answers:
        how = of_numpy(words, operation)
        raise UnsupportedError(f"{subject.name} answered no case of {operation}: {words}{'; ' * bool(how)}{how}.")
    return answers, refused


def _cases(operation: str, params: dict[str, Any]) -> Iterator[Case]:
    for profile in CORNERS_OF:
        yield from (case for case in corner_cases(operation, profile, params) if case.elements)
    yield from sampled_cases(operation, "HOPPER", params, 0, SAMPLES)
