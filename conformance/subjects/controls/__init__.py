"""Controls: subjects whose verdict is known. Right ones must pass and wrong ones must fail, each for its reason.

A control is one file with `SUBJECT`, the dict form of the entry-point group; a wrong one also says `OUTCOME` and,
where the breach has a name, `FINDING`. A harness that misjudges one of them is not to be believed about others.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass

from ...cases.levels import Outcome
from ..subject import Subject, from_dict


@dataclass(frozen=True)
class Control:
    """A subject, the outcome it must get and the breach that must be named (empty: bytes that differ)."""

    subject: Subject
    outcome: Outcome
    finding: str = ""

    @property
    def right(self) -> bool:
        """Whether the subject is one that must pass."""
        return self.outcome is Outcome.PASS


def controls() -> list[Control]:
    """Return all controls, right ones first, in order of their file names."""
    found = []
    for part in ("right", "wrong"):
        package = importlib.import_module(f"{__name__}.{part}")
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            subject = from_dict({"name": info.name, "kind": "control", **module.SUBJECT}, module.__name__)
            outcome = Outcome(getattr(module, "OUTCOME", "pass" if part == "right" else "mismatch"))
            found.append(Control(subject, outcome, getattr(module, "FINDING", "")))
    return found
