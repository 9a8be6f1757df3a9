"""A recipe: a few numbers from which all tensors of a case are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from refnum.errors import ArgumentError

from ..case import plain
from ..operation import OPERATIONS
from .distributions import distributions_for


@dataclass(frozen=True)
class Recipe:
    """How the inputs of one case are made; a value that JSON holds and a shrinker can simplify.

    operation, profile, params: as in `Case`; params may hold `splits` (rows of each expert, which then sum to
    the rows of the shape). shape: (M, K) of the unpacked codes or values, for the gathers and
    `unpermute` (tokens, K). seed: 64-bit Philox key. distribution: a name in `draw.VALUES` or `draw.CODED`,
    parameters: its whole numbers. edits: (row, column, bits) put into the first input after it is made, row
    and column modulo its shape, bits modulo its width. optional: whether optional inputs (`prob`) are given.
    wide: whether the first input is float32 where the operation also takes bfloat16 (rows of `unpermute`, the
    gradient of `swiglu_backward`).
    """

    operation: str
    profile: str
    params: Mapping[str, Any]
    shape: tuple[int, int]
    seed: int
    distribution: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    edits: tuple[tuple[int, int, int], ...] = ()
    optional: bool = False
    wide: bool = False

    def __post_init__(self) -> None:
        """Raise ArgumentError for an unknown name, a number out of range, or splits that do not fit the rows."""
        if self.operation not in OPERATIONS:
            raise ArgumentError(f"Recipe names operation {self.operation!r}; choose from {', '.join(OPERATIONS)}.")
        operation, table = OPERATIONS[self.operation], distributions_for(self.operation)
        if self.distribution not in table:
            raise ArgumentError(
                f"Recipe for {self.operation} names distribution {self.distribution!r}; choose from {', '.join(table)}."
            )
        ranges = table[self.distribution].ranges
        if set(ranges) != set(self.parameters):
            raise ArgumentError(
                f"Distribution {self.distribution!r} takes parameters {sorted(ranges)}, not {sorted(self.parameters)}."
            )
        for name, (low, high) in ranges.items():
            if not low <= self.parameters[name] <= high:
                raise ArgumentError(
                    f"Parameter {name}={self.parameters[name]} of {self.distribution!r} is outside {low}..{high}."
                )
        if self.wide and not operation.wide_first:
            allowed = ", ".join(sorted(name for name, other in OPERATIONS.items() if other.wide_first))
            raise ArgumentError(f"Recipe for {self.operation} is wide; only those for {allowed} can be.")
        splits = self.params.get("splits")
        if operation.routed and (splits is None or (sum(splits) and not self.shape[0])):
            raise ArgumentError(
                f"Recipe for {self.operation} routes splits={splits} from {self.shape[0]} tokens; "
                f"give splits, and a token when there are rows."
            )
        if splits is not None and not operation.routed and sum(splits) != self.shape[0]:
            raise ArgumentError(
                f"Recipe has {self.shape[0]} rows but splits that sum to {sum(splits)}; make them equal."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON values; `from_json` gives an equal recipe back. `wide` is named where it holds."""
        return {
            "operation": self.operation, "profile": self.profile, "params": plain(self.params),
            "shape": list(self.shape), "seed": self.seed, "distribution": self.distribution,
            "parameters": dict(sorted(self.parameters.items())), "edits": [list(edit) for edit in self.edits],
            "optional": self.optional, **({"wide": True} if self.wide else {}),
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """Return the recipe of `to_json`; ArgumentError names missing or unknown fields."""
        names = set(cls.__dataclass_fields__)
        if {*data, "wide"} != names:
            wrong = sorted({*data, "wide"} ^ names)
            raise ArgumentError(f"A recipe has the fields {sorted(names)}; these are missing or unknown: {wrong}.")
        rows, columns = data["shape"]
        edits = tuple((int(row), int(column), int(bits)) for row, column, bits in data["edits"])
        return cls(
            data["operation"],
            data["profile"],
            dict(data["params"]),
            (int(rows), int(columns)),
            int(data["seed"]),
            data["distribution"],
            dict(data["parameters"]),
            edits,
            bool(data["optional"]),
            bool(data.get("wide", False)),
        )

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        wide = " float32" if self.wide else ""
        return f"{self.distribution}({shown}) {self.shape[0]}x{self.shape[1]}{wide} seed {self.seed}"
