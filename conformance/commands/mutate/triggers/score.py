"""The score of an exam: shares killed, by class of condition and by operation, and the survivors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .exam import Exam, Marked, Verdict

ONE, TWO = "one condition", "two conditions"


def number(verdict: Verdict) -> str:
    """Return whether a mutant has one condition or two."""
    return ONE if len(verdict.conditions) == 1 else TWO


def _seed(verdict: Verdict) -> str:
    return verdict.id.partition(":")[0]


def kinds(verdict: Verdict) -> Iterator[str]:
    """Yield the classes that a mutant counts for: its condition's, or each of its two behind a mark."""
    yield from verdict.conditions if len(verdict.conditions) == 1 else (f"two, {kind}" for kind in verdict.conditions)


def counted(verdicts: Iterable[Verdict], keys: Callable[[Verdict], Iterable[str]]) -> dict[str, tuple[int, int]]:
    """Return key -> (mutants, those killed), in alphabetical order."""
    found: dict[str, tuple[int, int]] = {}
    for verdict in verdicts:
        for key in keys(verdict):
            asked, killed = found.get(key, (0, 0))
            found[key] = asked + 1, killed + verdict.killed
    return dict(sorted(found.items()))


def rows(counts: dict[str, tuple[int, int]]) -> Iterator[list[str]]:
    """Yield the rows of a table: key, mutants, killed, share."""
    for key, (asked, killed) in counts.items():
        yield [key, str(asked), str(killed), f"{100 * killed / asked:.1f} %"]


def tables(marked: list[Marked]) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield (title of the first column, rows) of every table of an exam."""
    verdicts = [verdict for one in marked for verdict in one.verdicts]
    yield "condition", list(rows(counted(verdicts, kinds)))
    yield "operation", list(rows(counted(verdicts, lambda one: [f"{one.operation}, {number(one)}"])))
    if len({_seed(one) for one in verdicts}) > 1:
        yield "seed", list(rows(counted(verdicts, lambda one: [f"{_seed(one)}, {number(one)}"])))
    yield "all", list(rows(counted(verdicts, lambda one: [number(one)])))


def document(exam: Exam, marked: list[Marked]) -> dict[str, Any]:
    """Return an exam and its verdicts as JSON values."""
    verdicts = [verdict for one in marked for verdict in one.verdicts]
    return {
        "schema": "refnum.triggers/2", "seeds": list(exam.seeds), "count": exam.count, "level": exam.level,
        "subject": exam.subject, "largest": exam.largest, "seconds": round(sum(one.seconds for one in marked), 1),
        "discarded": {one.operation: dict(one.discarded) for one in marked if one.discarded},
        "score": {key: list(pair) for key, pair in counted(verdicts, lambda one: [number(one)]).items()},
        "operations": {
            key: list(pair) for key, pair in counted(verdicts, lambda one: [f"{one.operation}, {number(one)}"]).items()
        },
        "conditions": {key: list(pair) for key, pair in counted(verdicts, kinds).items()},
        "mutants": [
            {"operation": one.operation, "id": one.id, "conditions": list(one.conditions), "effect": one.effect,
             "words": one.words, "shown": one.shown, "killed": one.killed, "how": one.how} for one in verdicts
        ],
    }  # fmt: skip
