"""What a subject refused to answer, and whether dtypes, shapes and parameters explain it: if not, it looked inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ..cases.case import Case, plain
from ..cases.entry import is_kept
from ..cases.levels import Outcome
from ..cases.same_bytes import name_of
from ..subjects.calls.call import NO_ROOM, Called, other_data

Form = tuple[str, ...]
LAUNCHED = frozenset(
    {"DriverError", "EmulationError", "CUDARuntimeError", "CUDADriverError", "CudaAPIError", "AcceleratorError"}
    | {"KernelFailed"}  # of a library or an executable, whose refusals have words of their own
)
DEVICE_WORDS = (
    "cuda error",
    "cuda_error",
    "cudaerror",
    "illegal memory access",
    "misaligned address",
    "device-side assert",
)
"""Errors of a device, by name and by what libraries say of them: a kernel ran and did what is forbidden, which is no
refusal. Under capture of a graph they may be: what cannot be captured ends so."""


def refusal(called: Called, capturing: bool = False) -> bool:
    """Whether a call was refused: with an error of its own. A crash, a hang or a device's error is none."""
    error = called.words.partition(":")[0]
    if called.outcome is Outcome.PASS or called.finding or called.returned or called.outcome is Outcome.TIMEOUT:
        return False
    if called.outcome is Outcome.FAULT:
        launched = error in LAUNCHED or any(words in called.words.lower() for words in DEVICE_WORDS)
        if not error.isidentifier() or (launched and not capturing):
            return False
    return True


def refused(called: Called, notes: dict[str, str], name: str, capturing: bool = False) -> bool:
    """Whether a subject said no to the probe of this name, which is noted with its words."""
    if refusal(called, capturing):
        notes[name] = called.words
        return True
    return False


def form(case: Case) -> Form:
    """Return all that a subject may refuse by: dtypes and shapes of the inputs, and parameters but the random key."""
    arrays = (f"{name} {name_of(array)}{list(array.shape)}" for name, array in case.inputs.items())
    params = {name: True if name == "philox" else value for name, value in plain(case.params).items()}
    return (*arrays, json.dumps(params))


def on_same_shapes(case: Case) -> Iterator[Case]:
    """Yield cases of the same form with other data: the case's own turned round, zeros, and ones.

    Row maps and random bits stay as they are. A subject that answers one of them refused the case by content.
    """
    turned = other_data(case)
    yield replace(turned, domain=None, label="the same shapes, other data")
    for fill in (0, 1):
        inputs = {
            name: array if is_kept(name, array) else np.full(array.shape, fill, array.dtype)
            for name, array in turned.inputs.items()
        }
        yield replace(turned, inputs=inputs, domain=None, label=f"the same shapes, filled with {fill}")


@dataclass
class Refusals:
    """The cases of one variant that a subject answered and refused.

    answered: forms of cases that it answered. refused: form -> how many it refused, an example and the words to it.
    A form ends with how it was called, for a way or a place may take less than a plain call does. short: cases for
    which memory was short, and an example.
    """

    answered: set[Form] = field(default_factory=set)
    refused: dict[Form, tuple[int, str, str]] = field(default_factory=dict)
    short: tuple[int, str] = (0, "")

    def answer(self, case: Case, how: str = "") -> None:
        """Note a case that was answered, right or wrong."""
        self.answered.add((*form(case), how))

    def refuse(self, case: Case, words: str, how: str = "") -> bool:
        """Note a case that was not; return whether it is not known yet if its form explains that."""
        key = (*form(case), how)
        new = key not in self.refused and key not in self.answered
        shown = _shown(case) + (f", {how}" if how else "")
        count, example, first = self.refused.get(key, (0, shown, words))
        self.refused[key] = count + 1, example, first
        return new

    def no_room(self, case: Case) -> None:
        """Note a case for which memory was short: of the machine or by the subject, nobody knows."""
        self.short = self.short[0] + 1, self.short[1] or _shown(case)

    def unexplained(self) -> str:
        """Return in words what keeps a variant from being verified, or an empty string."""
        content = [self.refused[one] for one in self.refused if one in self.answered]
        if content:
            count, (_, example, words) = sum(number for number, _, _ in content), content[0]
            return (
                f"{count} cases were refused by content, though others of the same dtypes, shapes and parameters were "
                f"answered; for example {example}: {words}"
            )
        count, example = self.short
        return f"{count} cases were not judged: {NO_ROOM}; for example {example}" if count else ""


def _shown(case: Case) -> str:
    return f"{case} ({case.label})"
