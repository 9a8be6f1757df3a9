"""The parts of a variant's fields, each judged for every subject: exact numbers beside exact numbers, by the thousand.

Answers are compared with parts of one golden answer. A call whose bytes are not these, or that ended otherwise, is
judged again as a case of its own, so that failures, refusals and replays are those of any other structural case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...cases.case import Case
from ...cases.findings import Finding
from ...cases.layouts import OUT, stored_scales
from ...cases.levels import NO_LEVEL
from ...cases.operation import as_bits, outputs_of, plain_like
from ...cases.same_bytes import name_of, same
from ...cases.structure import Asked
from ...cases.structure.cutting import AT_ONCE, BEHIND, REFUSED, Field, Part
from ...cases.structure.fields import fields
from ...subjects.calls.call import Called, call
from ...subjects.calls.parts import call_parts
from ...subjects.subject import Subject, declines, takes_out
from ...verdicts.compare import dtypes_allowed
from ...verdicts.judge import record
from ...verdicts.refusals import refusal
from ...verdicts.repeats import same_results
from ...verdicts.tally import Failure, Tally
from .asking import Asking

ENOUGH = 24
"""Wrong parts of a variant after which a subject is asked no more of them."""
AGAIN = 16
"""Of so many parts in a form that a subject is known to refuse one is asked in it; all without what is refused."""
FOUND = {REFUSED: Finding.AFTER_REFUSAL, AT_ONCE: Finding.NOT_THREAD_SAFE,
         **dict.fromkeys(BEHIND, Finding.AFTER_ANOTHER)}  # fmt: skip
"""How a part is called -> what is found where it is right by itself, and wrong so whenever it is called so."""
WAVERS = "refused, and answered when it was called again"
Judged = Callable[[Subject, Asked, dict[str, Any]], bool]
"""(subject, row, golden outputs) -> whether a case held, judged and counted by itself."""


def ask(
    engine: Asking,
    key: tuple[str, str, dict[str, Any]],
    amount: str,
    names: set[str],
    cut: Callable[[Subject, Case], bool],
    judged: Judged,
) -> None:
    """Judge the subjects of these names on every part of a variant's fields.

    cut: whether a subject is asked no more, or not this case. judged: judges one part as a case of its own.
    """
    engine.book.enter(key, f"parts {amount}")
    for field in fields(*key, amount):
        subjects = [subject for subject in engine.active() if subject.name in names]
        if not subjects:
            return
        golden = engine.golden(field.case)
        if golden is None:
            continue
        like = plain_like(field.case)
        for subject in subjects:
            if not cut(subject, field.case):
                _ask(engine, subject, field, golden, like, judged)


def _ask(
    engine: Asking, subject: Subject, field: Field, golden: dict[str, Any], like: tuple[np.ndarray, ...], judged: Judged
) -> None:
    """Judge a subject on a field, one run of parts after the other."""
    tally = engine.tallies[subject.name]
    inside = engine.inside(subject, field.case, golden)
    if inside is None:
        return
    case, golden = inside
    declined, told = declines(subject, case), False
    allowed = {output.name: dtypes_allowed(output, golden[output.name], case) for output in outputs_of(case)}
    if OUT in case.params:
        allowed["scales"] = (stored_scales(case, golden["scales"]).dtype.name,)
    for first, parts in field.batches(takes_out(subject.operations[case.operation], case.operation)):
        if tally.stopped or tally.failing >= ENOUGH:
            return
        numbered = [(number, one) for number, part in enumerate(parts, first) for one in _taken(tally, part, number)]
        parts = tuple(part for _, part in numbered)
        start = time.perf_counter()

        def note(place: int, numbered: Sequence[tuple[int, Part]] = numbered) -> None:
            engine.number = numbered[place][0]
            engine.book.note(subject.name, engine.number)

        note(0)
        calls = call_parts(subject, case, field.cutting, parts, like, engine.plan.seconds, note)
        spent = time.perf_counter() - start
        tally.seconds += spent
        tally.coverage.seconds += spent
        for place, part in enumerate(parts):
            want = part.of(golden, field.cutting.outputs)
            if calls and right(calls[place], stored(case, want), allowed):
                _count(engine, subject, part, want)
                continue
            if calls and _refused(tally, part) and refusal(calls[place]):
                tally.coverage.add_row(part.row, False)
                continue
            if declined and calls and calls[place].declared:  # one part tells of all
                if told:
                    tally.coverage.add_row(part.row, False)
                    continue
                told = True
            before = tally.seconds
            note(place)
            company = partial(call_parts, subject, case, field.cutting, (part,), like, engine.plan.seconds)
            _closely(engine, subject, field, part, want, calls[place] if calls else None, company, judged)
            tally.coverage.seconds += tally.seconds - before
            if tally.stopped or tally.failing >= ENOUGH:
                return


def _taken(tally: Tally, part: Part, number: int) -> tuple[Part, ...]:
    """Return a part as it is; without levels of its form that were refused by themselves, which is counted; or both."""
    refused = _refused(tally, part)
    if not refused:
        return (part,)
    if number % AGAIN == 0:
        return part, part.without(refused)
    tally.coverage.add_row(part.row, False)
    return (part.without(refused),)


def _refused(tally: Tally, part: Part) -> list[str]:
    """Return the factors of a part's form whose level is known to be refused by itself."""
    known = tally.coverage.forms
    if not known:
        return []
    return [name for name, level in part.form.items() if not name.startswith("out") and f"{name} {level}" in known]


