"""How a recipe is drawn: one procedure, whose choices come from Hypothesis (`strategies`) or from Philox (`fuzz`).

Hypothesis shrinks what it has chosen; Philox gives every recipe an address. Both choose whole numbers, never an element
of a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..entry import Operation
from ..operation import OPERATIONS
from .distributions import distributions_for
from .recipe import Recipe

WIDTHS = (32, 64, 96, 128, 160, 224, 256, 288, 512, 1024, 2048, 7168)
"""K: one block, several, a short last tile, whole tiles, DeepSeek-V3's hidden size; simplest first."""
ROWS = (0, 1, 31, 32, 33, 64, 127, 128, 129, 160, 255, 256)
"""Rows of an expert around multiples of 32 and 128."""
CROWD = 4096
"""Routed rows up to which they may all belong to one token."""
OPTIONAL = frozenset({"prob", "weights", "tensor_amax", "zeros"})
EDIT_BITS = (0, 0x80000000, 0x7F800000, 0x7FC00000, 0xFF800001, 0x7F7FFFFF, 1, 0x00800000, 0x3F800000,
             0x8000, 0x7F80, 0x7FC0, 0x7F, 0xFF, 0x80)  # fmt: skip
"""Patterns worth planting: zeros, Inf, NaN, largest, smallest, in float32, in 16 bits, in FP8."""

T = TypeVar("T")


class Choices(Protocol):
    """A source of the integers of a recipe."""

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]; the lowest is the simplest."""

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the options; the first is the simplest."""

    def chance(self, one_in: int) -> bool:
        """Return True with probability 1 / `one_in`; False is the simplest."""

    def towards(self, low: int, high: int, simple: int) -> int:
        """Return a number in [low, high], often `simple`, which is the simplest."""

    def seed(self) -> int:
        """Return 64 bits."""


@dataclass(frozen=True)
class Limits:
    """Limits of a case: its elements, its rows, and the widths to choose from."""

    elements: int
    rows: int
    widths: tuple[int, ...] = WIDTHS


def draw_recipe(
    choices: Choices, operation: str, profile: str, params: Mapping[str, Any], limits: Limits, distribution: str = ""
) -> Recipe:
    """Draw a recipe for one variant of an operation.

    Args:
        choices: the source of the integers.
        operation, profile, params: the variant; `splits` in params are kept.
        limits: the largest case.
        distribution: the distribution to use; empty: it is drawn too.

    Returns:
        The recipe; its simplest choices give one small block of zeros.
    """
    row, table = OPERATIONS[operation], distributions_for(operation)
    chosen = table[distribution or choices.pick(list(table))]
    parameters = {name: choices.towards(*bounds, chosen.simple[name]) for name, bounds in chosen.ranges.items()}
    seed = choices.seed()
    shape, drawn = _shape(choices, row, params, limits)
    edits = tuple((choices.between(0, 511), choices.between(0, 8191), choices.pick(EDIT_BITS))
                  for _ in range(choices.between(0, 3)))  # fmt: skip
    optional = bool(OPTIONAL & set(row.optional)) and choices.chance(2)
    wide = row.wide_first and choices.chance(2)
    return Recipe(operation, profile, drawn, shape, seed, chosen.name, parameters, edits, optional, wide)


def _shape(
    choices: Choices, row: Operation, params: Mapping[str, Any], limits: Limits
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Draw the shape, and the rows of each expert where the operation has experts."""
    elements = limits.elements // row.dear
    width = choices.pick([width for width in limits.widths if width <= elements] or [32])
    width += -width % (row.unit or 1)
    most = max(1, min(limits.rows, elements // width))
    rows = _rows(choices, most, row.even_rows)
    drawn = dict(params)
    if row.ragged and "splits" not in drawn and (row.routed or choices.chance(2)):
        drawn["splits"] = _splits(choices, rows, row.even_rows)
    if row.routed:
        routed = sum(drawn["splits"])
        least = 1 if routed <= CROWD else routed // 16  # a token's rows are added one after the other
        rows = choices.between(least, max(least, rows)) if routed else choices.between(0, rows)
    elif "splits" in drawn:
        rows = sum(drawn["splits"])
    return (rows, width), drawn


def _rows(choices: Choices, most: int, even: bool) -> int:
    """Draw the rows of a case: near the limit one time in four, else with a uniform order of magnitude."""
    if choices.chance(4):
        rows = choices.between((most + 1) // 2, most)
    else:
        rows = min(most, 1 + choices.between(0, (1 << choices.between(0, most.bit_length())) - 1))
    return max(2, rows & ~1) if even else rows


def _splits(choices: Choices, rows: int, even: bool) -> list[int]:
    """Draw the rows of each expert, up to `rows` in sum: empty experts, odd counts, and tails around 32 and 128."""
    counts: list[int] = []
    left = rows
    for _ in range(choices.between(0, 32 if rows > 4096 else 6)):
        count = choices.pick(ROWS) if choices.chance(2) else choices.between(0, max(1, rows // 4))
        count = min(left, count) & (~1 if even else ~0)
        counts.append(count)
        left -= count
    return counts
