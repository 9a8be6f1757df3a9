"""A shard: a few cases named by an address. Its recipes are a function of the address and the spec alone.

The words come from Philox (N13) under a key hashed from the address, so any machine makes any shard, in any order,
without a database and whatever version of other libraries it has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from refnum.philox import random_words

from ...cases.case import variant
from ...cases.operation import OPERATIONS
from ...cases.recipes.distributions import distributions_for
from ...cases.recipes.recipe import Recipe
from ...cases.recipes.strategies import EDIT_BITS, OPTIONAL, WIDTHS
from .spec import Spec, Target

MIXED = "mixed"
"""The stratum whose cases draw their distribution as well; every other stratum is one distribution."""
CORPUS = "corpus"
"""The stratum of recipes that an earlier campaign has kept; its shards come first, and are as many as it takes."""
STREAM = 1 << 17
"""Philox stream of shards, apart from those of inputs and of random bits."""
WORDS = 128
"""Random words that one recipe may use."""
ROWS = (0, 1, 31, 32, 33, 64, 127, 128, 129, 160, 255, 256)
"""Rows of an expert around multiples of 32 and 128."""
LONG = (8192, 16384)
CROWD = 4096
"""Routed rows up to which they may all belong to one token."""
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Address:
    """Where a shard lies: campaign seed, target name, stratum and number."""

    seed: int
    target: str
    stratum: str
    number: int

    def __str__(self) -> str:
        return f"{self.target} {self.stratum} {self.number} (seed {self.seed})"


class Dice:
    """Whole numbers from the Philox words of one recipe, used in order."""

    def __init__(self, key: int, case: int) -> None:
        self.words = random_words(WORDS, key, stream=STREAM, step=case).tolist()
        self.used = 0

    def word(self) -> int:
        """The next 32-bit word."""
        self.used += 1
        return int(self.words[self.used - 1])

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return low + (self.word() * (high - low + 1) >> 32)

    def pick(self, choices: Sequence[T]) -> T:
        """One of some choices."""
        return choices[self.between(0, len(choices) - 1)]

    def chance(self, one_in: int) -> bool:
        """True once in so many."""
        return self.between(1, one_in) == 1


def corpus_of(spec: Spec, target: Target) -> list[Recipe]:
    """Return the kept recipes of a target, in the spec's order."""
    recipes = [Recipe.from_json(entry) for entry in spec.corpus if entry["operation"] == target.operation]
    return [each for each in recipes if variant(each.operation, each.profile, each.params) == target.variant]


def strata(operation: str) -> tuple[str, ...]:
    """Return the strata of an operation: mixed first, then each distribution."""
    return (MIXED, *distributions_for(operation))


def key_of(target: Target, address: Address) -> int:
    """Return the 64-bit Philox key of a shard; subjects share it, so that they meet the same cases."""
    text = json.dumps([address.seed, target.operation, target.profile, target.params, address.stratum, address.number],
                      sort_keys=True)  # fmt: skip
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def recipes_of(spec: Spec, target: Target, address: Address) -> list[Recipe]:
    """Return the recipes of a shard, in order."""
    if address.stratum == CORPUS:
        return corpus_of(spec, target)[address.number * spec.cases :][: spec.cases]
    return [recipe_of(spec, target, address, case) for case in range(spec.cases)]


def recipe_of(spec: Spec, target: Target, address: Address, case: int) -> Recipe:
    """Return one recipe of a shard."""
    if address.stratum == CORPUS:
        return recipes_of(spec, target, address)[case]
    dice = Dice(key_of(target, address), case)
    table = distributions_for(target.operation)
    chosen = table[dice.pick(list(table)) if address.stratum == MIXED else address.stratum]
    parameters = {
        name: chosen.simple[name] if dice.chance(3) else dice.between(low, high)
        for name, (low, high) in chosen.ranges.items()
    }
    seed = dice.word() | dice.word() << 32
    shape, params = _shape(dice, target, spec.elements)
    edits = tuple(
        (dice.between(0, 511), dice.between(0, 8191), dice.pick(EDIT_BITS)) for _ in range(dice.between(0, 3))
    )
    optional = bool(OPTIONAL & set(OPERATIONS[target.operation].optional)) and dice.chance(2)
    wide = OPERATIONS[target.operation].wide_first and dice.chance(2)
    return Recipe(*target.key[:2], params, shape, seed, chosen.name, parameters, edits, optional, wide)


def _shape(dice: Dice, target: Target, elements: int) -> tuple[tuple[int, int], dict[str, Any]]:
    widths = [width for width in (*WIDTHS, *LONG) if width <= elements] or [32]
    width = dice.pick(widths)
    operation = OPERATIONS[target.operation]
    rows = _rows(dice, max(1, elements // width), operation.even_rows)
    params: dict[str, Any] = dict(target.params)
    if operation.routed:
        params["splits"] = _splits(dice, rows, even=False)
        routed = sum(params["splits"])
        least = 1 if routed <= CROWD else routed // 16  # a token's rows are added one after the other
        rows = dice.between(least, max(least, rows)) if routed else dice.between(0, rows)
    elif operation.ragged and dice.chance(2):
        params["splits"] = _splits(dice, rows, operation.even_rows)
        rows = sum(params["splits"])
    return (rows, width), params


def _rows(dice: Dice, most: int, even: bool) -> int:
    """Rows of a case: one time in four near the most, else as many small cases as large ones by magnitude."""
    if dice.chance(4):
        rows = dice.between((most + 1) // 2, most)
    else:
        rows = min(most, 1 + dice.between(0, (1 << dice.between(0, most.bit_length())) - 1))
    return max(2, rows & ~1) if even else rows


def _splits(dice: Dice, rows: int, even: bool) -> list[int]:
    """Rows of each expert, up to `rows` in sum: empty experts, odd counts, and tails around 32 and 128."""
    counts: list[int] = []
    left = rows
    for _ in range(dice.between(0, 32 if rows > 4096 else 6)):
        count = dice.pick(ROWS) if dice.chance(2) else dice.between(0, max(1, rows // 4))
        count = min(left, count) & (~1 if even else ~0)
        counts.append(count)
        left -= count
    return counts


def simple(recipe: Recipe, base: int = 127, edits: tuple[tuple[int, int, int], ...] = ()) -> Recipe:
    """Return one block of zeros of the same variant. base: its scale byte, for coded inputs; edits: as a recipe's."""
    params = {name: value for name, value in recipe.params.items() if name != "splits"}
    operation = OPERATIONS[recipe.operation]
    if operation.routed:
        params["splits"] = [1]
    rows = 2 if operation.even_rows else 1
    ranges = distributions_for(recipe.operation)["zero"].ranges
    return Recipe(recipe.operation, recipe.profile, params, (rows, 32), 0, "zero",
                  {"base": base} if "base" in ranges else {}, edits)  # fmt: skip


def address_of(row: Mapping[str, Any]) -> Address:
    """Return the address in a row of the database or in a task."""
    return Address(int(row["seed"]), row["target"], row["stratum"], int(row["number"]))