def stored(case: Case, want: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Return golden outputs as a call hands them out: scales in the layout of its case."""
    if OUT not in case.params:
        return want
    return {**want, "scales": as_bits(stored_scales(case, want["scales"]))}


def right(called: Called, want: Mapping[str, np.ndarray], allowed: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a call kept its contract and gave these bytes."""
    if called.words or called.finding or len(called.results) != len(want):
        return False
    pairs = zip(called.results, want.items(), strict=True)
    return all(name_of(result) in allowed[name] and same(result, array) for result, (name, array) in pairs)


def _count(engine: Asking, subject: Subject, part: Part, want: Mapping[str, np.ndarray]) -> None:
    """Count a part that was right."""
    tally = engine.tallies[subject.name]
    tally.calls += 1
    tally.structural += 1
    tally.compared += sum(array.size for array in want.values())
    tally.coverage.add_row(part.row, True)


def _closely(
    engine: Asking,
    subject: Subject,
    field: Field,
    part: Part,
    want: Mapping[str, np.ndarray],
    called: Called | None,
    company: Callable[[], list[Called]],
    judged: Judged,
) -> None:
    """Judge a part as a case of its own; where that is right, the call among others was wrong, and is recorded.

    company: makes the part's call again, behind the one before it.
    """
    case, tally = part.case(field.case, field.cutting), engine.tallies[subject.name]
    golden = engine.golden(case)
    if golden is None:
        return
    if not subject.inputs and not all(same(golden[name], array) for name, array in want.items()):
        engine.report.harness.append(f"the golden answer to {case} ({case.label}) is no part of a larger one's")
        return
    held = judged(subject, Asked(part.row, case, engine.number), golden)
    if not held or called is None or engine.judged_as is None:
        return
    case, golden = engine.judged_as
    if refusal(called):
        tally.fail(Failure(case, NO_LEVEL, f"{WAVERS}: {called.words}", Finding.NOT_DETERMINISTIC))
    elif tally.claimed:
        return
    elif part.calls in FOUND and called.answered and _again(company(), called):
        words = f"right by itself, wrong {part.calls}" + " with another call" * (part.calls == AT_ONCE)
        tally.fail(Failure(case, NO_LEVEL, words, FOUND[part.calls]))
    else:
        record(called, case, golden, tally, lambda other: call(subject, other, engine.plan.seconds))


def _again(calls: list[Called], called: Called) -> bool:
    """Whether a call that is made again answers the same bytes."""
    return len(calls) == 1 and calls[0].answered and same_results(called, calls[0])
