"""The engine of `refnum check`: corners first, then enumerable domains, then sampled recipes.

Golden outputs are computed once a case and every subject is judged against them. Nothing stops a run but the
user; what was not run, not compared or refused is written down as such.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import refnum
from refnum.errors import RefnumError

from . import golden as casts
from .case import Case, variant
from .journal import Journal, journal
from .judge import judge, probe
from .operation import OPERATIONS, Operation, run_golden
from .report import COMPLETE, Report
from .subject import Subject
from .tally import DomainCount, Tally
from .verdict import Outcome

RUN_LEVELS = ("smoke", "standard", "exhaustive")
PROBES = 4
"""Corner cases of a variant on which the calling contract is probed as well."""
COVERED_CHUNKS = 2
"""Cases of a domain in which coverpoints are counted; all of them would cost as much as the judging."""


@dataclass
class Plan:
    """What to run. profiles None means every profile that a subject claims.

    named: operations asked for by name; a subject that lacks one is reported as unsupported, not left out.
    cases: (operation, profile, params) -> cases that replace corners, domains and sampled cases.
    """

    subjects: list[Subject]
    operations: list[Operation]
    profiles: list[str] | None = None
    level: str = "standard"
    seed: int = 0
    examples: int = 50
    seconds: float = 60.0
    shown: int = 2
    save: bool = True
    named: frozenset[str] = frozenset()
    cases: Callable[[str, str, dict[str, Any]], Iterator[Case]] | None = None


@dataclass
class Progress:
    """Callbacks of a run; the default does nothing."""

    start: Callable[[int], None] = lambda variants: None
    enter: Callable[[str], None] = lambda name: None
    step: Callable[[Case], None] = lambda case: None
    leave: Callable[[list[dict[str, Any]]], None] = lambda results: None


@dataclass
class _Variant:
    operation: Operation
    profile: str
    params: dict[str, Any]
    subjects: list[Subject] = field(default_factory=list)


def variants(plan: Plan) -> list[_Variant]:
    """Return every (operation, profile, parameters) that a subject has or was asked for, with those subjects."""
    found = []
    for operation in plan.operations:
        owners = [subject for subject in plan.subjects
                  if operation.name in subject.operations or operation.name in plan.named]
        for profile in _profiles(plan, operation, owners):
            here = [subject for subject in owners if plan.profiles or not operation.profiled
                    or profile in subject.profiles_for(operation.name)]
            if not here:
                continue
            choices = list(operation.variants())
            for params in choices[:1] if plan.level == "smoke" else choices:
                found.append(_Variant(operation, profile, params, here))
    return found


def _profiles(plan: Plan, operation: Operation, owners: list[Subject]) -> list[str]:
    if not operation.profiled:
        return ["HOPPER"]
    if plan.profiles:
        return plan.profiles
    claimed = dict.fromkeys(profile for subject in owners for profile in subject.profiles_for(operation.name))
    return sorted(claimed, key=lambda name: (list(refnum.PROFILES).index(name), name))


def run(plan: Plan, report: Report, progress: Progress | None = None,
        checkpoint: Callable[[Report], None] | None = None) -> Report:
    """Run a plan and fill the report; on Ctrl-C the report stays partial, holds what was done, and returns.

    checkpoint: called with the report after every variant, so that a run that dies leaves what it had.
    """
    from .failures import Presenter

    progress = progress or Progress()
    todo = variants(plan)
    progress.start(len(todo))
    presenter = Presenter(plan)
    with journal(plan) as book:
        try:
            for item in todo:
                progress.enter(variant(item.operation.name, item.profile, item.params))
                tallies = {subject.name: _tally(plan, subject, item) for subject in item.subjects}
                try:
                    _run_variant(_Engine(plan, item, tallies, report, progress, book))
                except KeyboardInterrupt:
                    _close(item, tallies, report, presenter, interrupted=True)
                    raise
                progress.leave(_close(item, tallies, report, presenter))
                if checkpoint is not None:
                    checkpoint(report)
            report.status = COMPLETE
        except KeyboardInterrupt:
            pass
    return report


def _tally(plan: Plan, subject: Subject, item: _Variant) -> Tally:
    name = item.operation.name
    return Tally(subject.name, name, item.profile, item.params, claimed=subject.claimed_level(name),
                 refusal=subject.refuses(name, item.profile, item.params), smoke=plan.level == "smoke")


def _close(item: _Variant, tallies: dict[str, Tally], report: Report, presenter: Any,
           interrupted: bool = False) -> list[dict[str, Any]]:
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


def _run_variant(engine: _Engine) -> None:
    name = engine.item.operation.name
    if not hasattr(refnum, name) and not hasattr(casts, name):
        for tally in engine.tallies.values():
            tally.outcome, tally.words = Outcome.NOT_RUN, f"refnum has no {name}"
        return
    engine.corners()
    if engine.plan.cases is None:
        engine.vectors()
        engine.domains()
        engine.sampled()
    engine.finish()


@dataclass
class _Engine:
    """One variant's streams of cases, each judged for every subject that is still in."""

    plan: Plan
    item: _Variant
    tallies: dict[str, Tally]
    report: Report
    progress: Progress
    book: Journal
    judged: list[Subject] = field(default_factory=list)
    number: int = 0
    open_points: dict[str, set[str]] = field(default_factory=dict)
    was_compared: bool = False

    def __post_init__(self) -> None:
        from .coverpoints import expected

        self.judged = [subject for subject in self.item.subjects if not self.tallies[subject.name].refusal]
        if self.plan.cases is None:
            self.open_points = {subject.name: set(expected(*self._key)) for subject in self.judged}

    def finish(self) -> None:
        """Write down the coverpoints that no compared case has hit."""
        for name, points in self.open_points.items():
            if self.tallies[name].compared:
                self.tallies[name].holes = sorted(points)

    @property
    def _key(self) -> tuple[str, str, dict[str, Any]]:
        return self.item.operation.name, self.item.profile, self.item.params

    def active(self) -> list[Subject]:
        return [subject for subject in self.judged if not self.tallies[subject.name].stopped]

    def corners(self) -> None:
        from .corners import corner_cases

        probes = PROBES
        self.book.enter(self._key, "corners")
        for case, golden in self._golden((self.plan.cases or corner_cases)(*self._key)):
            for subject in self._cover(case, golden):
                tally = self.tallies[subject.name]
                tally.corners += self._one(subject, case, golden) is not None
                if probes and case.elements:
                    probe(subject, case, golden, tally, self.plan.seconds)
            probes -= bool(probes and case.elements)

    def vectors(self) -> None:
        """Judge on the frozen vectors; one that the golden model no longer agrees with is the harness's fault."""
        from .frozen import frozen_cases

        self.book.enter(self._key, "vectors")
        frozen: list[dict[str, Any]] = []

        def cases() -> Iterator[Case]:
            for case, outputs in frozen_cases(*self._key):
                frozen[:] = [outputs]
                yield case

        for case, golden in self._golden(cases()):
            if not all(np.array_equal(golden[name], array) for name, array in frozen[0].items()):
                self.report.harness.append(f"the golden model gives other bytes than the frozen {case.label}")
            for subject in self._cover(case, golden):
                self.tallies[subject.name].vectors += self._one(subject, case, golden) is not None

    def domains(self) -> None:
        from .domains import domains_for

        if self.plan.level == "smoke":
            return
        for domain in domains_for(*self._key, self.plan.level):
            counts = {s.name: DomainCount(domain.name, domain.size, domain.how) for s in self.active()}
            for name, counted in counts.items():
                self.tallies[name].domains.append(counted)
            self.book.enter(self._key, domain.name)
            for case, golden in self._golden(domain.cases()):
                for subject in self._cover(case, golden, self.number < COVERED_CHUNKS):
                    counted = counts[subject.name]
                    held = self._one(subject, case, golden)
                    counted.calls += 1
                    counted.missed += held is None
                    counted.wrong += held is False
            for subject in self.active():
                counted = counts[subject.name]
                counted.complete = counted.calls > 0 and not counted.missed

    def sampled(self) -> None:
        from .recipes import sampled_cases

        self.book.enter(self._key, "sampled")
        examples = min(self.plan.examples, 5) if self.plan.level == "smoke" else self.plan.examples
        for case, golden in self._golden(sampled_cases(*self._key, self.plan.seed, examples)):
            for subject in self._cover(case, golden):
                self.tallies[subject.name].sampled += self._one(subject, case, golden) is not None

    def _cover(self, case: Case, golden: dict[str, Any], counted: bool = True) -> Iterator[Subject]:
        """Yield the subjects to judge on a case; after each that was compared, close the coverpoints it hit."""
        from .coverpoints import count

        waiting = counted and any(self.open_points.get(subject.name) for subject in self.active())
        hit = {name for name, times in count(case, golden).items() if times} if waiting else set()
        for subject in self.active():
            self.was_compared = False
            self.book.note(subject.name, self.number)
            yield subject
            if self.was_compared and subject.name in self.open_points:
                self.open_points[subject.name] -= hit

    def _one(self, subject: Subject, case: Case, golden: dict[str, Any]) -> bool | None:
        tally = self.tallies[subject.name]
        start = time.perf_counter()
        held = judge(subject, case, golden, tally, self.plan.seconds)
        tally.seconds += time.perf_counter() - start
        self.was_compared = held is not None
        return held

    def _golden(self, cases: Iterator[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
        """Yield each case with its golden outputs; a case the golden model refuses is the harness's own fault."""
        for self.number, case in enumerate(cases):
            if not self.active():
                return
            self.progress.step(case)
            try:
                golden = run_golden(case)
            except Exception as error:  # a case the model cannot take is reported, and the run goes on
                kind = "refused" if isinstance(error, RefnumError) else f"failed ({type(error).__name__}) on"
                self.report.harness.append(f"the golden model {kind} {case} ({case.label}): {error}")
                continue
            yield case, golden


assert set(RUN_LEVELS) >= {"standard"} and OPERATIONS
