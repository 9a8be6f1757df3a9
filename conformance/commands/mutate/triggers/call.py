"""Raw facts of one call of a kernel: what its launcher could branch on, read from the arguments alone."""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ....cases.entry import Operation

PAYLOAD = 17
"""Bytes of a payload row for 32 elements: 16 of codes and one scale."""


def named(value: Any) -> Any:
    """Return an argument as it is compared: a profile or a format by its name, a pair as a tuple."""
    value = getattr(value, "name", value)
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Last:
    """The facts of a call that a later one may depend on. data: a digest of the first input. thread: that it came from.

    arguments: those that are no arrays, and the first input's dtype as `input`. dtypes: of the arrays.
    """

    rows: int
    columns: int
    elements: int
    data: int
    thread: int
    arguments: Mapping[str, Any]
    dtypes: Mapping[str, str]


@dataclass
class History:
    """What a kernel remembers of earlier calls. last: the last call that was answered, None before the first one.

    calls: those that were answered and had elements: without any, nothing is launched.
    results: those of the last call. buffers: memory that it keeps. refused: whether the last call was refused.
    entered: calls that were begun, in every thread. inside: those that are under way.
    """

    calls: int = 0
    last: Last | None = None
    refused: bool = False
    entered: int = 0
    inside: int = 0
    results: tuple[np.ndarray, ...] = ()
    buffers: dict[tuple[int, int, str], np.ndarray] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Call:
    """One call. arguments: every keyword of the golden signature, defaults filled in. out: what `out` is, or None.

    met: whether another call was under way at some time of it.
    """

    operation: Operation
    arguments: Mapping[str, Any]
    out: Any
    history: History
    met: bool = False

    @property
    def main(self) -> np.ndarray:
        """The first input: it holds the elements."""
        return np.asarray(self.arguments[self.operation.inputs[0]])

    @property
    def routed(self) -> bool:
        """Whether rows are picked by a map."""
        return self.operation.routed

    @cached_property
    def rows(self) -> int:
        """Rows of the elements; of the map, for an operation that has one."""
        if self.routed:
            return int(np.size(self.arguments["row_map"]))
        return math.prod(self.main.shape[:-1]) if self.main.ndim else 1

    @cached_property
    def tokens(self) -> int:
        """Rows that a map picks from or adds to."""
        return int(self.arguments.get("tokens", self.main.shape[0] if self.main.ndim else 1))

    @cached_property
    def columns(self) -> int:
        """Elements of a row."""
        last = int(self.main.shape[-1]) if self.main.ndim else 1
        return {"packed": 2 * last, "payload": last // PAYLOAD * 32}.get(self.operation.inputs[0], last)

    @cached_property
    def splits(self) -> list[int]:
        """Rows of each expert; all rows where none are given."""
        given = self.arguments.get("splits")
        return [self.rows] if given is None else [int(count) for count in np.asarray(given).reshape(-1)]

    @cached_property
    def offsets(self) -> list[int]:
        """The row at which each expert but the first begins."""
        return [int(start) for start in np.cumsum(self.splits)[:-1]]

    @property
    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (first, length) of every run of experts without a row."""
        first = 0
        while first < len(self.splits):
            length = 0
            while first + length < len(self.splits) and not self.splits[first + length]:
                length += 1
            if length:
                yield first, length
            first += length + 1

    @property
    def outs(self) -> tuple[np.ndarray, ...]:
        """The arrays of `out`, empty when there is none."""
        if self.out is None:
            return ()
        return tuple(self.out) if isinstance(self.out, tuple | list) else (self.out,)

    @cached_property
    def data(self) -> int:
        """A digest of the first input."""
        return zlib.crc32(np.ascontiguousarray(self.main).view(np.uint8).data) if self.main.size else 0

    @cached_property
    def remembered(self) -> Last:
        """What a later call may depend on."""
        arrays = {name: value for name, value in self.arguments.items() if isinstance(value, np.ndarray)}
        rest = {name: named(value) for name, value in self.arguments.items() if name not in arrays}
        return Last(self.rows, self.columns, self.main.size, self.data, threading.get_ident(),
                    {**rest, "input": self.main.dtype.name},
                    {name: array.dtype.name for name, array in arrays.items()})  # fmt: skip

    def array(self, name: str) -> np.ndarray | None:
        """Return an input by its name, None where the call lacks it."""
        found = self.arguments.get(name)
        return None if found is None else np.asarray(found)


def storage(array: np.ndarray) -> str:
    """Return how an array lies in memory: contiguous, row gap, element gap, transposed, negative or broadcast."""
    if array.size < 2 or array.flags.c_contiguous:
        return "contiguous"
    steps = [step for step, side in zip(array.strides, array.shape, strict=True) if side > 1]
    if 0 in steps:
        return "broadcast"
    if min(steps) < 0:
        return "negative"
    if array.ndim == 2 and array.shape[0] > 1 and array.strides[0] == array.itemsize:
        return "transposed"
    return "row gap" if array.strides[-1] == array.itemsize and array.ndim > 1 else "element gap"


def address(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    return int(array.__array_interface__["data"][0])
