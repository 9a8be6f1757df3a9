"""The run of `refnum check`: the frozen vectors of all variants, then each one's corners, domains and sampled recipes.

Vectors take milliseconds and show most bugs, so that a wrong kernel is told within the first seconds, whichever of its
profiles is wrong. Nothing stops a run but the user; what was not run, not compared or refused is written down as such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...cases.levels import Outcome
from ...mismatches.failures import Presenter
from ...reports.report import COMPLETE, Report
from ...verdicts.tally import Tally
from .engine import Engine
from .journal import Journal, journal
from .plan import RUN_LEVELS, Plan, Progress, Variant, new_tally, variants

__all__ = ["RUN_LEVELS", "Plan", "Progress", "Variant", "close", "run", "variants"]


def run(
    plan: Plan, report: Report, progress: Progress | None = None, checkpoint: Callable[[Report], None] | None = None
) -> Report:
    """Run a plan and fill the report; on Ctrl-C the report stays partial, holds what was done, and returns.

    checkpoint: called with the report at the start and after every variant, so that a run that dies leaves what it had.
    """
    progress = progress or Progress()
    todo = variants(plan)
    progress.start(len(todo))
    presenter = Presenter(plan)
    with journal(plan) as book:
        waiting: list[Engine] = []
        at: Engine | None = None
        try:
            if checkpoint is not None:
                checkpoint(report)  # a run that dies among the vectors leaves a report that says so
            for item in todo:
                at = _engine(plan, item, report, progress, book)
                waiting.append(at)
                progress.enter(at.name)
                at.look()
                for subject in item.subjects:
                    presenter.tell(subject, at.tallies[subject.name], progress.wrong)
            while waiting:
                at = waiting[0]
                progress.enter(at.name)
                at.rest()
                progress.leave(close(at.item, at.tallies, report, presenter))
                waiting.pop(0)
                if checkpoint is not None:
                    checkpoint(report)
            report.status = COMPLETE
        except KeyboardInterrupt:
            closed = {result["variant"] for result in report.results}  # it may come while the last is told of
            for engine in waiting:
                if engine.name not in closed and (engine is at or engine.begun):
                    close(engine.item, engine.tallies, report, presenter, interrupted=True)
    return report


def _engine(plan: Plan, item: Variant, report: Report, progress: Progress, book: Journal) -> Engine:
    tallies = {subject.name: new_tally(plan, subject, item) for subject in item.subjects}
    return Engine(plan, item, tallies, report, progress, book)


def close(
    item: Variant, tallies: dict[str, Tally], report: Report, presenter: Any, interrupted: bool = False
) -> list[dict[str, Any]]:
    """Add the results of a variant to the report and return them; interrupted: nothing of it is a pass."""
    results = []
    for subject in item.subjects:
        tally = tallies[subject.name]
        if interrupted and not tally.compared and not tally.refusal:
            tally.outcome, tally.words = Outcome.NOT_RUN, "the run was cut short before anything was compared"
        elif interrupted and tally.close() is Outcome.PASS:
            tally.outcome, tally.words = Outcome.NOT_VERIFIED, f"the run was cut short after {tally.words}"
        results.append(presenter.result(subject, tally, quick=interrupted))
    report.results += results
    return results
