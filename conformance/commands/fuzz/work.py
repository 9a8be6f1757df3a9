"""The tasks of a worker: judge a shard, confirm a finding in a new process, or shrink a finding.

Every function returns JSON values. A result's digest covers what must be equal wherever the shard runs: which cases
ran, what was compared, what was wrong and the golden bytes; not times, devices or words.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from ...cases.levels import Outcome
from ...cases.recipes.recipe import Recipe
from ...cases.structure.levels import Levels
from ...verdicts.judge_worker import RecipeJudge
from .confirm import confirm, probe, shrink
from .context import FATAL, Tell, WorkerContext
from .shards import simple
from .worker_process import WARM

KEPT = 4
"""Failing cases of a shard that are reported one by one; the rest are counted."""


def shard(context: WorkerContext, task: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Judge the cases of a shard in order, up to the first fault, or up to one that is known.

    task["fault"]: {"number", "outcome", "words"} of a confirmed fault: that case is not run again, nor are those
    after it.
    """
    start = time.perf_counter()
    judge = RecipeJudge(context.subject(task["target"]), context.spec.timeout, context.spec.elements)
    known = task.get("fault")
    tally = ShardTally(known)
    for number, recipe in enumerate(context.recipes(task)):
        if known and number >= known["number"]:
            break
        if task["target"] not in context.warm:
            _warm_up(context, task["target"], recipe, number, tell)
        tell(number)
        tally.take(number, recipe, judge.judge(recipe, number))
        if tally.fault:
            break
    return tally.result(time.perf_counter() - start)


def _warm_up(context: WorkerContext, target: str, recipe: Recipe | Levels, number: int, tell: Tell) -> None:
    """Judge a block of zeros without counting it, with time to compile, so that compilation is no hang."""
    context.warm.add(target)
    if context.targets[target].device == "gpu":
        tell(number, True)
        seconds = context.spec.timeout + WARM / 2
        RecipeJudge(context.subject(target), seconds, context.spec.elements).judge(simple(recipe))


TASKS = {"shard": shard, "confirm": confirm, "shrink": shrink, "probe": probe}
"""Kind of task -> the function that does it; it calls tell(number) before each case."""


class ShardTally:
    """The count of one shard."""

    def __init__(self, fault: Mapping[str, Any] | None = None) -> None:
        self.state = hashlib.sha256()
        self.fault: dict[str, Any] | None = None
        self.known, self.dead = fault, False
        self.cases = self.compared = self.failing = self.unsupported = self.undeclared = 0
        self.failures: list[dict[str, Any]] = []
        self.points: dict[str, list[int]] = {}  # hits, elements and number of the smallest case, cases, failing ones
        self.classes: dict[str, list[int]] = {}
        self.refusal = ""  # the words of the first refusal that was not declared

    def take(self, number: int, recipe: Recipe | Levels, seen: Any) -> None:
        """Add one case."""
        mark = [number, recipe.to_json(), seen.outcome, seen.compared, seen.finding, seen.print,
                sorted(seen.points.items())]  # fmt: skip
        if seen.outcome in FATAL:
            self.dead = seen.dead
            self.fault = {"number": number, "outcome": str(seen.outcome), "words": seen.words,
                          "recipe": recipe.to_json()}  # fmt: skip
            return
        self.state.update(json.dumps(mark, separators=(",", ":")).encode())
        if seen.outcome is Outcome.UNSUPPORTED:
            self.unsupported += 1
            self.undeclared += seen.undeclared
            self.refusal = self.refusal or (seen.words if seen.undeclared else "")
            return
        self.cases += 1
        self.compared += seen.compared
        if seen.outcome is not Outcome.PASS:
            self.failing += 1
            if len(self.failures) < KEPT:
                self.failures.append({"number": number, "kind": "golden" if seen.finding == "golden" else "mismatch",
                                      "level": seen.level, "finding": seen.finding, "words": seen.words,
                                      "recipe": recipe.to_json()})  # fmt: skip
        for name, times in seen.points.items():
            kept = self.points.setdefault(name, [0, seen.elements, number, 0, 0])
            kept[0] += times
            kept[3] += 1
            kept[4] += seen.outcome is not Outcome.PASS
            if seen.elements < kept[1]:
                kept[1:3] = [seen.elements, number]
        for letter, (blocks, wrong, level) in seen.classes.items():
            own = self.classes.setdefault(letter, [0, 0, 0])
            self.classes[letter] = [own[0] + blocks, own[1] + wrong, max(own[2], level)]

    def result(self, seconds: float) -> dict[str, Any]:
        """Return the result record of the shard."""
        fault = self.fault or (dict(self.known) if self.known else None)
        if fault:
            self.state.update(json.dumps(["fault", fault["number"], fault["outcome"]]).encode())
        return {
            "cases": self.cases, "compared": self.compared, "failing": self.failing, "unsupported": self.unsupported,
            "failures": self.failures, "fault": fault, "points": self.points, "classes": self.classes,
            "undeclared": self.undeclared, "refusal": self.refusal, "seconds": round(seconds, 4),
            "digest": self.state.hexdigest(), "dead": self.dead,
        }  # fmt: skip
