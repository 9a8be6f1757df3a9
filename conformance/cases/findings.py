"""What is wrong with the results of a call as a whole, so that their bytes say nothing: the finding and its words."""

from __future__ import annotations

from dataclasses import dataclass

SHAPE, PADDING, SCALE = "wrong-shape-or-dtype", "wrong-padding", "scale-not-a-power-of-two"
FINDINGS = frozenset({SHAPE, PADDING, SCALE})
"""Too few or too many results, or one of another shape or dtype; padding of a scale layout that is not zero (N6.2); a
float32 of a scale layout that is the value of no E8M0 byte (N0).
"""


@dataclass(frozen=True)
class Problem:
    """A problem, or none: then it is false. words: one sentence, without its full stop."""

    finding: str = ""
    words: str = ""

    def __bool__(self) -> bool:
        return bool(self.finding)

    def __str__(self) -> str:
        return self.words


NO_PROBLEM = Problem()
