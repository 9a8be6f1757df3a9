"""Checks of arguments that are no arrays: integers, flags, choices, the rows of each expert (clause N0)."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np

from .errors import ArgumentError, RefnumError, ShapeError, shown

MOST_ROWS = (1 << 31) - 1
"""Largest row count, alignment or token count: what a kernel counts with 32 bits."""
_BOOLS = (bool, np.bool_)
_TEXTS = (str, bytes, bytearray, memoryview)


def require_integer(
    name: str, value: object, least: int, most: int | None = None, error: type[RefnumError] = ArgumentError
) -> int:
    """Return `value` as an int; raise unless it is an integer from `least` to `most`.

    NumPy's integers and arrays of one integer without axes are integers; a bool, a float and text are none.
    """
    if type(value) is int and least <= value and (most is None or value <= most):
        return value
    try:
        plain = not isinstance(value, _BOOLS) and not str(getattr(value, "dtype", "")).endswith("bool")
        number = operator.index(value) if plain else None  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {_bound(most)}"
        raise error(f"{name} is {shown(value)}; allowed are integers {allowed}")
    return number


def _bound(most: int) -> str:
    bits = most.bit_length()
    return f"2**{bits} - 1" if most == (1 << bits) - 1 else str(most)


def require_flag(name: str, value: object) -> bool:
    """Return `value` as a bool; raise ArgumentError unless it is one of Python's or NumPy's."""
    if not isinstance(value, _BOOLS):
        raise ArgumentError(f"{name} is {shown(value)}; allowed are True and False")
    return bool(value)


def require_choice(
    name: str, value: object, allowed: tuple[str, ...], error: type[RefnumError] = ArgumentError
) -> None:
    """Raise unless `value` is one of the words `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise error(f"{name}={shown(value)} is not one of {', '.join(map(repr, allowed))}")


def require_sequence(name: str, given: Any, what: str = "integers") -> list[Any]:
    """Return the items of a list, tuple, range or array with axes.

    Raises ArgumentError for text and for what has no order or can be read only once: a set, a mapping, a generator.
    """
    if hasattr(given, "__getitem__") and not isinstance(given, (*_TEXTS, Mapping)):
        try:
            return list(given)
        except TypeError:  # an array without axes
            pass
    raise ArgumentError(f"{name}={shown(given)}; allowed is a sequence of {what}")


def row_counts(splits: Any) -> list[int]:
    """Return the rows of each expert as ints; ArgumentError unless they are a sequence of integers >= 0."""
    rows = require_sequence("splits", splits, "integers, the rows of each expert")
    return [require_integer("a split", count, 0, MOST_ROWS) for count in rows]


def row_splits(splits: Any, rows: int) -> list[tuple[int, int]]:
    """Return the [start, stop) row range of each expert; None means one range of all rows.

    Raises ArgumentError as `row_counts`, ShapeError when the splits do not sum to `rows`.
    """
    if splits is None:
        return [(0, rows)]
    counts = row_counts(splits)
    if sum(counts) != rows:
        raise ShapeError(f"splits sum to {sum(counts)} rows but the array has {rows}; they must be equal")
    return [(stop - count, stop) for count, stop in zip(counts, accumulate(counts), strict=True)]
