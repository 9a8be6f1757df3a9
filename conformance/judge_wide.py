"""Wide domains judged where a subject's arrays are: made, run by the model and compared on the device (N18.6)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from . import device
from .calling.libraries import alive
from .case import Case
from .counterexample.crop import take_rows
from .domains import Domain
from .operation import run_golden
from .subject import Subject
from .tally import DomainCount, Failure
from .verdict import NO_LEVEL, Outcome

if TYPE_CHECKING:
    from .engine import Engine


def judge_wide(engine: Engine, domain: Domain, counts: dict[str, DomainCount]) -> None:
    """Judge the subjects that `counts` names on every part of a domain, on their device, and count."""
    for engine.number, part in enumerate(domain.parts(device.device_like())):
        subjects = [subject for subject in engine.active() if subject.name in counts]
        if not subjects:
            return
        golden = engine.golden(part.case)
        for subject in subjects:
            engine.book.note(subject.name, engine.number, there=True)
            start = time.perf_counter()
            held = None if golden is None else _one(engine, subject, domain, part.case, golden)
            counts[subject.name].add(held)
            engine.tallies[subject.name].seconds += time.perf_counter() - start


def _one(engine: Engine, subject: Subject, domain: Domain, case: Case, golden: dict[str, Any]) -> bool | None:
    """Judge on arrays of the device; what does not pass is judged again on the host, for its words."""
    tally = engine.tallies[subject.name]
    seen = device.judge_there(subject, case, golden, engine.plan.seconds)
    if seen.outcome is Outcome.PASS:
        tally.compared += device.elements_of(case, golden)
        return True
    if not alive(subject.arrays):  # nothing can be fetched from there any more: the case is made again
        tally.faults.append((seen.outcome, seen.words, domain.part(engine.number)))
        engine.lost(subject, tally)
        return None
    row = seen.records[0].index[0] if seen.records else 0
    for rows in (take_rows(case, row, row + 1), case):  # the row alone may be right: then all of them
        host = device.fetch(rows)
        held = engine.one(subject, host, run_golden(host))
        if held is not True:
            return held
    words = f"{seen.words} at first, and the same case gave the right bytes when it was judged again"
    tally.fail(Failure(host, NO_LEVEL, words, "not-deterministic"))
    return False
