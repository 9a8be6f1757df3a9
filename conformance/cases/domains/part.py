"""Enumerations: how the members of a domain are laid out in chunks, and a chunk in cases. Random access by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from refnum.arrays import Array

from ..case import Case


@dataclass(frozen=True)
class Part:
    """One case of a chunk, and how many members of the domain it holds."""

    case: Case
    members: int


class Enumeration(Protocol):
    """A domain cut into numbered chunks that together hold every member exactly once."""

    @property
    def size(self) -> int:
        """Members."""
        ...

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        ...

    def parts(self, chunk: int, like: Array) -> Iterator[Part]:
        """Yield the cases of a chunk, with inputs where `like` lives: the same bits wherever that is."""
        ...

    def title(self, chunk: int) -> str:
        """Return what a chunk holds, in a few words."""
        ...
