"""Choose the next shards: half of each round is round-robin over all targets, half follows missing or rare coverpoints.

The plan of round r depends only on the results of rounds up to r - LAG, not on the number, speed or failures of the
workers. A resumed campaign therefore runs the same shards as an uninterrupted one. Rounds overlap, so no worker waits
for the last shard of a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...cases.coverpoints import expected
from .shards import CORPUS, STRUCTURE, Address, corpus_of, strata
from .spec import Spec, Target

LAG = 2
STOP = 3
"""Failing shards after which a target is left alone: what is wrong with it is found. A fault counts for two, because
it costs two processes, a hang for all: it costs their time as well."""
PROBING = 4
"""Rounds at the start with one shard a target, so that a deadly target is left alone after few processes."""
REFUSED = 3
"""Shards without one compared case after which a target is left alone."""
WEIGHT = 1 << 20


class Interest:
    """The state of one target: the hits of its coverpoints, and whether further shards are worth their time."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.strata = strata(target)
        self.wanted = expected(*target.key) if len(self.strata) > 1 else ()
        self.hit = dict.fromkeys(self.wanted, 0)
        self.by: dict[tuple[str, str], int] = {}
        self.tried = dict.fromkeys(self.strata, 0)
        self.given = dict.fromkeys(self.strata, 0)
        self.bad = self.empty = 0

    @property
    def open(self) -> bool:
        """Return whether further shards are worth their time."""
        return self.bad < STOP and self.empty < REFUSED

    def fold(self, stratum: str, result: Mapping[str, Any]) -> None:
        """Add the result of one shard."""
        self.tried[stratum] = self.tried.get(stratum, 0) + 1
        fault = result["fault"]
        self.bad += (STOP if fault.get("outcome") == "timeout" else 2) if fault else bool(result["failing"])
        self.empty += not (result["cases"] or result["fault"])
        for point in result["points"]:
            if point in self.hit:
                self.hit[point] += 1
                self.by[stratum, point] = self.by.get((stratum, point), 0) + 1

    def need(self) -> int:
        """Weight in the guided half: a missing coverpoint counts fully, one hit in n shards as 1 / (n + 1)^2."""
        return 1 + sum(WEIGHT // (hits + 1) ** 2 for hits in self.hit.values())

    def next_round_robin(self) -> str:
        """Return the stratum with the fewest shards so far, the first of equals; a third of all are of structure."""
        if 3 * self.given[STRUCTURE] < sum(self.given.values()):
            return STRUCTURE
        return min(self.strata, key=lambda stratum: self.given[stratum])

    def next_guided(self, place: int) -> str:
        """Return the stratum that has hit the place-th rarest coverpoint most often for its tries."""
        if not self.wanted:
            return self.next_round_robin()
        rare = sorted(self.wanted, key=lambda point: self.hit[point])
        point = rare[place % len(rare)]

        def promise(stratum: str) -> tuple[int, int]:
            rate = (self.by.get((stratum, point), 0) + 1) * WEIGHT // (self.tried[stratum] + 2)
            return rate, -self.given[stratum]

        return max(self.strata, key=promise)

    def give(self, seed: int, stratum: str) -> Address:
        """Return the address of the next shard of a stratum."""
        self.given[stratum] += 1
        return Address(seed, self.target.name, stratum, self.given[stratum] - 1)


class Budget:
    """Plans the rounds of a campaign in order."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.interests = {target.name: Interest(target) for target in spec.targets}
        self.turn = 0

    def fold(self, rows: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Add a finished round: (target, stratum, result) of all its shards, in any order."""
        for target, stratum, result in rows:
            self.interests[target].fold(stratum, result)

    def _kept(self) -> list[Address]:
        """Return the shards of the corpus, for the first round."""
        return [
            Address(self.spec.seed, target.name, CORPUS, number)
            for target in self.spec.targets
            for number in range(-(-len(corpus_of(self.spec, target)) // self.spec.cases))
        ]

    def plan(self, number: int) -> list[Address]:
        """Return the shards of a round, none when no target is worth more. Call it for the rounds in order."""
        alive = [interest for interest in self.interests.values() if interest.open]
        if not alive:
            return []
        size = min(self.spec.round, len(alive)) if number < PROBING else self.spec.round
        around = size if number < LAG else size - size // 2
        found = self._kept() if number == 0 else []
        for _ in range(around):
            interest = alive[self.turn % len(alive)]
            self.turn += 1
            found.append(interest.give(self.spec.seed, interest.next_round_robin()))
        shares = _shares([interest.need() for interest in alive], size - around)
        for interest, share in zip(alive, shares, strict=True):
            found += [interest.give(self.spec.seed, interest.next_guided(place)) for place in range(share)]
        return found


def _shares(weights: list[int], total: int) -> list[int]:
    """Divide a number in proportion to weights by largest remainders, in integers, so that all machines agree."""
    whole = sum(weights)
    shares = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % whole), i))
    for i in order[: total - sum(shares)]:
        shares[i] += 1
    return shares
