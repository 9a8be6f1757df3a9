"""The recipes and cases that Hypothesis samples from a seed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from ..case import Case, plain
from ..entry import DATA_PARAMS
from ..operation import OPERATIONS
from .inputs import expand
from .recipe import Recipe


def sampled_recipes(operation: str, profile: str, params: Mapping[str, Any], seed: int, examples: int) -> list[Recipe]:
    """Return the recipes that Hypothesis generates from a seed, in order; the same seed gives the same list.

    Profiles, and parameters other than the rows of experts, do not affect what is drawn.
    """
    if examples <= 0:
        return []
    known = OPERATIONS[operation].params
    drawing = plain({name: value for name, value in params.items() if name in known or name in DATA_PARAMS})
    rest = {name: value for name, value in params.items() if name not in drawing}
    rows = {name: drawing[name] for name in ("splits",) if name in drawing}
    strategies = import_module(".strategies", __package__)  # Hypothesis is for who samples: a child never does
    found = strategies.drawn(operation, json.dumps(rows), seed, examples)
    return [replace(recipe, profile=profile, params={**drawing, **recipe.params, **rest}) for recipe in found]


def sampled_cases(operation: str, profile: str, params: Mapping[str, Any], seed: int, examples: int) -> Iterator[Case]:
    """Yield the expanded cases of `sampled_recipes`, one at a time."""
    for recipe in sampled_recipes(operation, profile, params, seed, examples):
        yield expand(recipe)
