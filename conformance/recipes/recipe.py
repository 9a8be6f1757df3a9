"""A recipe: a few numbers that stand for whole tensors, and their expansion by Philox, the same on CPU and GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refnum.errors import ArgumentError

from ..bits import float_bits
from ..case import Case, plain
from ..operation import OPERATIONS
from .inputs import by_key, distributions_for, layout_of, make_inputs

Array = Any


@dataclass(frozen=True)
class Recipe:
    """How the inputs of one case are made; a value that JSON holds and a shrinker can simplify.

    operation, profile, params: as in `Case`; params may hold `splits` (rows of each expert, which then sum to
    the rows of the shape). shape: (M, K) of the unpacked codes or values, for the gathers and
    `unpermute` (tokens, K). seed: 64-bit Philox key. distribution: a name in `patterns.VALUES` or `patterns.CODED`,
    parameters: its whole numbers. edits: (row, column, bits) put into the first input after it is made, row
    and column modulo its shape, bits modulo its width. optional: whether optional inputs (`prob`) are given.
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

    def __post_init__(self) -> None:
        """Check what JSON cannot: names, ranges and that the splits fit the rows. Raises ArgumentError."""
        if self.operation not in OPERATIONS:
            raise ArgumentError(f"Recipe names operation {self.operation!r}; choose from {', '.join(OPERATIONS)}.")
        table = distributions_for(self.operation)
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
        splits = self.params.get("splits")
        if self.operation in ROUTED and (splits is None or (sum(splits) and not self.shape[0])):
            raise ArgumentError(
                f"Recipe for {self.operation} routes splits={splits} from {self.shape[0]} tokens; "
                f"give splits, and a token when there are rows."
            )
        if splits is not None and self.operation not in ROUTED and sum(splits) != self.shape[0]:
            raise ArgumentError(
                f"Recipe has {self.shape[0]} rows but splits that sum to {sum(splits)}; make them equal."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON values; `from_json` gives an equal recipe back."""
        return {
            "operation": self.operation, "profile": self.profile, "params": plain(self.params),
            "shape": list(self.shape), "seed": self.seed, "distribution": self.distribution,
            "parameters": dict(sorted(self.parameters.items())), "edits": [list(edit) for edit in self.edits],
            "optional": self.optional,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """Return the recipe of `to_json`; ArgumentError names missing or unknown fields."""
        names = set(cls.__dataclass_fields__)
        if set(data) != names:
            wrong = sorted(set(data) ^ names)
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
        )

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.distribution}({shown}) {self.shape[0]}x{self.shape[1]} seed {self.seed}"


ROUTED = frozenset({"permute_pad", "permute_unpack", "unpermute"})
"""Operations whose splits count routed rows, not the rows of the shape."""


def expand(recipe: Recipe, like: Array = None) -> Case:
    """Return the case of a recipe: the same bits on every machine (N13).

    like: an array of the library and device wanted; None means NumPy. On a device bfloat16 inputs are uint16.
    """
    inputs = make_inputs(recipe, like)
    if recipe.edits:
        first = OPERATIONS[recipe.operation].inputs[0]
        bits = layout_of(recipe.operation, recipe.params).element.bits if first == "codes" else None
        inputs[first] = edited(inputs[first], recipe.edits, bits)
    params = dict(recipe.params)
    if recipe.operation == "unpermute":
        params["tokens"] = recipe.shape[0]
    return by_key(Case(recipe.operation, recipe.profile, params, inputs, recipe, str(recipe)), recipe.seed)


def edited(array: Array, edits: tuple[tuple[int, int, int], ...], width: int | None = None) -> Array:
    """Return a copy with the bits of some elements replaced; an empty array stays as it is.

    width: bits of an element, where the array's items are wider than a code (one E2M1 code a byte).
    """
    if not array.size:
        return array
    bits = float_bits(array).copy()
    mask = (1 << (width or 8 * bits.dtype.itemsize)) - 1
    for row, column, value in edits:
        bits[row % bits.shape[0], column % bits.shape[1]] = np.uint64(value & mask).astype(bits.dtype)
    return bits.view(array.dtype)
