"""What a subject that was left alone, after faults say, was not asked: noted in its tally, stream by stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from ...cases.case import Case
from .asking import Asking


def stream(engine: Asking, what: str, cases: Iterator[Case], judge: Callable[[Iterator[Case]], None]) -> None:
    """Judge a stream of cases, and note how many of them each subject that is left alone was not asked."""
    engine.asked, engine.number = Counter(), -1
    judge(cases)
    alone = left_alone(engine)
    if not alone:
        return
    total = engine.number + 1 + sum(1 for _ in cases)
    for name in alone:
        missed = total - engine.asked[name]
        if missed > 0:
            engine.tallies[name].not_asked.append(f"{missed} of {total} {what}")


def note(engine: Asking, what: str, names: Collection[str] | None = None) -> None:
    """Note a part of a run that subjects left alone, of these names, were not asked or not to its end."""
    for name in left_alone(engine):
        if names is None or name in names:
            engine.tallies[name].not_asked.append(what)


def left_alone(engine: Asking) -> list[str]:
    """Return the names of the subjects that are judged on a variant and asked no more."""
    active = {subject.name for subject in engine.active()}
    return [subject.name for subject in engine.judged if subject.name not in active]


def domains(engine: Asking, names: Iterable[str]) -> None:
    """Note the domains that subjects left alone were not asked to their end."""
    every = list(names)
    for name in left_alone(engine):
        done = {count.name for count in engine.tallies[name].domains if count.complete}
        missed = [domain for domain in every if domain not in done]
        if missed:
            engine.tallies[name].not_asked.append(f"{len(missed)} of {len(every)} domains ({', '.join(missed)})")
