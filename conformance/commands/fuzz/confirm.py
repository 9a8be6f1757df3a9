"""Confirm a finding in a fresh process and make it small; faults and hangs are reproduced in a separate process.

Findings are confirmed by the CPU model on cases expanded by NumPy, so that a device that runs the model wrongly is
distinguished from a wrong kernel.
"""

from __future__ import annotations

import math
import os
import pickle
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from refnum.errors import RefnumError

from ...cases.case import Case, plain
from ...cases.contracts import brought_inside, outside
from ...cases.coverpoints import count
from ...cases.findings import Finding
from ...cases.levels import NO_LEVEL, Outcome, failed_name
from ...cases.operation import run_golden
from ...cases.recipes.distributions import distributions_for
from ...cases.recipes.drawing import EDIT_BITS
from ...cases.recipes.inputs import expand
from ...cases.recipes.recipe import Recipe
from ...cases.structure.levels import Levels, case_of
from ...mismatches import replay
from ...mismatches.failures import REPEATS, Presenter, shows
from ...mismatches.shrink import Blocks, Rows, Search
from ...mismatches.shrink import shrink as smaller_case
from ...subjects.arrays import alive
from ...subjects.calls.call import call
from ...subjects.subject import Subject
from ...verdicts.compare import compare
from ...verdicts.device import device_like, judged_on_device
from ...verdicts.judge_worker import RecipeJudge, case_for, fingerprint
from ...verdicts.structural import cases_for
from ...verdicts.tally import Failure
from ..check.plan import Plan
from .context import FATAL, Tell, WorkerContext
from .halve import ENOUGH, piece
from .shards import address_of, recipe_of, simple
from .worker_process import HUNG, WARM, Event, WorkerProcess

CALLS, SECONDS = 300, 60.0
DEADLY_CALLS, DEADLY_SECONDS = 60, 30.0
"""Calls and seconds for cases that end their process: each such case costs a new process."""
HANG, PACE, SLACK = 0.5, 1e7, 0.5
"""A case made smaller counts as hung after these seconds and its elements over this pace; all is compiled by then."""
FINDINGS = {Outcome.TIMEOUT: Finding.HUNG, Outcome.FAULT: Finding.DIED, Outcome.COMPILE_ERROR: Finding.RAISED}


