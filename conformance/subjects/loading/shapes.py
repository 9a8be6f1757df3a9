"""What a call that is not Python must be told: its case, and the shape and dtype of every output."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from refnum.errors import DtypeError
from refnum.profiles import get_profile, profile_name

from ...cases.case import Case
from ...cases.entry import Operation
from ...cases.operation import call_golden


def case_of(operation: Operation, keywords: dict[str, Any]) -> Case:
    """Return the case of a call from its keywords; the profile is an object or a name.

    Raises DtypeError for an array of another byte order than the machine's: neither a pointer nor a line names one.
    """
    inputs = {
        name: keywords[name] for name in (*operation.inputs, *operation.optional) if keywords.get(name) is not None
    }
    for name, array in inputs.items():
        if not array.dtype.isnative:
            raise DtypeError(f"{name} has dtype {array.dtype}; allowed is the machine's own byte order: swap its bytes")
    params = {k: v for k, v in keywords.items() if k not in (*operation.inputs, *operation.optional, "profile")}
    profile = keywords.get("profile")
    return Case(operation.name, "HOPPER" if profile is None else profile_name(get_profile(profile)), params, inputs)


def output_specs(case: Case) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Return shape and dtype of every output: the golden model's on zeros, or periods of 1, of these shapes."""
    key = tuple((name, array.shape, array.dtype.str, str(array.dtype)) for name, array in case.inputs.items())
    index = {n: a for n, a in case.inputs.items() if n == "row_map"}
    params = tuple((name, tuple(v) if isinstance(v, list | tuple) else v) for name, v in case.params.items())
    told = (key, repr(params))  # 32.0 equals 32, and True equals 1, which the golden model tells apart
    return _shapes_of(case.operation, case.profile, params, told, *(_Fixed(a) for a in index.values()))


class _Fixed:
    """A row map as a key: its rows decide the shapes of what is permuted."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array.get() if hasattr(array, "get") else array)
        self.bytes = self.array.tobytes()

    def __hash__(self) -> int:
        return hash(self.bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fixed) and self.bytes == other.bytes


@functools.lru_cache(maxsize=4096)
def _shapes_of(operation: str, profile: str, params: Any, told: Any, *maps: _Fixed) -> list[Any]:
    inputs = {name: np.full(shape, name == "period", dtype_of(word)) for name, shape, _, word in told[0]}
    if maps:
        inputs["row_map"] = maps[0].array
    listed = {name: list(v) if isinstance(v, tuple) else v for name, v in params}
    return [(array.shape, array.dtype) for array in call_golden(Case(operation, profile, listed, inputs))]


def dtype_of(word: str) -> np.dtype:
    """Return the dtype of a name, those of `ml_dtypes` too; TypeError for another name."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, word, word))
