"""A structural case as a few levels: what a recipe is for values, a row of levels is for structure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refnum.errors import ArgumentError

from ..case import Case, plain
from ..operation import OPERATIONS
from ..recipes.inputs import expand
from ..recipes.recipe import Recipe
from .build import build, form_of
from .covering import Row

FIELDS = ("operation", "profile", "params", "levels", "seed")


@dataclass(frozen=True)
class Levels:
    """How one structural case is made; a value that JSON holds.

    operation, profile, params: as in `Case`. row: factor -> level, see `structure.factors`. seed: of the values.
    """

    operation: str
    profile: str
    params: Mapping[str, Any]
    row: Row
    seed: int

    def __post_init__(self) -> None:
        """Raise ArgumentError for an operation that there is not."""
        if self.operation not in OPERATIONS:
            raise ArgumentError(f"Levels name operation {self.operation!r}; choose from {', '.join(OPERATIONS)}.")

    @property
    def calls(self) -> str:
        """How often the case is called, see `structure.campaign.CALLS`."""
        return str(self.row.get("calls", "once"))

    def without(self, ends: tuple[str, ...]) -> Levels:
        """Return levels without the factors of form whose name begins or ends so, which are plain then."""
        row = {name: level for name, level in self.row.items()
               if name not in form_of(self.row) or not (name.startswith(ends) or name.endswith(ends))}  # fmt: skip
        return Levels(self.operation, self.profile, self.params, row, self.seed)

    def plain(self) -> Levels:
        """Return the levels in a plain call."""
        row = {name: level for name, level in self.row.items() if name not in form_of(self.row)}
        return Levels(self.operation, self.profile, self.params, row, self.seed)

    def to_json(self) -> dict[str, Any]:
        """Return the levels as JSON values; `from_json` gives equal ones back."""
        return {"operation": self.operation, "profile": self.profile, "params": plain(self.params),
                "levels": dict(self.row), "seed": self.seed}  # fmt: skip

    def __str__(self) -> str:
        return ", ".join(f"{name} {level}" for name, level in self.row.items())


def from_json(data: Mapping[str, Any]) -> Recipe | Levels:
    """Return the recipe or the levels of a `to_json`; ArgumentError names fields that are missing or unknown."""
    if "levels" not in data:
        return Recipe.from_json(data)
    if set(data) != set(FIELDS):
        raise ArgumentError(f"Levels have the fields {sorted(FIELDS)}; these were given: {sorted(data)}.")
    return Levels(data["operation"], data["profile"], dict(data["params"]), dict(data["levels"]), int(data["seed"]))


def case_of(drawn: Recipe | Levels) -> Case:
    """Return the case of a recipe or of levels, the same on every machine."""
    if isinstance(drawn, Recipe):
        return expand(drawn)
    return build(drawn.operation, drawn.profile, drawn.params, drawn.row, drawn.seed)
