"""Hypothesis strategies that draw recipes: a handful of whole numbers a case, never an element of a tensor."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from ..case import Case, plain
from ..operation import DATA_PARAMS, OPERATIONS
from .distributions import distributions_for
from .inputs import expand
from .recipe import Recipe

WIDTHS = (32, 64, 96, 128, 160, 224, 256, 288, 512, 1024, 2048, 7168)
"""K: one block, several, a short last tile, whole tiles, DeepSeek-V3's hidden size; simplest first."""

ELEMENTS = 1 << 17
"""Elements of one case at most, so that a case costs milliseconds."""

OPTIONAL = frozenset({"prob", "weights"})
EDIT_BITS = (0, 0x80000000, 0x7F800000, 0x7FC00000, 0xFF800001, 0x7F7FFFFF, 1, 0x00800000, 0x3F800000,
             0x8000, 0x7F80, 0x7FC0, 0x7F, 0xFF, 0x80)  # fmt: skip
"""Patterns worth planting: zeros, Inf, NaN, largest, smallest, in float32, in 16 bits, in FP8."""


def splits(even: bool = False) -> st.SearchStrategy[list[int]]:
    """Rows of each expert: empty experts, odd counts, tails around multiples of 32 and 128."""
    count = st.one_of(st.integers(0, 40), st.sampled_from((0, 31, 32, 33, 64, 127, 128, 129, 160, 255, 256)))
    return st.lists(count.map(lambda rows: rows & ~1) if even else count, min_size=0, max_size=6)


@st.composite
def recipes(draw: st.DrawFn, operation: str, profile: str, params: Mapping[str, Any]) -> Recipe:
    """Draw a recipe for one variant of an operation; it shrinks to one small block of zeros."""
    row, table = OPERATIONS[operation], distributions_for(operation)
    distribution = table[draw(st.sampled_from(list(table)))]
    parameters = {name: draw(_towards(low, high, distribution.simple[name]))
                  for name, (low, high) in distribution.ranges.items()}  # fmt: skip
    width = draw(st.sampled_from(WIDTHS))
    drawn = dict(params)
    if row.ragged and "splits" not in drawn and (row.routed or draw(st.booleans())):
        drawn["splits"] = draw(splits(even=row.even_rows))
    if "splits" in drawn and not row.routed:
        width = min(width, 512)
        rows = sum(drawn["splits"])
    else:
        most = max(1, min(300, ELEMENTS // width))
        rows = draw(st.one_of(st.integers(1, most), st.integers(int(row.routed), most)))
        rows &= ~1 if row.even_rows else ~0
    edits = draw(st.lists(st.tuples(st.integers(0, 511), st.integers(0, 8191), st.sampled_from(EDIT_BITS)), max_size=3))
    optional = bool(OPTIONAL & set(row.optional)) and draw(st.booleans())
    wide = row.wide_first and draw(st.booleans())
    return Recipe(
        operation,
        profile,
        drawn,
        (rows, width),
        draw(st.integers(0, 2**64 - 1)),
        distribution.name,
        parameters,
        tuple(edits),
        optional,
        wide,
    )


def _towards(low: int, high: int, simple: int) -> st.SearchStrategy[int]:
    """Whole numbers of a range that shrink to `simple`."""
    return st.one_of(st.just(simple), st.integers(low, high))


def sampled_recipes(operation: str, profile: str, params: Mapping[str, Any], seed: int, examples: int) -> list[Recipe]:
    """Return the recipes that Hypothesis generates from a seed, in order; the same seed gives the same list.

    Profiles, scale layouts and the way of random bits do not change what is drawn.
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
