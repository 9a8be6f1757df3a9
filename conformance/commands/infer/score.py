"""How far a profile explains a kernel's answers: struck out by any difference, or else scored by elements.

A kernel with a systematic error, such as a flipped bit, is explained by no profile, and agrees with a wrong one by
chance wherever the two errors meet. So what counts is the elements that agree, or else those that agree after one
table, code in and code out, one to one: from the right profile it leads to the kernel's codes everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from refnum.profiles import Profile

from .answers import Answer
from .scales import WrongScales, wrong_scales

ROUND = 12
"""Cases after which the worse half of the candidates is asked no more."""
FEW = 6
"""Candidates that are asked to the end, and all that are level with the last of them."""

_CODES = 256
Place = tuple[str, int]
"""An output, and which of the two codes of a byte; 0 where a byte holds one."""


class Score:
    """What of a kernel's answers agrees with one profile.

    agreed, total: output -> elements. pairs: (output, parity) -> how often which code came back for which:
    golden * 256 + observed.
    """

    def __init__(self) -> None:
        self.agreed: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.pairs: dict[Place, Counter[int]] = {}

    def add(self, answer: Answer, profile: Profile, outputs: Iterable[str]) -> bool:
        """Count one answer and return whether the profile explains it; one that has no meaning here explains none."""
        golden = answer.golden(profile)
        whole = golden is not None
        for name in outputs:
            observed = answer.observed[name].elements
            self.total[name] += observed.size
            if golden is None:
                continue
            agreed = int(np.count_nonzero(golden[name] == observed))
            self.agreed[name] += agreed
            whole = whole and agreed == observed.size
            self._pair(name, answer.observed[name].kind, golden[name], observed)
        return whole

    def _pair(self, name: str, kind: str, golden: np.ndarray, observed: np.ndarray) -> None:
        for parity in (0, 1) if kind == "packed" else (0,):
            step = 2 if kind == "packed" else 1
            codes = golden[..., parity::step].astype(np.int64) * _CODES + observed[..., parity::step]
            counts = np.bincount(codes.ravel())
            seen = np.flatnonzero(counts)
            self.pairs.setdefault((name, parity), Counter()).update(
                dict(zip(seen.tolist(), counts[seen].tolist(), strict=True))
            )

    @property
    def value(self) -> tuple[int, int]:
        """What to compare: ten for each element that agrees, or nine for each that a table makes agree; then the first.

        So nine in ten elements that agree as they are weigh more than any table.
        """
        agreed = self.agreed.total()
        return max(10 * agreed, 9 * sum(map(_by_table, self.pairs.values()))), agreed

    def recoded(self, most: int = 3) -> list[str]:
        """Return in words which codes of an output nearly always came back as another, the most frequent ones."""
        codes = {place: pairs for place, pairs in self.pairs.items() if place[0] != "scales"}
        return [text for place, pairs in codes.items() for text in self._recoded(place, pairs)[:most]]

    def scales(self) -> list[WrongScales]:
        """Return in which ways scales are wrong, the most frequent first."""
        return wrong_scales(self.pairs.get(("scales", 0), Counter()))

    def _recoded(self, place: Place, pairs: Counter[int]) -> list[str]:
        name, parity = place
        where = f"the {('even', 'odd')[parity]} codes of {name}" if (name, 1) in self.pairs else name
        given: Counter[int] = Counter()
        for pair, count in pairs.items():
            given[pair // _CODES] += count
        found = []
        for pair, count in pairs.most_common():
            golden, observed = divmod(pair, _CODES)
            if golden != observed and 10 * count > 9 * given[golden]:
                times = f"{count:,} of {given[golden]:,} times"
                found.append(f"{where}: 0x{observed:02X} where 0x{golden:02X} is right, {times}")
        return found


def _by_table(pairs: Counter[int]) -> int:
    """Return how many elements the best table from code to code makes agree, that gives no code to two."""
    given: dict[int, tuple[int, int]] = {}
    for pair, count in pairs.items():
        golden, observed = divmod(pair, _CODES)
        given[golden] = max(given.get(golden, (0, 0)), (count, observed))
    taken: Counter[int] = Counter()
    for count, observed in given.values():
        taken[observed] = max(taken[observed], count)
    return taken.total()


def explaining(answers: Sequence[Answer], left: list[Profile], outputs: Iterable[str]) -> list[Profile]:
    """Return the candidates that explain every answer in these outputs; none as soon as one is explained by none.

    Small cases come first: most candidates fall at once, and the large cases are asked of few.
    """
    for answer in answers:
        left = [profile for profile in left if _explains(answer, profile, outputs)]
        if not left:
            return []
    return left


def _explains(answer: Answer, profile: Profile, outputs: Iterable[str]) -> bool:
    golden = answer.golden(profile)
    return golden is not None and all(np.array_equal(golden[name], answer.observed[name].elements) for name in outputs)


def scored(
    answers: Sequence[Answer], candidates: Sequence[Profile], outputs: Iterable[str], say: Callable[[str], None]
) -> list[Profile]:
    """Return the candidates of the highest score; after each round of cases the worse half is asked no more."""
    left = [(profile, Score()) for profile in candidates]
    say(f"none explains every case; {len(left)} are scored on {len(answers)} cases")
    for first in range(0, len(answers), ROUND):
        for answer in answers[first : first + ROUND]:
            for profile, score in left:
                score.add(answer, profile, outputs)
        left = _better(left, max(FEW, len(left) // 2))
        say(f"  {min(first + ROUND, len(answers))} cases, {len(left)} candidates left")
    return [profile for profile, _ in _better(left, 1)]


def _better(left: list[tuple[Profile, Score]], count: int) -> list[tuple[Profile, Score]]:
    """Return the best `count` of them, and those that are level with the last."""
    values = [score.value for _, score in left]
    least = sorted(values, reverse=True)[:count][-1]
    return [pair for pair, value in zip(left, values, strict=True) if value >= least]
