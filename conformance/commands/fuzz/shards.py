"""A shard: a few cases with an address. Its recipes depend only on the address and the spec.

The words come from Philox (N13) under a key hashed from the address, so any machine makes any shard, in any order,
without a database and with any version of other libraries.
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
from ...cases.recipes.drawing import WIDTHS, Limits, draw_recipe
from ...cases.recipes.recipe import Recipe
from ...cases.structure.campaign import campaign_rows
from ...cases.structure.levels import Levels
from ...subjects.layout_variants import KEYWORDS
from .spec import Spec, Target

MIXED = "mixed"
"""The stratum whose cases draw their distribution as well; every other stratum is one distribution."""
CORPUS = "corpus"
"""The stratum of recipes that an earlier campaign has kept; its shards come first, and are as many as it takes."""
STRUCTURE = "structure"
"""The stratum of structural cases: shapes, counts and forms of calls, drawn from the factors that a check asks."""
STREAM = 1 << 17
"""Philox stream of shards, apart from those of inputs and of random bits."""
WORDS = 128
"""Random words that one recipe may use."""
LONG = (8192, 16384)
LARGER, LARGEST = 16, 1 << 21
"""Times that the largest structural case may have the elements of others, and the most that it has then."""
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Address:
    """The address of a shard: campaign seed, target name, stratum and number."""

    seed: int
    target: str
    stratum: str
    number: int

    def __str__(self) -> str:
        return f"{self.target} {self.stratum} {self.number} (seed {self.seed})"


class Dice:
    """Integers from the Philox words of one recipe, used in order."""

    def __init__(self, key: int, case: int) -> None:
        self.words = random_words(WORDS, key, stream=STREAM, step=case).tolist()
        self.used = 0

    def word(self) -> int:
        """Return the next 32-bit word."""
        self.used += 1
        return int(self.words[self.used - 1])

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + (self.word() * (high - low + 1) >> 32)

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the options."""
        return choices[self.between(0, len(choices) - 1)]

    def chance(self, one_in: int) -> bool:
        """True once in so many."""
        return self.between(1, one_in) == 1

    def towards(self, low: int, high: int, simple: int) -> int:
        """Return an integer in [low, high], `simple` one time in three."""
        return simple if self.chance(3) else self.between(low, high)

    def seed(self) -> int:
        """64 bits."""
        return self.word() | self.word() << 32


def corpus_of(spec: Spec, target: Target) -> list[Recipe]:
    """Return the kept recipes of a target, in the spec's order."""
    recipes = [Recipe.from_json(entry) for entry in spec.corpus if entry["operation"] == target.operation]
    return [each for each in recipes if variant(each.operation, each.profile, each.params) == target.variant]


def strata(target: Target) -> tuple[str, ...]:
    """Return the strata of a target: mixed, structure, then each distribution.

    Scale layouts and keyed random bits are a matter of structure alone.
    """
    if any(name in target.params for name in KEYWORDS):
        return (STRUCTURE,)
    return (MIXED, STRUCTURE, *distributions_for(target.operation))


def key_of(target: Target, address: Address) -> int:
    """Return the 64-bit Philox key of a shard; subjects share it, so that they meet the same cases."""
    text = json.dumps([address.seed, target.operation, target.profile, target.params, address.stratum, address.number],
                      sort_keys=True)  # fmt: skip
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def recipes_of(spec: Spec, target: Target, address: Address) -> Sequence[Recipe | Levels]:
    """Return the recipes of a shard, or the levels of one of structure, in order."""
    if address.stratum == CORPUS:
        return corpus_of(spec, target)[address.number * spec.cases :][: spec.cases]
    if address.stratum == STRUCTURE:
        return levels_of(spec, target, address)
    return [recipe_of(spec, target, address, case) for case in range(spec.cases)]


def levels_of(spec: Spec, target: Target, address: Address) -> list[Levels]:
    """Return the levels of a shard of structure, whose largest case has some times the elements of other shards'."""
    key, largest = key_of(target, address), max(spec.elements, min(LARGER * spec.elements, LARGEST))
    rows = campaign_rows(*target.key, str(key), spec.cases, largest)
    return [Levels(*target.key, row, (key & 0xFFFFFF) + number) for number, row in enumerate(rows)]


def recipe_of(spec: Spec, target: Target, address: Address, case: int) -> Recipe | Levels:
    """Return one recipe of a shard, or the levels of one of its cases."""
    if address.stratum in (CORPUS, STRUCTURE):
        return recipes_of(spec, target, address)[case]
    dice = Dice(key_of(target, address), case)
    limits = Limits(spec.elements, spec.elements, (*WIDTHS, *LONG))
    distribution = "" if address.stratum == MIXED else address.stratum
    return draw_recipe(dice, *target.key, limits, distribution)


def simple(recipe: Recipe | Levels, base: int = 127, edits: tuple[tuple[int, int, int], ...] = ()) -> Recipe:
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
