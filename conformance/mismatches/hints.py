"""Hints for a page: its kept failures, and further calls of the subject that may refute what explains them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ..bugs.suspects import SUSPECTS
from ..cases.case import Case
from ..cases.corners import corner_cases
from ..cases.entry import DATA_PARAMS
from ..cases.levels import P1
from ..cases.operation import run_golden
from ..cases.recipes import sampled_cases
from ..subjects.calls.call import call
from ..subjects.subject import Subject
from ..vectors.frozen import frozen_cases
from ..verdicts.compare import compare
from ..verdicts.tally import Failure
from .diagnose import Seen, explains, hints

QUICK = 1 << 16
"""Elements of the largest failing case that a hint is asked about."""
SAME_VALUES = P1 - 1
"""The loosest level at which a wrong rule must give what a subject gave: bounds hold many answers."""
SAMPLED = 24
"""Sampled cases among those that a subject is called on further."""


def likely(failures: Sequence[Failure]) -> list[str]:
    """Return the bug classes that give all bits of some failures, as they were met."""
    return [entry["id"] for entry in hints(seen_of(failures))]


@functools.lru_cache(maxsize=32)
def likely_of(failure: Failure) -> tuple[str, ...]:
    """Return `likely` of one failure, found once: a page is chosen by it, and then whether the page is shrunk."""
    return tuple(likely([failure]))


def points_to(failure: Failure, classes: Collection[str]) -> bool:
    """Whether any of some bug classes gives all bits of a failure, as it was met."""
    chosen = [suspect for suspect in SUSPECTS if suspect.id in classes]
    return any(explains(suspect, seen) for seen in seen_of([failure]) for suspect in chosen)


def seen_of(failures: Iterable[Failure]) -> list[Seen]:
    """Return what failures show of their subject, each up to the level below the one that it fails."""
    return [
        Seen(one.case, one.observed, 0 if one.finding else min(max(one.level - 1, 0), SAME_VALUES))
        for one in failures
        if one.observed and one.case.elements <= QUICK
    ]


def hints_for(
    subject: Subject, kept: Sequence[Seen], seconds: float, chosen: Callable[..., Iterable[Case]] | None = None
) -> list[dict[str, Any]]:
    """Return the bug classes that give all bits of a page's cases, and that further calls of the subject do not refute.

    Args:
        subject: whose bits they are.
        kept: the page's own case first, then the others that fail alike.
        seconds: limit of one call.
        chosen: yields the further cases of (operation, profile, parameters); where None, frozen vectors, sampled cases
            and corners in turn, as vectors alone may be what a subject was made for.
    """
    return hints(kept, _further(kept[0].case, chosen), partial(given, subject, seconds))


def given(subject: Subject, seconds: float, case: Case) -> dict[str, Any] | None:
    """Return what a subject gives for a case as bits, None where that cannot be compared."""
    called = call(subject, case, seconds)
    return compare(case, run_golden(case), called.results).observed or None if called.answered else None


def _further(case: Case, chosen: Callable[..., Iterable[Case]] | None) -> Iterator[Case]:
    params = {name: value for name, value in case.params.items() if name not in DATA_PARAMS}
    if chosen is not None:
        yield from chosen(case.operation, case.profile, params)
        return
    frozen = (vector for vector, _ in frozen_cases(case.operation, case.profile, params))
    sampled = sampled_cases(case.operation, case.profile, params, 0, SAMPLED)
    in_turn = itertools.zip_longest(frozen, sampled, corner_cases(case.operation, case.profile, params))
    yield from (found for found in itertools.chain.from_iterable(in_turn) if found is not None)
