"""What became of a mutant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .operators import Mutant

KILLED, SURVIVED, EQUIVALENT, OUTSIDE, REFUSED = "killed", "survived", "equivalent", "outside", "does not compile"
ENUMERATED, REASONED = "enumerated", "reasoned"
BY_LIMIT = "by limit of"
"""How a kill begins that was no wrong answer: the mutant wanted more memory or CPU time than it may have."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant. how: the words for it. operation, case: what killed it. guesses: bug classes.

    vectors: how many frozen vectors see it, -1 when that is not known: not all were asked. `alone` counts to two.
    only: the one that does, when it is one.
    """

    mutant: Mutant
    status: str
    how: str = ""
    operation: str = ""
    case: str = ""
    guesses: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    vectors: int = -1
    only: str = ""
    built: float = 0.0
    judged: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        m = self.mutant
        place = {"id": m.id, "file": m.file, "line": m.line, "operator": m.operator, "old": m.old, "new": m.new}
        return {
            **place, "status": self.status, "how": self.how, "operation": self.operation, "case": self.case,
            "guesses": list(self.guesses), "changed": list(self.changed), "vectors": self.vectors, "only": self.only,
            "built": round(self.built, 3), "judged": round(self.judged, 4),
        }  # fmt: skip
