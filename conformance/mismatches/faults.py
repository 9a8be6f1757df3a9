"""Calls that came to no result, and illegal ones that came to one: what was seen of them, each kind once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refnum.errors import RefnumError

from ..cases.case import Case
from ..cases.findings import Finding
from ..cases.operation import run_golden
from ..verdicts.tally import Tally, ended

LARGEST = 1 << 20
"""Elements of the largest case of which a replay file is written as it is: a fault is not made small."""


@dataclass(frozen=True)
class Fault:
    """Calls of one kind. case: the smallest of them. times: how often they were seen."""

    finding: Finding
    words: str
    case: Case
    times: int

    def expected(self) -> dict[str, np.ndarray]:
        """Return the golden outputs; empty for an illegal case and for one that is too large to be kept."""
        if self.case.elements > LARGEST or self.finding is Finding.ILLEGAL_ACCEPTED:
            return {}
        try:
            return run_golden(self.case)
        except RefnumError:
            return {}


def faults_of(tally: Tally) -> list[Fault]:
    """Return the faults of a variant by what was said of them, and the illegal calls that were answered, in order."""
    seen: dict[tuple[Finding, str], list[Case]] = {}
    for outcome, words, case in tally.faults:
        seen.setdefault((ended(outcome, words), words), []).append(case)
    if tally.accepted:
        words = f"taken, and must be refused: {'; '.join(dict.fromkeys(words for words, _ in tally.accepted))}"
        seen[Finding.ILLEGAL_ACCEPTED, words] = [case for _, case in tally.accepted]
    return [
        Fault(finding, words, min(cases, key=lambda case: case.elements), len(cases))
        for (finding, words), cases in seen.items()
    ]
