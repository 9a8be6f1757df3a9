"""A domain: a finite set of cases that an operation is proved on by trying every one, exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from refnum.arrays import Array
from refnum.errors import ArgumentError

from ..case import Case
from ..recipes.random_bits import by_key
from .part import Part
from .wide import Cut, Wide

CHUNK = 1 << 21
"""Elements of one case at most, so that memory stays small."""
HOST_CUT = Cut(1 << 24, CHUNK)
"""How a wide domain is cut on the host: its cases fit a processor's cache better than a device's do."""


@dataclass(frozen=True)
class Chunk:
    """Part of a domain as one case's inputs.

    members: returns i64 in the shape of the unpacked elements (or values): the number of the domain's member
    that stands at each place, -1 where a place holds a pinned maximum or a filler. Computed on demand.
    """

    inputs: Mapping[str, np.ndarray]
    members: Callable[[], np.ndarray]
    params: Mapping[str, Any] = field(default_factory=dict)


def _never(_others: Sequence[str]) -> bool:
    return False


@dataclass(frozen=True)
class Domain:
    """An enumerable domain of one variant of an operation.

    size: the exact number of members. how: what a member is and how the cases hold it. make: returns an
    iterator of chunks that together hold every member exactly once; or wide: an enumeration by arithmetic, which
    makes the same members wherever the arrays are, for domains too large to be made on the host for a device.
    within: whether everything that the domain decides is decided by the same domain under others, by name.
    """

    name: str
    operation: str
    profile: str
    params: Mapping[str, Any]
    size: int
    how: str
    make: Callable[[], Iterator[Chunk]] | None = None
    wide: Wide | None = None
    within: Callable[[Sequence[str]], bool] = _never

    def cases(self) -> Iterator[Case]:
        """Yield the cases that hold every member exactly once, always in the same order."""
        if self.wide is not None:
            yield from (part.case for part in self.parts(np.empty(0, np.uint8)))
            return
        for case, _ in self.chunks():
            yield case

    def parts(self, like: Array) -> Iterator[Part]:
        """Yield the parts of a wide domain in order, with inputs where `like` lives; none if it is not wide.

        Raises ArgumentError at the end when they do not hold as many members as are stated.
        """
        if self.wide is None:
            return
        wide, held = replace(self.wide, cut=HOST_CUT) if isinstance(like, np.ndarray) else self.wide, 0
        for number, part in enumerate(part for chunk in range(wide.chunks) for part in wide.parts(chunk, like)):
            held += part.members
            yield self._named(part, number)
        if held != self.size:
            raise ArgumentError(f"{self.name} is stated to have {self.size} members; its parts hold {held}.")

    def part(self, number: int) -> Case:
        """Return a part of a wide domain by its number on a device, with inputs on the host."""
        if self.wide is None:
            raise ArgumentError(f"{self.name} is no domain that a device makes for itself.")
        chunk, place = divmod(number, max(1, self.wide.cut.chunk // self.wide.cut.part))
        made = self.wide.parts(chunk, np.empty(0, np.uint8))
        return self._named(next(itertools.islice(made, place, None)), number).case

    def _named(self, part: Part, number: int) -> Part:
        label = f"{self.name} part {number}"
        return replace(part, case=replace(part.case, operation=self.operation, label=label, domain=self.name))

    def chunks(self) -> Iterator[tuple[Case, Callable[[], np.ndarray]]]:
        """Yield each case with a function that returns which member stands where, see `Chunk.members`."""
        if self.make is None:
            raise ArgumentError(f"{self.name} has no list of members: its {self.size} cases come from arithmetic.")
        for number, chunk in enumerate(self.make()):
            params, label = {**self.params, **chunk.params}, f"{self.name} part {number}"
            case = Case(self.operation, self.profile, params, dict(chunk.inputs), None, label, self.name)
            yield by_key(case, number), chunk.members


def count_once(domain: Domain) -> int:
    """Return how many members the cases hold; raise AssertionError if one is missing or comes twice.

    Needs a byte a member: meant for domains up to 2**28.
    """
    seen = np.zeros(domain.size, bool)
    total = 0
    for _, members in domain.chunks():
        held = members().reshape(-1)
        held = held[held >= 0]
        total += held.size
        seen[held] = True
    assert total == domain.size, f"{domain.name}: {total} members held, {domain.size} stated"
    assert seen.all(), f"{domain.name}: member {int(np.argmin(seen))} is missing, so another is held twice"
    return total


def arrangement(count: int, width: int) -> np.ndarray:
    """Place `count` members width-1 to a block beside a pinned maximum: i64 [ceil(count / (width-1)), width].

    -2 marks the pin, whose lane moves from block to block; -1 marks a filler; the rest are 0..count-1.
    """
    block = np.arange(-(-count // (width - 1)))
    lane = (block + block // width) % width
    behind = np.arange(width) - lane[:, None]  # the pin, in cyclic order
    behind += width * (behind < 0)
    index = behind + (block * (width - 1) - 1)[:, None]
    index[index >= count] = -1
    index[block, lane] = -2
    return index


def in_rows(blocks: np.ndarray, columns: int, filler: int = 0) -> np.ndarray:
    """Lay blocks [n, B] out in rows of `columns` elements, the last row filled up."""
    per_row = columns // blocks.shape[1]
    missing = -len(blocks) % per_row
    return np.concatenate([blocks, np.full((missing, blocks.shape[1]), filler, blocks.dtype)]).reshape(-1, columns)


def sequence(first: int, shape: tuple[int, int]) -> Callable[[], np.ndarray]:
    """Members in row-major order from `first` on."""
    return lambda: np.arange(first, first + shape[0] * shape[1], dtype=np.int64).reshape(shape)
