"""The score: verdicts by operator. A mutant that does not compile, or has no code in the build, never counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .verdict import ENUMERATED, EQUIVALENT, KILLED, OUTSIDE, REASONED, REFUSED, SURVIVED, Verdict

STATUSES = (KILLED, EQUIVALENT, ENUMERATED, REASONED, SURVIVED, OUTSIDE, REFUSED)
SETTLED = (EQUIVALENT, ENUMERATED, REASONED)
"""No kill was possible: the same machine code, right at every point of its domains, or without effect for a reason."""


@dataclass
class Count:
    """Mutants of one operator by status, and the seconds that they took."""

    by_status: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATUSES, 0))
    seconds: float = 0.0

    @property
    def judged(self) -> int:
        """Mutants that could be killed: neither settled nor without code."""
        return self.by_status[KILLED] + self.by_status[SURVIVED]

    @property
    def score(self) -> float:
        """Share of those that were killed; 1 when there were none."""
        return self.by_status[KILLED] / self.judged if self.judged else 1.0


def by_operator(verdicts: Iterable[Verdict]) -> dict[str, Count]:
    """Return operator -> count, in the order of their names, and `all` last."""
    counts: dict[str, Count] = {}
    for verdict in verdicts:
        for name in (verdict.mutant.operator, "all"):
            count = counts.setdefault(name, Count())
            count.by_status[verdict.status] += 1
            count.seconds += verdict.built + verdict.judged
    return dict(sorted(counts.items(), key=lambda item: (item[0] == "all", item[0])))


def rows(counts: dict[str, Count]) -> Iterator[list[str]]:
    """Yield the rows of a table: operator, the statuses, the share killed, CPU seconds."""
    for name, count in counts.items():
        yield [
            name,
            *(str(count.by_status[status]) for status in STATUSES),
            f"{100 * count.score:.1f} %",
            f"{count.seconds:.0f}",
        ]


def document(verdicts: list[Verdict], **facts: Any) -> dict[str, Any]:
    """Return a run as JSON values."""
    counts = by_operator(verdicts)
    return {
        "schema": "refnum.mutation/1",
        **facts,
        "operators": {name: {**c.by_status, "score": round(c.score, 4)} for name, c in counts.items()},
        "mutants": [verdict.to_json() for verdict in sorted(verdicts, key=lambda one: one.mutant.id)],
    }
