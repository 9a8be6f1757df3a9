"""Hypothesis strategies that draw recipes: a few integers a case, never an element of a tensor."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from ..case import Case, plain
from ..entry import DATA_PARAMS
from ..operation import OPERATIONS
from .drawing import Limits, draw_recipe
from .inputs import expand
from .recipe import Recipe

T = TypeVar("T")

LIMITS = Limits(elements=1 << 18, rows=1024)
"""The largest case of a run, so that it costs milliseconds."""


class Shrinking:
    """Choices that Hypothesis makes and shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high], which shrinks to the lowest."""
        return self.draw(st.integers(low, high))

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the options, which shrinks to the first."""
        return self.draw(st.sampled_from(list(choices)))

    def chance(self, one_in: int) -> bool:
        """True once in so many; shrinks to False."""
        return self.between(1, one_in) == one_in

    def towards(self, low: int, high: int, simple: int) -> int:
        """Return an integer in [low, high], which shrinks to `simple`."""
        return self.draw(st.one_of(st.just(simple), st.integers(low, high)))

    def seed(self) -> int:
        """64 bits, which shrink to 0."""
        return self.between(0, 2**64 - 1)


@st.composite
def recipes(draw: st.DrawFn, operation: str, profile: str, params: Mapping[str, Any]) -> Recipe:
    """Draw a recipe for one variant of an operation; it shrinks to one small block of zeros."""
    return draw_recipe(Shrinking(draw), operation, profile, params, LIMITS)


def sampled_recipes(operation: str, profile: str, params: Mapping[str, Any], seed: int, examples: int) -> list[Recipe]:
    """Return the recipes that Hypothesis generates from a seed, in order; the same seed gives the same list.

    Profiles, scale layouts and the form of random bits do not affect the recipes.
    """
    if examples <= 0:
        return []
    known = OPERATIONS[operation].params
    drawing = {name: value for name, value in params.items() if name in known or name in DATA_PARAMS}
    rest = {name: value for name, value in params.items() if name not in drawing}
    drawn = _drawn(operation, json.dumps(plain(drawing)), seed, examples)
    return [replace(recipe, profile=profile, params={**recipe.params, **rest}) for recipe in drawn]


@functools.lru_cache(maxsize=256)
def _drawn(operation: str, params: str, seed: int, examples: int) -> tuple[Recipe, ...]:
    found: list[Recipe] = []

    @settings(
        phases=[Phase.generate],
        database=None,
        derandomize=False,
        deadline=None,
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @hypothesis.given(recipes(operation, "HOPPER", json.loads(params)))
    def collect(recipe: Recipe) -> None:
        found.append(recipe)

    hypothesis.seed(seed)(collect)()
    return tuple(found)


def sampled_cases(operation: str, profile: str, params: Mapping[str, Any], seed: int, examples: int) -> Iterator[Case]:
    """Yield the expanded cases of `sampled_recipes`, one at a time."""
    for recipe in sampled_recipes(operation, profile, params, seed, examples):
        yield expand(recipe)