def confirm(context: WorkerContext, task: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Return whether a finding shows again: {"shown", "of", "outcome", "words", "golden"}.

    golden: the device's model run and the CPU model agree on the case (always true for a host subject).
    """
    subject, recipe = context.subject(task["target"]), _recipe(context, task)
    tell(task["case"])
    if task["suspicion"]["kind"] == "fault":
        with Trial(context, subject, task["target"], context.spec.timeout) as trial:
            trial.warm = case_for(subject, simple(recipe)) if subject.arrays == "cupy" else None
            outcome, words = trial.outcome(case_for(subject, recipe))
        fatal = outcome in FATAL
        return {"shown": int(fatal), "of": 1, "outcome": str(outcome), "words": words, "golden": True}
    if task["suspicion"]["kind"] == "golden":
        return _golden_again(subject, recipe)
    for case in _views(subject, recipe, task, tell, context.spec.timeout):
        shown = 0
        for _ in range(REPEATS):
            tell(task["case"])
            shown += shows(subject, case, _failure(task, case), context.spec.timeout)
        if shown:
            break
    agrees, words = True, task["suspicion"]["words"]
    if not shown and judged_on_device(subject, recipe.operation):
        seen = RecipeJudge(subject, context.spec.timeout).judge(recipe)
        agrees = seen.outcome is not Outcome.MISMATCH or seen.print == fingerprint(run_golden(case))
        words = words if agrees else "the model's run on the device gives other bytes than the CPU model"
    return {"shown": shown, "of": REPEATS, "outcome": str(Outcome.MISMATCH), "words": words, "golden": agrees}


def _views(
    subject: Subject, recipe: Recipe | Levels, task: Mapping[str, Any], tell: Tell, seconds: float
) -> Iterator[Case]:
    """Yield the part of a large case that fails too, if there is one, then the whole case; of levels also the plain."""
    tell(task["case"])
    bytes_judged = subject.arrays in ("numpy", "cupy") and subject.claimed_level(recipe.operation) == 0
    bytes_judged &= subject.remote is None and not subject.inputs
    if isinstance(recipe, Levels):
        yield from cases_for(subject, recipe)
        return
    if bytes_judged and math.prod(recipe.shape) > ENOUGH and not task["suspicion"]["finding"]:
        like = device_like() if judged_on_device(subject, recipe.operation) else np.empty(0, np.uint8)
        small = piece(subject, recipe, like, seconds)
        if small is not None:
            yield small
        tell(task["case"])
    yield case_for(subject, recipe)


def _golden_again(subject: Subject, recipe: Recipe | Levels) -> dict[str, Any]:
    """Run the CPU model again on a case that a model run could not take."""
    try:
        run_golden(case_for(subject, recipe))
    except (RefnumError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return {"shown": 1, "of": 1, "outcome": str(Outcome.NOT_RUN), "words": str(error)[:300], "golden": False}
    words = "the model failed in the worker and not in another process"
    return {"shown": 0, "of": 1, "outcome": str(Outcome.NOT_RUN), "words": words, "golden": True}


def shrink(context: WorkerContext, task: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Return {"record", "document", "points"} of a confirmed finding, made as small as the budget allows."""
    subject, recipe = context.subject(task["target"]), _recipe(context, task)
    if task["suspicion"]["kind"] == "fault":
        return _smaller_fault(context, task, subject, case_for(subject, recipe), recipe, tell)

    def fails(case: Case) -> bool:
        tell(task["case"])
        return shows(subject, case, _failure(task, case), context.spec.timeout)

    for original in _views(subject, recipe, task, tell, context.spec.timeout):
        if fails(original):
            break
    start = original
    if original.elements > ENOUGH:
        search = Search(original, fails, CALLS, SECONDS)
        Rows().run(search)
        Blocks().run(search)
        start = search.best
    presenter = Capture(Plan([subject], [], seconds=context.spec.timeout, save=True))
    record = presenter.record(subject, _observed(subject, _failure(task, start), context.spec.timeout))
    assert presenter.document is not None
    record["shrunk_from"] = f"{recipe}; {case_of(recipe).elements} elements"
    presenter.document["recipe"] = recipe.to_json()
    small = replay._rebuild(presenter.document, Path("this finding")).case
    hit = [name for name, times in count(small, run_golden(small)).items() if times]
    return _delivered(task, subject, record, presenter.document, hit)


def _observed(subject: Subject, failure: Failure, seconds: float) -> Failure:
    """Return the failure with the subject's results and the level they fail; a device reports only differing bytes."""
    results = call(subject, failure.case, seconds).results
    if not results:
        return failure
    verdict = compare(failure.case, run_golden(failure.case), results)
    level = failure.level if failure.finding else max(failure.level, verdict.level)
    return replace(failure, observed=verdict.observed, level=level)


class Capture(Presenter):
    """A presenter that keeps the replay document instead of writing a file."""

    document: dict[str, Any] | None = None

    def _save(self, document: dict[str, Any]) -> tuple[Any, str]:
        self.document = document
        return None, ""


def _delivered(
    task: Mapping[str, Any], subject: Subject, record: dict[str, Any], document: dict[str, Any], hit: list[str]
) -> dict[str, Any]:
    path = Path(task["folder"]) / f"{document['id']}.json"
    record.update(replay=str(path), command=replay.command(path, subject))
    return {"record": record, "document": document, "points": hit}


def _smaller_fault(
    context: WorkerContext,
    task: Mapping[str, Any],
    subject: Subject,
    original: Case,
    recipe: Recipe | Levels,
    tell: Tell,
) -> dict[str, Any]:
    wanted = Outcome(task["suspicion"]["outcome"] or "fault")
    with Trial(context, subject, task["target"], HANG) as trial:

        def fails(case: Case) -> bool:
            tell(task["case"])
            if outside(case, subject.inputs):
                return False
            run_golden(case)  # a case that the model refuses proves nothing about a kernel
            return trial.outcome(case)[0] == wanted

        tried = [] if isinstance(recipe, Levels) else _blocks(recipe)
        blocks = [brought_inside(block, subject.inputs) for block in tried]
        trial.warm = blocks[0] if blocks else original
        best = next((block for block in blocks if fails(block)), None)
        if best is None:
            best = smaller_case(original, fails, DEADLY_CALLS, DEADLY_SECONDS)
        outcome, words = trial.outcome(best)
    finding = FINDINGS.get(wanted, Finding.RAISED) if trial.killed else Finding.RAISED
    failure = Failure(best, NO_LEVEL, words, finding)
    golden = run_golden(best)
    document = replay.document(best, golden, {}, subject, failure, original)
    record = {
        "id": document["id"], "fails": failed_name(NO_LEVEL, best.operation), "finding": finding, "words": words,
        "bug_classes": [{"id": finding.upper().replace("-", "_"), "words": words}], "label": original.label,
        "shrunk": best is not original, "shrunk_from": _size(original), "case": _size(best),
        "params": plain(best.params), "reproduced": f"{int(outcome == wanted)} of 1", "page": {},
    }  # fmt: skip
    return _delivered(task, subject, record, document, [name for name, times in count(best, golden).items() if times])


def _blocks(recipe: Recipe) -> list[Case]:
    """Return single blocks of the variant to try before a search: zeros, and zeros with one special value."""
    if "base" in distributions_for(recipe.operation)["zero"].ranges:
        odd = [simple(recipe, base) for base in (127, 254, 0)]
    else:
        odd = [simple(recipe)]
    edits = [simple(recipe, edits=((0, 0, bits),)) for bits in EDIT_BITS[1:]]
    blocks = [expand(each) for each in (*odd, *edits)]
    poisoned = [block.with_inputs({"scales": np.full_like(block.inputs["scales"], 255)})
                for block in blocks[:1] if "scales" in block.inputs]  # fmt: skip
    return blocks[:1] + poisoned + blocks[1:]


def _size(case: Case) -> str:
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in case.inputs.items())
    return f"{shapes}; {case.elements} elements"


