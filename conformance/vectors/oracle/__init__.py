"""The frozen answers a second time: brute force over exact rationals, no code of the model (N15).

An operation's second answer is the function of its name in the module of its family: vector -> its outputs as lists.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from refnum.oracle import blocks as block_oracle
from refnum.oracle import matrices as matrix_oracle
from refnum.oracle import nvfp4 as nvfp4_oracle

from ...cases.families import part_of
from ...cases.primitives import VECTOR_OPERATIONS
from ..load import Vector
from ..record import little_endian

REMEMBERED = (
    (block_oracle, "encode"),
    (matrix_oracle, "covered"),
    (matrix_oracle, "encode_element"),
    (nvfp4_oracle, "encode"),
    (nvfp4_oracle, "float_value"),
    (nvfp4_oracle, "float32_multiply"),
)
"""Functions of one element that come back with equal arguments in most blocks, where they are looked up."""


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Let the oracle remember what it has decoded and encoded: the same exact quotients come back in most blocks."""
    plain = [getattr(module, name) for module, name in REMEMBERED]
    for (module, name), function in zip(REMEMBERED, plain, strict=True):
        setattr(module, name, functools.lru_cache(maxsize=1 << 20)(function))
    try:
        yield
    finally:
        for (module, name), function in zip(REMEMBERED, plain, strict=True):
            setattr(module, name, function)


def sampled(vector: Vector, rows: int) -> Vector:
    """Return a tensor of a row-wise operation cut to evenly spaced rows; any other vector as it is."""
    count = next(iter(vector.inputs.values())).shape[0]
    if vector.tensor is None or not _rows_stand_alone(vector.operation) or count <= rows:
        return vector
    if vector.params.get("tile") == [128, 128]:
        return vector
    kept = np.unique(np.linspace(0, count - 1, rows).astype(int) // 8 * 8 + np.arange(rows) % 8)
    kept = kept[kept < count]
    return replace(
        vector,
        inputs={n: a[kept] for n, a in vector.inputs.items()},
        outputs={n: a[kept] for n, a in vector.outputs.items()},
    )


def _rows_stand_alone(operation: str) -> bool:
    row = VECTOR_OPERATIONS[operation]
    return row.inputs[0] in ("x", "codes", "packed") and not (row.ragged or row.scalar or row.moves_only)


def expected_by_oracle(vector: Vector) -> dict[str, np.ndarray] | None:
    """Return the outputs by the oracle as unsigned integers, or None where the oracle has no such operation."""
    solve = part_of(__name__, VECTOR_OPERATIONS[vector.operation].family, vector.operation)
    if solve is None:
        return None
    answers = solve(vector)
    return {
        name: np.asarray(answer, dtype=f"u{array.dtype.itemsize}").reshape(array.shape)
        for (name, array), answer in zip(vector.outputs.items(), answers, strict=True)
    }


def agrees(vector: Vector, expected: Mapping[str, np.ndarray]) -> str | None:
    """Return None when every bit agrees, else the name of the first output that differs."""
    for name, array in vector.outputs.items():
        if little_endian(array) != little_endian(expected[name]):
            return name
    return None
