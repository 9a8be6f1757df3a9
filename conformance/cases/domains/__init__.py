"""Enumerable domains: sets small enough to try completely, with their exact sizes.

An operation's domains are the function of its name in the module of its family: (operation, profile, parameters) ->
domains. Operations that only move bytes (payload, permutation) have none. Why these domains prove an operation is
written where they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refnum.errors import ArgumentError

from ..families import part_of
from ..operation import OPERATIONS
from .domain import Chunk, Domain, count_once

__all__ = ["LEVELS", "Chunk", "Domain", "count_once", "domains_for"]

LEVELS: dict[str, int] = {"smoke": 0, "standard": 1 << 24, "exhaustive": 1 << 32}
"""Level -> the size of the largest domain that it runs."""


def domains_for(operation: str, profile: str, params: Mapping[str, Any], level: str) -> list[Domain]:
    """Return the domains of one variant at a level.

    Args:
        operation: name of a judged operation.
        profile: name of a profile.
        params: parameters of the variant. `splits` are ignored: domains that need rows choose their own.
        level: `smoke` gives no domain, `standard` those of up to 2**24 members, `exhaustive` all.

    Returns:
        The domains, in order; none for an operation without enumerable domain.

    Raises:
        ArgumentError: the level is unknown.
    """
    if level not in LEVELS:
        raise ArgumentError(f"level={level!r} is unknown; choose from {', '.join(LEVELS)}.")
    row = OPERATIONS[operation]
    make = part_of(__name__, row.family, operation)
    if make is None or not LEVELS[level] or row.undefined(profile):
        return []
    fixed = {name: value for name, value in params.items() if name != "splits"}
    return [domain for domain in make(operation, profile, fixed) if domain.size <= LEVELS[level]]
