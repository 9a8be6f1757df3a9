"""Calls right behind a call of another variant: each subject is judged on the second one alone.

What the first one gives is for the other variant's own run to judge.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...cases.case import FORM, variant
from ...cases.levels import Outcome
from ...cases.structure.turns import SPECIAL, cases_in_turn
from ...subjects.calls.call import call
from ...subjects.layout_variants import lacking
from . import structure
from .asking import Asking
from .journal import IN_TURN

SECONDS = 30
"""Seconds of a subject's calls behind another variant after which no more are made: one may compile for each shape."""


def ask(engine: Asking, key: tuple[str, str, dict[str, Any]]) -> None:
    """Judge every subject behind each other variant that it has and that is asked for; none at level smoke."""
    if engine.plan.level == "smoke":
        return
    engine.book.enter(key, IN_TURN)
    before = {subject.name: engine.tallies[subject.name].seconds for subject in engine.judged}

    def late(name: str) -> bool:
        return engine.tallies[name].seconds - before[name] > SECONDS

    for number, (other, case) in enumerate(cases_in_turn(*key)):
        if engine.plan.profiles and other.profile not in engine.plan.profiles:
            continue
        engine.number = 2 * number + 1
        kept = SPECIAL.union(engine.item.params)
        params = {name: level for name, level in other.params.items() if name in kept}
        behind = variant(other.operation, other.profile, params)
        without = {
            subject.name
            for subject in engine.judged
            if late(subject.name)
            or (subject.name, behind) in engine.plan.unfit
            or lacking(subject, engine.item.operation, params)
            or subject.refuses(other.operation, other.profile, params)
        }
        golden = engine.golden(case) if any(one.name not in without for one in engine.active()) else None
        if golden is None:
            continue
        for subject in engine.cover(case, golden, False, but=without):
            engine.book.note(subject.name, engine.number - 1)
            if engine.watched(subject, partial(call, subject, other, engine.plan.seconds)).outcome is not Outcome.PASS:
                engine.plan.unfit.add((subject.name, behind))
            engine.book.note(subject.name, engine.number)
            if case.params.get(FORM):
                structure.called_in_form(engine, subject, case, golden, other)
            else:
                engine.one(subject, case, golden, other)
    for name in filter(late, before):
        engine.tallies[name].left_out.append(f"calls behind another variant beyond {SECONDS} seconds")
