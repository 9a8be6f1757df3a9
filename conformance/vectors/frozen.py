"""The frozen test vectors as a stream of cases: the regression corpus of every run."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..cases.case import Case, plain
from ..cases.entry import DATA_PARAMS
from ..cases.layouts import IN, OUT
from ..cases.operation import OPERATIONS, as_bits
from .errors import VectorFileError
from .load import Vector, load_vectors


@functools.cache
def _vectors(operation: str, profile: str) -> tuple[Vector, ...]:
    try:
        return tuple(load_vectors(operation, profile))
    except VectorFileError:  # no vectors of this pair, or none installed: `refnum vectors verify` is for the folder
        return ()


Frozen = tuple[Case, dict[str, np.ndarray]]


def frozen_cases(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Frozen]:
    """Yield (case, frozen outputs as unsigned integers) of every vector of one variant, in the order of the files.

    Vectors hold scales as bytes, so that they are asked in every layout. A number of which the table has one example
    (an exponent, a quantile) is a vector's own.
    """
    row = OPERATIONS[operation]
    free = {name for name, choices in row.params.items() if len(choices) == 1 and name != "input"}
    fixed = {name: value for name, value in params.items() if name not in free}
    layouts = {name: params[name] for name in (IN, OUT) if name in params}
    for vector in _vectors(operation, profile):
        given = {**row.defaults(), **layouts, **vector.params}
        if "input" in params:
            given["input"] = _dtype(vector)
        unread = [name for name, (other, value) in row.read_under.items() if given[other] != value]
        given |= {name: row.defaults()[name] for name in unread}
        if plain({name: given.get(name) for name in fixed}) != plain(fixed):
            continue
        data = {name: value for name, value in vector.params.items() if name in DATA_PARAMS | free}
        case = Case(operation, profile, {**params, **data}, vector.inputs, label=f"vector {vector.id}")
        yield case, {name: as_bits(array) for name, array in vector.outputs.items()}


def _dtype(vector: Vector) -> str:
    return next(iter(vector.inputs.values())).dtype.name
