"""What a stream of cases needs of the engine that asks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

from ...cases.case import Case
from ...reports.report import Report
from ...subjects.calls.call import Called
from ...subjects.subject import Subject
from ...verdicts.tally import Tally
from .journal import Journal
from .plan import Plan, Variant


class Asking(Protocol):
    """One variant at work, see `engine.Engine`."""

    plan: Plan
    item: Variant
    tallies: dict[str, Tally]
    report: Report
    book: Journal
    judged: list[Subject]
    number: int
    asked: Counter[str]
    was_compared: bool
    judged_as: tuple[Case, dict[str, Any]] | None

    def active(self) -> list[Subject]:
        """Return the subjects that are still judged."""

    def golden(self, case: Case) -> dict[str, Any] | None:
        """Return the model's outputs, None where it takes no such case, which is reported."""

    def cover(
        self, case: Case, golden: dict[str, Any], counted: bool = True, but: Collection[str] = ()
    ) -> Iterator[Subject]:
        """Yield the subjects to judge on a case."""

    def one(self, subject: Subject, case: Case, golden: dict[str, Any], before: Case | None = None) -> bool | None:
        """Judge a subject on a case and count it."""

    def inside(self, subject: Subject, case: Case, golden: dict[str, Any]) -> tuple[Case, dict[str, Any]] | None:
        """Return a case inside of a subject's contract of inputs, and its golden outputs."""

    def watched(self, subject: Subject, make: Callable[[], Called]) -> Called:
        """Make a call, count its seconds and return it."""

    def lost(self, subject: Subject, tally: Tally) -> None:
        """Stop using a device that a fault left dead."""