def _recipe(context: WorkerContext, task: Mapping[str, Any]) -> Recipe | Levels:
    address = address_of(task)
    return recipe_of(context.spec, context.targets[address.target], address, int(task["case"]))


def _failure(task: Mapping[str, Any], case: Case) -> Failure:
    suspicion = task["suspicion"]
    return Failure(case, max(1, int(suspicion["level"])), suspicion["words"], suspicion["finding"])


class Trial:
    """Runs cases in a separate process, which is restarted when a case kills it."""

    def __init__(self, context: WorkerContext, subject: Subject, target: str, timeout: float) -> None:
        self.subject, self.target, self.seconds = subject, target, timeout
        self.limit = context.spec.timeout * 1.5 + 2.0
        self.worker = WorkerProcess(context.spec, timeout=timeout)
        self.killed = False
        self.warm: Case | None = None  # a case that does no harm, on which a new process compiles what it needs

    def _run(self, case: Case, limit: float) -> Event:
        handle, name = tempfile.mkstemp(prefix="refnum-case-")
        try:
            with os.fdopen(handle, "wb") as stream:
                pickle.dump(case, stream)
            task = {"kind": "probe", "target": self.target, "path": name, "seconds": limit / 1.5, "limit": limit}
            events = self.worker.run(task)
        finally:
            os.unlink(name)
        return next(event for event in events if event.what in ("done", "lost"))

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.close()

    def outcome(self, case: Case) -> tuple[Outcome, str]:
        """Return the outcome of a case, and a sentence."""
        fresh = not (self.worker.key and self.worker.served)
        if fresh and self.warm is not None:
            self._run(self.warm, self.limit + WARM)
        allowed = max(self.seconds, SLACK) + case.elements / PACE
        last = self._run(case, self.limit if fresh and self.warm is None else 1.5 * allowed + SLACK)
        self.killed = last.what == "lost"
        if last.what == "lost":
            return (Outcome.TIMEOUT if last.why == HUNG else Outcome.FAULT), last.words
        self.killed = last.result["lost"]
        if last.result["dead"]:  # a context that is dead takes every later case with it
            self.killed = True
            self.worker.kill()
        return Outcome(last.result["outcome"]), last.result["words"]


def probe(context: WorkerContext, task: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Call a subject on a case from a file; this process may not survive it."""
    with open(task["path"], "rb") as stream:
        case = pickle.load(stream)  # written by the process that started this one
    subject = context.subject(task["target"])
    tell(0)
    called = call(subject, case, float(task["seconds"]))
    dead = subject.remote is None and not alive(subject.arrays)
    return {"outcome": str(called.outcome), "words": called.words, "lost": called.lost, "dead": dead}
