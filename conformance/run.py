"""The run of `refnum check`: corners first, frozen vectors, enumerable domains, then sampled recipes.

Nothing stops a run but the user; what was not run, not compared or refused is written down as such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .case import variant
from .engine import Engine, new_tally
from .journal import journal
from .plan import RUN_LEVELS, Plan, Progress, Variant, variants
from .report import COMPLETE, Report
from .tally import Tally
from .verdict import Outcome

__all__ = ["RUN_LEVELS", "Plan", "Progress", "Variant", "close", "run", "variants"]


def run(
    plan: Plan, report: Report, progress: Progress | None = None, checkpoint: Callable[[Report], None] | None = None
) -> Report:
    """Run a plan and fill the report; on Ctrl-C the report stays partial, holds what was done, and returns.

    checkpoint: called with the report after every variant, so that a run that dies leaves what it had.
    """
    from .counterexample.failures import Presenter

    progress = progress or Progress()
    todo = variants(plan)
    progress.start(len(todo))
    presenter = Presenter(plan)
    with journal(plan) as book:
        try:
            for item in todo:
                progress.enter(variant(item.operation.name, item.profile, item.params))
                tallies = {subject.name: new_tally(plan, subject, item) for subject in item.subjects}
                try:
                    Engine(plan, item, tallies, report, progress, book).everything()
                except KeyboardInterrupt:
                    close(item, tallies, report, presenter, interrupted=True)
                    raise
                progress.leave(close(item, tallies, report, presenter))
                if checkpoint is not None:
                    checkpoint(report)
            report.status = COMPLETE
        except KeyboardInterrupt:
            pass
    return report


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
