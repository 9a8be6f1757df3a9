"""Enumerations of `cases.domains` and of fixed recipes, variant by variant: one chunk each, made on the host."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refnum.arrays import Array

from ...cases.case import Case, variant
from ...cases.domains import domains_for
from ...cases.domains.part import Part
from ...cases.operation import OPERATIONS
from ...cases.recipes import Recipe, expand
from ...cases.recipes.distributions import distributions_for
from ...verdicts.device import place

TENSORS = "sampled tensors"
SHAPE, SPLITS = (256, 2048), (100, 0, 30, 126)
"""Shape of the sampled tensors, and the rows of their experts (even numbers, for FP4 columns)."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """One chunk: a variant of an operation, and the name of a domain of it or TENSORS."""

    operation: str
    profile: str
    params: dict[str, Any]
    name: str
    shape: tuple[int, int] = SHAPE

    def __str__(self) -> str:
        return f"{variant(self.operation, self.profile, self.params)}: {self.name}"

    @functools.cached_property
    def members(self) -> int:
        """Members of the domain; of tensors, elements for each distribution and width of their first inputs."""
        if self.name == TENSORS:
            return self.shape[0] * self.shape[1] * len(distributions_for(self.operation)) * len(self._widths)
        return int(self._domain.size)

    @property
    def _widths(self) -> tuple[bool, ...]:
        return (False, True) if OPERATIONS[self.operation].wide_first else (False,)

    @property
    def _domain(self) -> Any:
        every = domains_for(self.operation, self.profile, self.params, "exhaustive")
        return next(domain for domain in every if domain.name == self.name)

    def cases(self) -> Iterator[tuple[Case, int]]:
        """Yield (case on the host, members in it)."""
        if self.name != TENSORS:
            for case, members in self._domain.chunks():
                yield case, int(np.count_nonzero(members() >= 0))
            return
        made = itertools.product(self._widths, enumerate(distributions_for(self.operation).values()))
        for wide, (number, distribution) in made:
            params = dict(self.params)
            if OPERATIONS[self.operation].ragged:
                params["splits"] = list(SPLITS)
            yield (
                expand(Recipe(self.operation, self.profile, params, self.shape, number, distribution.name,
                              dict(distribution.simple), optional=True, wide=wide)),
                self.shape[0] * self.shape[1],
            )  # fmt: skip


@dataclass(frozen=True)
class Standard:
    """Domains of at most 2**24 members of some operations in all their variants.

    operations: names, in order. profiles: of those operations that
    take one; the others are enumerated once. tensors: whether sampled tensors of every variant are added. shape: of
    those; SPLITS are rows of SHAPE. only: of the parameters named there the values that count, for kernels that do not
    have all variants.
    """

    operations: tuple[str, ...]
    profiles: tuple[str, ...] = ("HOPPER", "OCP")
    tensors: bool = False
    shape: tuple[int, int] = SHAPE
    only: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    @functools.cached_property
    def table(self) -> list[Chunk]:
        """The chunks in order: operations as in their table, profiles, variants, domains, then tensors."""
        found = []
        for name in self.operations:
            operation = OPERATIONS[name]
            for profile in self.profiles if operation.profiled else self.profiles[:1]:
                for params in filter(self._counts, operation.variants()):
                    domains = domains_for(name, profile, params, "standard")
                    found += [Chunk(name, profile, params, domain.name) for domain in domains]
                    if self.tensors:
                        found.append(Chunk(name, profile, params, TENSORS, self.shape))
        return found

    def _counts(self, params: Mapping[str, Any]) -> bool:
        return all(name not in params or params[name] in values for name, values in self.only)

    @property
    def size(self) -> int:
        """Members of all chunks."""
        return sum(chunk.members for chunk in self.table)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.table)

    def parts(self, chunk: int, like: Array) -> Iterator[Part]:
        """The cases of a chunk, moved to where `like` lives."""
        for case, members in self.table[chunk].cases():
            yield Part(place(case, like), members)

    def title(self, chunk: int) -> str:
        """The variant and the domain."""
        return str(self.table[chunk])
