"""The draw: an operation, a seed and an index give a trigger, always the same, and a legal call on which it tells."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import refnum
from refnum.errors import RefnumError

from ....cases.entry import Operation
from ....cases.operation import OPERATIONS, without_bools
from . import forms, sizes, turns, values
from .base import memorised
from .condition import Condition, Facts
from .effects import EVERYWHERE, OFF_BY_ONE, REGIONS, draw_effect
from .kernel import Trigger, kernel
from .play import Play, UnfitError, other_arguments, played
from .sizes import Maker
from .witness import JOINT, LARGEST, facts_of, made

MEETINGS = 8
"""Times that two calls are made at once, before they are said not to meet: a busy machine may part them."""
TRIES = 12
"""Calls that are made to show that a trigger tells, before it is discarded."""
MAKERS: tuple[Maker, ...] = (*sizes.makers(), *forms.makers(), *turns.makers(), *values.makers())
NEEDLESS = frozenset({"static buffer"})
"""Effects on arrays that show when another call is made."""


@dataclass(frozen=True)
class Mutant:
    """A trigger that was drawn, and where it was shown. shown: a legal call that meets it, in words."""

    operation: str
    seed: int
    index: int
    trigger: Trigger
    shown: str

    @property
    def id(self) -> str:
        """What draws it again: `seed:index`."""
        return f"{self.seed}:{self.index}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Classes of its conditions, in alphabetical order."""
        return tuple(sorted(condition.kind for condition in self.trigger.conditions))

    @property
    def words(self) -> str:
        """The trigger in one line."""
        return self.trigger.of(OPERATIONS[self.operation])


def mutants(operation: str, seed: int, count: int, discarded: Counter[str]) -> Iterator[Mutant]:
    """Yield so many mutants of an operation, by rising index; draws that no call shows are counted by class."""
    index = found = 0
    while found < count and index < 20 * count + 20:
        mutant = drawn(operation, seed, index)
        if mutant is None:
            discarded["+".join(sorted(c.kind for c in trigger_of(operation, seed, index).conditions))] += 1
        else:
            found += 1
            yield mutant
        index += 1


def drawn(operation: str, seed: int, index: int) -> Mutant | None:
    """Return the mutant of an index, None where no legal call was found on which it tells."""
    trigger = trigger_of(operation, seed, index)
    dice = Random(f"witness {operation} {seed} {index}")
    largest = LARGEST if len(trigger.conditions) == 1 else JOINT
    for _ in range(TRIES):
        with contextlib.suppress(UnfitError, RefnumError):
            play = made(operation, facts_of(operation), _wanted(trigger, dice), dice, largest)
            if any(tells(operation, trigger, play) for _ in range(MEETINGS if play.at_once else 1)):
                return Mutant(operation, seed, index, trigger, _shown(play))
    return None


def _wanted(trigger: Trigger, dice: Random) -> dict[str, Any]:
    return {key: value for condition in trigger.conditions for key, value in condition.wants(dice).items()}


def trigger_of(name: str, seed: int, index: int) -> Trigger:
    """Draw the trigger of an index."""
    dice, operation, facts = Random(f"trigger {name} {seed} {index}"), OPERATIONS[name], facts_of(name)
    first = _condition(dice, operation, facts)
    while index % 2 and first.alone:
        first = _condition(dice, operation, facts)
    conditions = [first]
    while len(conditions) < 2 and index % 2:
        other = _condition(dice, operation, facts)
        apart = other.kind != first.kind and not other.keys & first.keys and not (other.places and first.places)
        if apart and not other.alone:
            conditions.append(other)
    outs = any("out" in condition.keys for condition in conditions)
    by_value = any(condition.places is not None for condition in conditions)
    effect, number = draw_effect(dice, operation, outs, by_value)
    region = dice.choice(list(REGIONS))
    if first.alone:  # what such a call is asked is not for its condition to say, so it must show on any data
        effect, region = OFF_BY_ONE, EVERYWHERE
    return Trigger(tuple(conditions), effect, number, region)


def _condition(dice: Random, operation: Operation, facts: Facts) -> Condition:
    while True:
        condition = dice.choice(MAKERS)(dice, operation, facts)
        if condition is not None:
            return condition


def tells(name: str, trigger: Trigger, play: Play) -> bool:
    """Whether a play shows that a kernel with a trigger is wrong where the model is right."""
    base: Callable[..., Any] = memorised(getattr(refnum, name))
    right = [without_bools(array) for array in _arrays(base(**play.arguments))]
    wrong = kernel(name, base, trigger)
    given = {key: np.array(value, copy=True) for key, value in play.arguments.items() if isinstance(value, np.ndarray)}
    try:
        got, outs = played(play, wrong, base)
    except (NotImplementedError, RuntimeError):
        return True
    found = _arrays(got)
    if play.out and any(one is not out for one, out in zip(found, outs, strict=True)):
        return True
    if any(not np.array_equal(_raw(play.arguments[key]), _raw(value)) for key, value in given.items()):
        return True
    if _differ(right, found, plain=not play.out):
        return True
    if trigger.effect.name not in NEEDLESS:
        return False
    wrong(**other_arguments(play))
    return _differ(right, found, plain=True)


def _arrays(result: Any) -> list[np.ndarray]:
    return [array for array in (result if isinstance(result, tuple | list) else (result,)) if array is not None]


def _raw(array: Any) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _differ(right: list[np.ndarray], found: list[np.ndarray], plain: bool) -> bool:
    """Whether arrays are others: bytes, dtypes, and, of a plain call, whether they are owned, dense and writable."""
    if len(right) != len(found):
        return True
    for want, got in zip(right, found, strict=True):
        if want.shape != got.shape or want.dtype != got.dtype or not np.array_equal(_raw(want), _raw(got)):
            return True
        if plain and (not got.flags.writeable or (got.size > 1 and not got.flags.c_contiguous)):
            return True
    return False


def _shown(play: Play) -> str:
    """Return a call in words."""
    more = [*(f"out {play.out}" for _ in [0] if play.out), *(f"after {step.words}" for step in play.before[:1])]
    return ", ".join([str(play.case), *more])
