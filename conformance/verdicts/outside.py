"""What a subject did with cases outside of its contract of inputs: told as information, never as a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..cases.contracts import Contract, contract_words


@dataclass
class Outside:
    """Cases outside of a contract: how many were called, and how many held, differed, were refused or failed.

    example: the first that differed or failed, in words.
    """

    contract: Contract = ()
    cases: int = 0
    held: int = 0
    differing: int = 0
    refused: int = 0
    failed: int = 0
    example: str = ""

    def add(self, what: str, words: str) -> None:
        """Count a case as `held`, `differing`, `refused` or `failed`."""
        self.cases += 1
        setattr(self, what, getattr(self, what) + 1)
        if what in ("differing", "failed"):
            self.example = self.example or words

    def words(self) -> str:
        """Return the counts in words, empty where nothing was asked."""
        if not self.cases:
            return ""
        counts = {"differ": self.differing, "refused": self.refused, "failed": self.failed}
        told = [f"{count:,} {name}" for name, count in counts.items() if count] or ["all hold"]
        example = f", for example {self.example}" if self.example else ""
        return f"{self.cases:,} cases outside of {contract_words(self.contract)}: {', '.join(told)}{example}"

    def serializable(self) -> dict[str, Any]:
        """Return the record of a report."""
        return {
            "contract": list(self.contract),
            "cases": self.cases,
            "held": self.held,
            "differing": self.differing,
            "refused": self.refused,
            "failed": self.failed,
            "words": self.words(),
        }
