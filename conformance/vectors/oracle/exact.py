"""What the second answers share: exact values of arrays, the policy of a profile, and the usual shapes of a call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from refnum import oracle

from ..load import Vector

Solve = Callable[[Vector], Any]
_BITS = {"float32": np.uint32, "bfloat16": np.uint16, "float16": np.uint16}


def policy(vector: Vector) -> oracle.Policy:
    """Return the vector's literal profile as the oracle's policy: nothing is looked up in refnum.profiles."""
    known = {field.name for field in fields(oracle.Policy)}
    return oracle.Policy(**{k: v for k, v in vector.profile.items() if k in known})


@functools.cache
def _value(bits: int, dtype: str) -> oracle.Exact:
    return oracle.float_value(bits, dtype)


def exact(array: np.ndarray) -> list[Any]:
    """Return the exact values of a float array as nested lists."""
    name = array.dtype.name
    words = array.view(_BITS[name])
    if array.ndim == 1:
        return [_value(int(w), name) for w in words]
    return [[_value(int(w), name) for w in row] for row in words]


def widened(array: np.ndarray) -> list[list[int]]:
    """Return float32 bits of a float32 or bfloat16 matrix as nested lists."""
    if array.dtype.itemsize == 4:
        return array.view(np.uint32).tolist()
    return [[word << 16 for word in line] for line in array.view(np.uint16).tolist()]


def quantiser(function: Callable[..., Any], *more: str) -> Solve:
    """Return the second answer of a quantiser of `x`; more: parameters that it takes by position."""

    def solve(vector: Vector) -> Any:
        draws = {"rbits": vector.inputs["rbits"].tolist()} if "rbits" in vector.inputs else {}
        return function(exact(vector.inputs["x"]), *(vector.params[m] for m in more), policy=policy(vector), **draws)

    return solve


def converter(function: Callable[..., Any], first: str, *more: str) -> Solve:
    """Return the second answer of an operation on codes and scales; more: parameters that it takes by keyword."""

    def solve(vector: Vector) -> Any:
        keywords = {name: vector.params[name] for name in more}
        if "tile" in keywords:
            keywords["tile"] = tuple(keywords["tile"])
        result = function(vector.inputs[first].tolist(), vector.inputs["scales"].tolist(), **keywords)
        return result if isinstance(result, tuple) else (result,)

    return solve
