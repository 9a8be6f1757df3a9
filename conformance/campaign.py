"""An open-ended run of sampled cases, round after round with a new seed, until time is up: `refnum fuzz`.

A round takes every variant once, so that a campaign of any length has seen all of them. A variant on which every
subject has failed is left alone: its counterexample is found, and time goes to the others.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from .case import variant
from .engine import Engine, new_tally
from .failures import Presenter
from .journal import journal
from .plan import Plan, Progress, variants
from .report import COMPLETE, Report
from .run import close


def campaign(
    plan: Plan,
    report: Report,
    seconds: float,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Report:
    """Judge sampled cases for about some seconds (one round at least) and fill the report.

    Round r uses seed plan.seed + r, so that a campaign is repeated by its seed and continued by a later one.
    Ctrl-C ends it early: the report is then partial.
    """
    progress = progress or Progress()
    presenter = Presenter(plan)
    end = clock() + seconds
    with journal(plan) as book:
        engines = [
            Engine(plan, item, {s.name: new_tally(plan, s, item) for s in item.subjects}, report, progress, book)
            for item in variants(plan)
        ]
        progress.start(len(engines))
        interrupted = False
        try:
            for number in itertools.count():
                for engine in (engine for engine in engines if _open(engine)):
                    item = engine.item
                    progress.enter(f"round {number} {variant(item.operation.name, item.profile, item.params)}")
                    engine.sampled(plan.seed + number)
                if clock() >= end or not any(map(_open, engines)):
                    break
        except KeyboardInterrupt:
            interrupted = True
        for engine in engines:
            engine.finish()
            progress.leave(close(engine.item, engine.tallies, report, presenter))
        report.status = report.status if interrupted else COMPLETE
    return report


def _open(engine: Engine) -> bool:
    """Whether a subject is left on this variant that has not failed yet."""
    return engine.known() and any(not engine.tallies[s.name].failing for s in engine.active())
