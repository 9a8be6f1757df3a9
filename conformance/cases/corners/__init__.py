"""The corner set: a fixed list of hand-aimed cases for every operation, run before anything drawn at random.

An operation's corners are the function of its name in the module of its family: (operation, parameters) -> tuples
(label, inputs) or (label, inputs, extra parameters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from refnum.errors import ArgumentError

from ..case import Case
from ..families import part_of
from ..operation import OPERATIONS
from ..recipes.random_bits import by_key, with_random_bits
from .pairs import pair_corners


def corner_cases(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the corner cases of one variant, always the same and in the same order.

    Args:
        operation: name of a judged operation.
        profile: name of a profile; a stochastic one gets fixed Philox bits, or fixed keys.
        params: parameters of the variant. `splits` are ignored: cases of ragged operations choose their own.

    Yields:
        Cases labelled `corner: ...`.

    Raises:
        ArgumentError: the operation is unknown or has no corners.
    """
    row = OPERATIONS.get(operation)
    corners = part_of(__name__, row.family, operation) if row else None
    if corners is None:
        raise ArgumentError(f"Operation {operation!r} has no corner set; choose from {', '.join(OPERATIONS)}.")
    fixed = {name: value for name, value in params.items() if name != "splits"}
    found = chain(corners(operation, fixed), pair_corners(operation, fixed))
    for number, (label, inputs, *extra) in enumerate(found):
        inputs = with_random_bits(operation, profile, inputs, number)
        params = {**fixed, **(extra[0] if extra else {})}
        yield by_key(Case(operation, profile, params, inputs, None, f"corner: {label}"), number)
