"""What a worker does with a task: judge a shard, confirm a finding in a fresh process, or make it small.

Every function returns JSON values. A result's digest covers what must be equal wherever the shard runs: which cases
ran, what was compared, what was wrong and the golden bytes; not times, devices or words.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

from ..choose import choose
from ..environment import model_digest
from ..recipes.recipe import Recipe
from ..subject import Subject
from ..verdict import Outcome
from .bench import Bench
from .cell import WARM
from .errors import WorkerError
from .shards import address_of, recipes_of, simple
from .spec import Spec

KEPT = 4
"""Failing cases of a shard that are reported one by one; the rest are counted."""
FATAL = frozenset({Outcome.FAULT, Outcome.TIMEOUT, Outcome.COMPILE_ERROR})


class Tell(Protocol):
    """Says which case begins; warming: it is the first of its target here, whose call may compile for long."""

    def __call__(self, number: int, warming: bool = False) -> None:
        """Say it."""


class Office:
    """The subjects of a campaign as this process has them, and the benches that judge them."""

    def __init__(self, spec: Spec) -> None:
        if spec.model != model_digest():
            raise WorkerError(f"This machine has golden model {model_digest()}; the campaign has {spec.model}.")
        self.spec = spec
        self.targets = {target.name: target for target in spec.targets}
        chosen = choose(list(spec.subjects))
        self.subjects: dict[str, Subject] = {subject.name: subject for subject in chosen.usable}
        self.reasons = {subject.name: why for subject, why in chosen.unusable}
        self.warm: set[str] = set()

    def subject(self, target: str) -> Subject:
        """Return the subject of a target; WorkerError when it cannot be used here."""
        name = self.targets[target].subject
        if name not in self.subjects:
            raise WorkerError(f"{name} cannot be used here: {self.reasons.get(name, 'it is not installed')}.")
        return self.subjects[name]

    def do(self, task: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """Do a task of any kind; tell(number) is called before each case."""
        if task["kind"] == "shard":
            return self.shard(task, tell)
        from . import confirm

        return {"confirm": confirm.confirm, "shrink": confirm.shrink, "probe": confirm.probe}[task["kind"]](
            self, task, tell
        )

    def recipes(self, task: Mapping[str, Any]) -> list[Recipe]:
        """Return the recipes of a task's shard."""
        address = address_of(task)
        return recipes_of(self.spec, self.targets[address.target], address)

    def shard(self, task: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """Judge the cases of a shard in order, up to the first fault, or up to one that is known.

        task["fault"]: {"number", "outcome", "words"} of a confirmed fault: that case is not run again, nor are those
        after it.
        """
        start = time.perf_counter()
        bench = Bench(self.subject(task["target"]), self.spec.timeout, self.spec.elements)
        known = task.get("fault")
        tally = ShardTally(known)
        for number, recipe in enumerate(self.recipes(task)):
            if known and number >= known["number"]:
                break
            if task["target"] not in self.warm:
                self._warm_up(task["target"], recipe, number, tell)
            tell(number)
            tally.take(number, recipe, bench.judge(recipe, number))
            if tally.fault:
                break
        return tally.result(time.perf_counter() - start)

    def _warm_up(self, target: str, recipe: Recipe, number: int, tell: Tell) -> None:
        """Judge a block of zeros for nothing, with time to compile, so that no compiler counts as a hang."""
        self.warm.add(target)
        if self.targets[target].device == "gpu":
            tell(number, True)
            Bench(self.subject(target), self.spec.timeout + WARM / 2, self.spec.elements).judge(simple(recipe))


class ShardTally:
    """The count of one shard."""

    def __init__(self, fault: Mapping[str, Any] | None = None) -> None:
        self.state = hashlib.sha256()
        self.fault: dict[str, Any] | None = None
        self.known, self.dead = fault, False
        self.cases = self.compared = self.failing = self.unsupported = 0
        self.failures: list[dict[str, Any]] = []
        self.points: dict[str, list[int]] = {}  # hits, elements and number of the smallest case, cases, failing ones
        self.classes: dict[str, list[int]] = {}
        self.refusals: dict[str, int] = {}

    def take(self, number: int, recipe: Recipe, seen: Any) -> None:
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
            self.refusals[seen.words] = self.refusals.get(seen.words, 0) + 1
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
            "refusals": self.refusals, "seconds": round(seconds, 4), "digest": self.state.hexdigest(),
            "dead": self.dead,
        }  # fmt: skip
