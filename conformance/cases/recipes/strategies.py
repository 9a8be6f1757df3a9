"""Hypothesis strategies that draw recipes: a few integers a case, never an element of a tensor."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from .drawing import Limits, draw_recipe
from .recipe import Recipe

T = TypeVar("T")

LIMITS = Limits(elements=1 << 18, rows=1024)
"""The largest case of a run, so that it costs milliseconds."""
BACKEND = "refnum"
"""Name under which Hypothesis knows `Everywhere`."""


class Everywhere(HypothesisProvider):
    """Hypothesis's own choices without constants of the modules that are loaded: a seed draws the same everywhere."""

    def _maybe_draw_constant(self, *args: Any, **keywords: Any) -> None:
        """Draw no constant; Hypothesis would take one time in twenty, and keep them in a folder of the user's."""


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.Everywhere"


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


@functools.lru_cache(maxsize=256)
def drawn(operation: str, params: str, seed: int, examples: int) -> tuple[Recipe, ...]:
    """Return the recipes that Hypothesis generates for an operation from a seed.

    params: as JSON, those on which a recipe depends: `splits`, where it is given.
    """
    found: list[Recipe] = []

    @settings(
        backend=BACKEND,
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
