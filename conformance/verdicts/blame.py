"""What is to blame for wrong bytes of a call in an unusual form: the form, or a subject that is not deterministic.

A form is blamed only where the plain call on the same data is right and the call in the form is wrong, both as often as
they are repeated. What comes and goes is a flip, whichever form it was first seen in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..cases.case import Case
from ..cases.levels import NO_LEVEL
from ..subjects.calls.call import Called, call
from ..subjects.subject import Subject
from .compare import Comparison, compare
from .judge import Again, record, taken
from .repeats import REPEATS, odd_ones
from .tally import Failure, Tally

Golden = Mapping[str, np.ndarray]
ROUNDS, MOST = 3, 2
"""Times that calls of several threads are made again, and in how many it must show before threads are blamed."""


def compared(
    called: Called, case: Case, golden: Golden, tally: Tally, again: Again | None = None, how: str = ""
) -> Comparison | None:
    """Compare a call in a form of its own and count what it names itself; None where there is nothing to compare.

    Whether wrong bytes count against the subject is for `to_blame` to say.
    """
    if not taken(called, case, tally, again, how):
        return None
    comparison = compare(case, golden, called.results)
    tally.calls += 1
    tally.compared += comparison.compared
    if called.finding:
        tally.fail(Failure(case, NO_LEVEL, called.words, called.finding, comparison.observed))
    return comparison


def wrong(called: Called, comparison: Comparison | None, tally: Tally) -> bool:
    """Whether bytes differ beyond the claimed level in a call that names no breach itself."""
    return comparison is not None and comparison.level > tally.claimed and not called.finding


def right(called: Called, case: Case, golden: Golden, tally: Tally) -> bool:
    """Whether a call was answered, and right at the claimed level."""
    return called.answered and compare(case, golden, called.results).level <= tally.claimed


def to_blame(
    subject: Subject,
    case: Case,
    golden: Golden,
    tally: Tally,
    seconds: float,
    form: Callable[[], Called],
    times: int = REPEATS,
) -> bool:
    """Whether a form of the call is to blame for wrong bytes that it gave once; if calls do not agree, they are flips.

    form: makes the call in the form once more.
    """
    if not steady(subject, case, golden, tally, seconds):
        return False
    calls = [form() for _ in range(times)]
    if not any(right(called, case, golden, tally) for called in calls):
        return True
    answered = [called for called in calls if called.answered]
    tally.repeat(case, len(answered), 1 + min(odd_ones(answered), len(answered) // 2))
    return False


def mostly(
    subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float, shows: Callable[[], bool]
) -> bool:
    """Whether calls beside others are to blame: alone every call is right, and what they showed comes again, mostly.

    shows: makes such calls once more and tells whether they show it. If they do not, it was a flip.
    """
    if not all(steady(subject, case, golden, tally, seconds) for _ in range(ROUNDS)):
        return False
    if sum(shows() for _ in range(ROUNDS)) >= MOST:
        return True
    tally.repeat(case, ROUNDS, 1)
    return False


def steady(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> bool:
    """Whether plain calls on a case are right and alike as often as they are made; counted like every plain call."""

    def again(other: Case) -> Called:
        return call(subject, other, seconds)

    first = again(case)
    if record(first, case, golden, tally, again) is not True:
        return False
    calls = [first, *repeated(subject, case, tally, seconds)]
    flips = odd_ones(calls)
    tally.repeat(case, len(calls) - 1, flips)
    return not flips and len(calls) == REPEATS


def repeated(subject: Subject, case: Case, tally: Tally, seconds: float) -> list[Called]:
    """Repeat a plain call and return the calls with results; one without is counted and the last."""
    calls: list[Called] = []
    for _ in range(REPEATS - 1):
        called = call(subject, case, seconds)
        if not taken(called, case, tally, None, ""):
            break
        calls.append(called)
    return calls


def breach(tally: Tally, case: Case, finding: str, words: str, seen: Comparison | None = None) -> None:
    """Count a breach of the calling contract, with the bytes that were seen where there are some."""
    tally.fail(Failure(case, NO_LEVEL, words, finding, seen.observed if seen else {}))
