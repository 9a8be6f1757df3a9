"""Simpler recipes: the moves a shrinker may try, the boldest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..operation import OPERATIONS
from .distributions import distributions_for
from .recipe import Recipe


def simpler(recipe: Recipe) -> Iterator[Recipe]:
    """Yield recipes that are each simpler in one way: fewer rows, columns, experts, edits; plainer numbers.

    Every result differs from the recipe and is strictly simpler in the order (elements, experts, edits,
    optional inputs, width, distribution, parameters away from simple, seed), so repeating the first success ends.
    """
    yield from _splits(recipe)
    yield from _shapes(recipe)
    for number in range(len(recipe.edits)):
        yield replace(recipe, edits=recipe.edits[:number] + recipe.edits[number + 1 :])
    if recipe.optional:
        yield replace(recipe, optional=False)
    if recipe.wide:
        yield replace(recipe, wide=False)
    yield from _distributions(recipe)
    if recipe.seed:
        yield replace(recipe, seed=0)


def _shapes(recipe: Recipe) -> Iterator[Recipe]:
    rows, columns = recipe.shape
    operation = OPERATIONS[recipe.operation]
    even = operation.even_rows
    if "splits" not in recipe.params or operation.routed:
        for fewer in dict.fromkeys((2 if even else 1, rows // 2, rows - 2 if even else rows - 1)):
            fewer -= fewer % 2 if even else 0
            if 0 < fewer < rows:
                yield replace(recipe, shape=(fewer, columns))
    step = max(32, operation.unit)
    for narrower in dict.fromkeys((step, columns // 2 // step * step, columns - step)):
        if 0 < narrower < columns:
            yield replace(recipe, shape=(rows, narrower))


def _splits(recipe: Recipe) -> Iterator[Recipe]:
    splits = recipe.params.get("splits")
    if not splits:
        return
    if not OPERATIONS[recipe.operation].routed:
        yield _with_splits(recipe, None)
    for number, rows in enumerate(splits):
        yield _with_splits(recipe, [*splits[:number], *splits[number + 1 :]])
        for fewer in dict.fromkeys((rows // 4 * 2, rows - 2)):
            if 0 <= fewer < rows:
                yield _with_splits(recipe, [*splits[:number], fewer, *splits[number + 1 :]])


def _with_splits(recipe: Recipe, splits: list[int] | None) -> Recipe:
    params: dict[str, Any] = {name: value for name, value in recipe.params.items() if name != "splits"}
    if splits is None:
        return replace(recipe, params=params)
    rows = recipe.shape[0] if OPERATIONS[recipe.operation].routed else sum(splits)
    return replace(recipe, params={**params, "splits": splits}, shape=(rows, recipe.shape[1]))


def _distributions(recipe: Recipe) -> Iterator[Recipe]:
    table = distributions_for(recipe.operation)
    for name, distribution in table.items():
        if name == recipe.distribution:
            break
        yield replace(recipe, distribution=name, parameters=dict(distribution.simple))
    for name, simple in table[recipe.distribution].simple.items():
        if recipe.parameters[name] != simple:
            yield replace(recipe, parameters={**recipe.parameters, name: simple})


def size(recipe: Recipe) -> tuple[int, ...]:
    """Return the order in which `simpler` descends; for tests and for shrinkers that keep the best."""
    table = distributions_for(recipe.operation)
    names = list(table)
    simple = table[recipe.distribution].simple
    away = sum(recipe.parameters[name] != value for name, value in simple.items())
    operation, splits = OPERATIONS[recipe.operation], recipe.params.get("splits")
    elements = recipe.shape[0] * recipe.shape[1] + (sum(splits) if splits and operation.routed else 0)
    optional = bool(recipe.optional) and bool(operation.optional)
    return (
        elements,
        sum(recipe.shape),
        0 if splits is None else 1 + len(splits),
        len(recipe.edits),
        int(optional),
        int(recipe.wide),
        names.index(recipe.distribution),
        away,
        int(recipe.seed != 0),
    )
