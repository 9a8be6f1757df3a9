"""Every intermediate of a step of the torch layer against the golden layer, bit for bit (clause N20)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np
import torch

from refnum.arrays import Array, contiguous

from .golden import Backward, Forward, tensors
from .golden_parts import filled


def to_array(x: torch.Tensor, like: Array | None = None) -> Array:
    """Return a tensor's values as an array of NumPy, or of the library of `like`; bfloat16 as its bits u16."""
    plain = x.detach().contiguous()
    half = plain.dtype == torch.bfloat16
    plain = plain.view(torch.int16) if half else plain
    host = like is None or isinstance(like, np.ndarray)
    array = plain.cpu().numpy() if host else np.asarray(plain, like=like)
    return array.view(np.uint16) if half else array


def to_own_array(x: torch.Tensor) -> Array:
    """Return a tensor's values as `to_array` where they are: CuPy's for a GPU, where CuPy is installed."""
    cupy = _cupy() if x.is_cuda else None
    return to_array(x) if cupy is None else to_array(x, cupy.empty(0))


def on_device_of(x: torch.Tensor) -> AbstractContextManager[Any]:
    """Return a context in which CuPy works on a tensor's GPU."""
    cupy = _cupy() if x.is_cuda else None
    return nullcontext() if cupy is None else cupy.cuda.Device(x.device.index)


@functools.cache
def _cupy() -> ModuleType | None:
    try:
        import cupy
    except ImportError:
        return None
    return cupy


def wanted(step: Forward | Backward) -> dict[str, Array]:
    """Return the arrays of a golden step under the names of a layer's record."""
    kind = "forward" if isinstance(step, Forward) else "backward"
    found = {f"{kind}.{name}": one for name, one in tensors(step).items() if not name.startswith("sent.")}
    if isinstance(step, Forward):
        found["forward.tokens"] = np.concatenate(step.sent)
    return found


def differing(record: Mapping[str, Any], step: Forward | Backward) -> dict[str, int]:
    """Return the number of elements of a record that differ from a golden step, by name, where there are any.

    A name that the record lacks, and a shape that differs, count as all elements.
    """
    counts = {name: _different(_named(record, name), one) for name, one in wanted(step).items()}
    return {name: count for name, count in counts.items() if count}


def elements(step: Forward | Backward) -> int:
    """Return how many elements `differing` compares."""
    return sum(one.size for one in wanted(step).values())


def _named(record: Mapping[str, Any], name: str) -> Any:
    if name in record:
        return record[name]
    whole, _, at = name.rpartition(".")
    parts = record.get(whole)
    return parts[int(at)] if isinstance(parts, tuple) and at.isdigit() and int(at) < len(parts) else None


def _different(got: Any, want: Array) -> int:
    if got is None:
        return max(want.size, 1)
    array = to_array(torch.as_tensor(got), want)
    if array.shape != want.shape or array.dtype != want.dtype:
        return max(want.size, 1)
    return different(array, want)


def different(got: Array, want: Array) -> int:
    """Return how many elements of two arrays differ in a bit; all of them where shapes or sizes do."""
    if got.shape != want.shape or got.dtype.itemsize != want.dtype.itemsize:
        return max(want.size, 1)
    bits = f"u{want.dtype.itemsize}"
    return int((contiguous(got).view(bits) != contiguous(want).view(bits)).sum()) if want.size else 0


def without_fill(got: np.ndarray, want: np.ndarray, splits: Sequence[int]) -> np.ndarray:
    """Return products of rows, bfloat16 bits [R, N], without the NaN that a weight makes of rows that fill up (N20.8).

    splits: rows of each expert. Such a NaN is +0 then, as it is in `want`; every row of its expert has it.
    """
    found, ends = got.copy(), np.cumsum(filled(splits))[:-1]
    for count, mine, right in zip(splits, np.split(found, ends), np.split(want, ends), strict=True):
        rows, fill = right[:count], mine[count:]
        if len(fill):
            nan = (rows == rows[:1]).all(axis=0) & ((rows[0] & 0x7FFF) > 0x7F80)
            fill[nan & (fill == rows[:1])] = 0
    return found
