"""The streams of cases of one variant, each judged for every subject that is still in.

Golden outputs are computed once a case. What was not compared, refused or wrong is counted in the tallies.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

import refnum
from refnum.errors import RefnumError

from ...cases.case import Case
from ...cases.contracts import brought_inside, contract_words, outside
from ...cases.corners import corner_cases
from ...cases.coverpoints import count, expected
from ...cases.domains import Domain, domains_for
from ...cases.levels import Outcome
from ...cases.operation import run_golden
from ...cases.recipes import sampled_cases
from ...reports.report import Report
from ...subjects.arrays import alive, release
from ...subjects.calls.call import Called
from ...subjects.subject import Subject
from ...vectors.frozen import frozen_cases
from ...verdicts import device
from ...verdicts.judge import judge
from ...verdicts.judge_wide import judge_wide
from ...verdicts.probes import probe
from ...verdicts.smoke import smoke
from ...verdicts.structural import is_asked
from ...verdicts.tally import FAULTS_BEFORE_STOP, DomainCount, Tally
from . import in_turn, refusals, structure, unasked
from .journal import Journal
from .plan import Plan, Progress, Variant

LOOKED_AT = 24
"""Corner cases among which the smallest is the first call where no vector was one, see `verdicts.smoke`."""
PROBES = 4
"""Corner cases of a variant on which the calling contract is probed as well; one where the same code was before."""
MOST_PROBED, FIRST_PROBED = 1 << 16, 1 << 21
"""Elements of the largest corner case that is probed, and of one in a variant that is asked all structure."""
SPECIAL_LARGEST = 1 << 16
"""Members of the largest domain that is run for scale layouts and keyed random bits: they decide no code."""
OWN_LARGEST = 1 << 17
"""Members of the largest domain that is asked of the model: it gives the golden answers and cannot differ in them."""
COVERED_CHUNKS = 2
"""Cases of a domain in which coverpoints are counted; all of them would cost as much as the judging."""


@dataclass
class Engine:
    """One variant at work. Each method judges one stream of cases; `finish` writes down what was not covered."""

    plan: Plan
    item: Variant
    tallies: dict[str, Tally]
    report: Report
    progress: Progress
    book: Journal
    judged: list[Subject] = field(default_factory=list)
    number: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    open_points: dict[str, set[str]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    was_compared: bool = False
    judged_as: tuple[Case, dict[str, Any]] | None = None
    beyond: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.judged = [subject for subject in self.item.subjects if not self.tallies[subject.name].refusal]
        if self.plan.cases is None and not self.item.special:  # the inputs are those of the ordinary variant
            self.open_points = {subject.name: set(expected(*self._key)) for subject in self.judged}

    def known(self) -> bool:
        """Whether the golden model has the operation; if not, every subject's outcome says so."""
        name = self.item.operation.name
        if hasattr(refnum, name):
            return True
        for tally in self.tallies.values():
            tally.outcome, tally.words = Outcome.NOT_RUN, f"refnum has no {name}"
        return False

    def look(self) -> None:
        """Judge on what takes moments and tells most: the frozen vectors, each of which is there for known bugs."""
        if self.plan.cases is None and self.known():
            self.vectors()

    def rest(self) -> None:
        """Judge every other stream of the plan, in order, and end."""
        if not self.known() or not self.judged:
            return
        self.corners()
        if self.plan.cases is None:
            self.in_turn()
            whole = self.structural()
            self.domains()
            self.sampled(self.plan.seed)
            self.refusals(whole)
        self.finish()

    @property
    def name(self) -> str:
        """The variant, as reports name it."""
        return self.item.name

    @property
    def begun(self) -> bool:
        """Whether anything was asked of a subject."""
        return any(tally.compared or tally.faults for tally in self.tallies.values())

    def _release(self) -> None:
        """Give back the device memory that nothing uses: other processes may judge on the same device."""
        for library in {subject.arrays for subject in self.judged if subject.remote is None} - self.plan.lost.keys():
            release(library)

    def finish(self) -> None:
        """Write down the coverpoints that no compared case has hit, and who could not be judged to the end."""
        self._release()
        for subject in self.judged:
            tally, words = self.tallies[subject.name], self.plan.lost.get(subject.arrays)
            if words and not tally.wrong:
                tally.outcome, tally.words = Outcome.NOT_RUN, words
            ended = tally.wrong or tally.stopped or words or tally.coverage.cut
            never = [] if ended else tally.coverage.never()
            if never:
                named = ", ".join(never[:3])
                self.report.harness.append(
                    f"{self.name} was not asked of {subject.name} at {len(never)} levels: {named}"
                )
        for name, points in self.open_points.items():
            if self.tallies[name].compared:
                only_outside = points & self.beyond.get(name, set())
                self.tallies[name].holes = sorted(points - only_outside)
                self.tallies[name].coverpoints = len(expected(*self._key)) - len(only_outside)

    @property
    def _key(self) -> tuple[str, str, dict[str, Any]]:
        return self.item.operation.name, self.item.profile, self.item.params

    def active(self) -> list[Subject]:
        """Return the subjects that are neither refused nor left alone after repeated faults."""
        return [
            subject
            for subject in self.judged
            if not self.tallies[subject.name].stopped and subject.arrays not in self.plan.lost
        ]

    def _adapters(self, cases: list[Case]) -> None:
        """Call every subject once before any verdict; one whose results cannot be compared at all is left alone."""
        for subject in self.active():
            if subject.name in self.called:
                continue
            tally = self.tallies[subject.name]
            inside = [brought_inside(case, subject.inputs) for case in cases] if subject.inputs else cases
            if smoke(subject, tally, inside, self.plan.seconds, partial(self.book.note, subject.name)):
                self.called.add(subject.name)
            self.lost(subject, tally)

    def corners(self) -> None:
        """Judge on the corner cases, or on the plan's own cases, and probe the calling contract on the first."""
        again = all(structure.known_code(self, subject) for subject in self.judged)
        probes = 1 if self.item.special or again else PROBES
        self.book.enter(self._key, "corners")
        cases = iter((self.plan.cases or corner_cases)(*self._key))
        first = list(islice(cases, LOOKED_AT))
        if self.plan.cases is None:
            self._adapters(first)
        unasked.stream(self, "corner cases", chain(first, cases), partial(self._corners, probes=probes))

    def _corners(self, cases: Iterator[Case], probes: int) -> None:
        largest = FIRST_PROBED if structure.new_to(self, self.judged) else MOST_PROBED
        for case, golden in self._golden(cases):
            probed = bool(probes and 0 < case.elements <= largest)
            for subject in self.cover(case, golden):
                tally = self.tallies[subject.name]
                tally.corners += self.one(subject, case, golden) is not None
                if probed and self.was_compared and self.judged_as:
                    probe(subject, *self.judged_as, tally, self.plan.seconds)
            probes -= probed

    def vectors(self) -> None:
        """Judge on the frozen vectors; one that the golden model no longer agrees with is the harness's fault."""
        self.book.enter(self._key, "vectors")
        vectors = list(frozen_cases(*self._key))
        self._adapters([case for case, _ in vectors])
        judge_all = partial(self._vectors, [arrays for _, arrays in vectors])
        unasked.stream(self, "frozen vectors", iter([case for case, _ in vectors]), judge_all)

    def _vectors(self, answers: list[Any], cases: Iterator[Case]) -> None:
        for case, golden in self._golden(cases):
            if not all(np.array_equal(golden[name], array) for name, array in answers[self.number].items()):
                self.report.harness.append(f"the golden model gives other bytes than the frozen {case.label}")
            for subject in self.cover(case, golden, but={s.name for s in self.judged if not is_asked(s, case)}):
                if outside(case, subject.inputs):  # one with elements replaced would be no vector
                    self.inform(subject, case, golden)
                else:
                    self.tallies[subject.name].vectors += self.one(subject, case, golden) is not None

    def structural(self) -> set[str]:
        """Judge on structure; return who was asked all of it and is to refuse next: nobody in a special variant."""
        first = {subject.name for subject in structure.new_to(self, self.judged)}
        names = structure.ask(self, self._key)
        unasked.note(self, "structural cases")
        return set() if self.item.special else names | first

    def in_turn(self) -> None:
        """Judge right behind calls of other variants."""
        in_turn.ask(self, self._key)
        unasked.note(self, "calls behind another variant")

    def refusals(self, names: set[str]) -> None:
        """Make the calls that must be refused to the subjects of these names."""
        refusals.ask(self, self._key, names)
        unasked.note(self, "illegal calls", names)

    def domains(self) -> None:
        """Judge on every enumerable domain of the level."""
        if self.plan.level == "smoke":
            return
        every = domains_for(*self._key, self.plan.level)
        asked = [domain for domain in every if not (self.item.special and domain.size > SPECIAL_LARGEST)]
        for domain in asked:
            left = {subject.name for subject in self.active() if self._left_out(domain, subject)}
            counts = {
                s.name: DomainCount(domain.name, domain.size, domain.how) for s in self.active() if s.name not in left
            }
            for name, counted in counts.items():
                self.tallies[name].domains.append(counted)
            self.book.enter(self._key, domain.name)
            there = {s.name for s in self.active() if s.name in counts and domain.wide and self.on_device(s)}
            for case, golden in self._golden(domain.cases(), but=left | there):
                for subject in self.cover(case, golden, self.number < COVERED_CHUNKS, but=left | there):
                    counts[subject.name].add(self.one(subject, case, golden))
                    if self.judged_as and self.judged_as[0] is not case:
                        counts[subject.name].contract = contract_words(subject.inputs)
            if there:
                self._wide(domain, {name: counts[name] for name in there})
            for subject in self.active():
                if subject.name in counts:
                    counted = counts[subject.name]
                    counted.complete = counted.calls > 0 and not counted.missed
                    if counted.verdict == "proved":
                        self.plan.decided.setdefault(self._decision(domain, subject), []).append(self.item.profile)
        unasked.domains(self, [domain.name for domain in asked])

    def _wide(self, domain: Domain, counts: dict[str, DomainCount]) -> None:
        """Judge the subjects that `counts` names on every part of a domain, made on their device."""
        for self.number, part in enumerate(domain.parts(device.device_like())):
            subjects = [subject for subject in self.active() if subject.name in counts]
            if not subjects:
                return
            golden = self.golden(part.case)
            for subject in subjects:
                if subject.arrays in self.plan.lost:  # the device died under the subject before
                    continue
                self.book.note(subject.name, self.number, there=True)
                held = None
                if golden is not None:
                    again = partial(domain.part, self.number)
                    held = self._timed(subject, partial(judge_wide, case=part.case, golden=golden, again=again))
                counts[subject.name].add(held)

    def on_device(self, subject: Subject) -> bool:
        """Whether whole domains can be judged where a subject's arrays are: in this process, byte for byte."""
        plain = not self.tallies[subject.name].claimed and not subject.inputs
        return subject.arrays == "cupy" and subject.remote is None and plain

    def _decision(self, domain: Domain, subject: Subject) -> tuple[str, ...]:
        return subject.name, self.item.operation.name, self.item.choice, domain.name

    def _left_out(self, domain: Domain, subject: Subject) -> bool:
        """Whether profiles that were proved before, or the model itself, decide all that this domain would; noted.

        Only for a subject whose profiles are one code, and never at level exhaustive.
        """
        if self.plan.level == "exhaustive" or not subject.one_code:
            return False
        if subject.kind == "model" and domain.size > OWN_LARGEST:
            self.tallies[subject.name].left_out.append(f"{domain.name}, whose golden answers are the model's own")
            return True
        before = self.plan.decided.get(self._decision(domain, subject), [])
        decided = bool(before) and domain.within(before)
        if decided:
            self.tallies[subject.name].left_out.append(f"{domain.name}, decided under {', '.join(before)}")
        return decided

    def sampled(self, seed: int) -> None:
        """Judge on sampled recipes of a seed."""
        self.book.enter(self._key, "sampled", seed)
        examples = min(self.plan.examples, 5) if self.plan.level == "smoke" else self.plan.examples
        for case, golden in self._golden(sampled_cases(*self._key, seed, examples)):
            for subject in self.cover(case, golden):
                self.tallies[subject.name].sampled += self.one(subject, case, golden) is not None
        unasked.note(self, "sampled cases")

    def cover(
        self, case: Case, golden: dict[str, Any], counted: bool = True, but: Collection[str] = ()
    ) -> Iterator[Subject]:
        """Yield the subjects to judge on a case, `but` some; after each that was compared, close the points it hit."""
        waiting = counted and any(self.open_points.get(subject.name) for subject in self.active())
        hit = {name for name, times in count(case, golden).items() if times} if waiting else set()
        for subject in self.active():
            if subject.name in but or subject.arrays in self.plan.lost:  # the device died under the subject before
                continue
            self.was_compared = False
            self.book.note(subject.name, self.number)
            self.asked[subject.name] += 1
            yield subject
            if outside(case, subject.inputs):
                self.beyond.setdefault(subject.name, set()).update(hit)
            if self.was_compared and subject.name in self.open_points:
                self.open_points[subject.name] -= self._own_points() if subject.inputs and counted else hit

    def _own_points(self) -> set[str]:
        """The coverpoints of the case that was judged in the place of one outside of a contract, or of that one."""
        return {name for name, times in count(*self.judged_as).items() if times} if self.judged_as else set()

    def one(self, subject: Subject, case: Case, golden: dict[str, Any], before: Case | None = None) -> bool | None:
        """Judge a subject on a case and count it; return whether it held, None if it was not compared.

        before: the case of another variant that it was called on last, where what is left of that call is asked.

        A case outside of the subject's contract is called for information, and judged with the elements replaced that
        are outside.
        """
        if outside(case, subject.inputs):
            self.inform(subject, case, golden)
        self.judged_as = self.inside(subject, case, golden)
        if self.judged_as is None:
            return None
        return self._timed(subject, partial(judge, case=self.judged_as[0], golden=self.judged_as[1], before=before))

    def inform(self, subject: Subject, case: Case, golden: dict[str, Any]) -> None:
        """Call a subject on a case outside of its contract, unless such calls keep failing."""
        self.was_compared = False
        if self.tallies[subject.name].outside.failed < FAULTS_BEFORE_STOP:
            self._timed(subject, partial(judge, case=case, golden=golden))

    def inside(self, subject: Subject, case: Case, golden: dict[str, Any]) -> tuple[Case, dict[str, Any]] | None:
        """Return a case inside of a subject's contract and its golden outputs, None where the model takes no such."""
        if not outside(case, subject.inputs):
            return case, golden
        kept = brought_inside(case, subject.inputs)
        found = self.golden(kept)
        return None if found is None else (kept, found)

    def watched(self, subject: Subject, make: Callable[[], Called]) -> Called:
        """Make a call, count its seconds and return it."""
        start = time.perf_counter()
        called = make()
        self.tallies[subject.name].seconds += time.perf_counter() - start
        return called

    def _timed(self, subject: Subject, judged: Callable[..., bool | None]) -> bool | None:
        tally = self.tallies[subject.name]
        start = time.perf_counter()
        held = judged(subject, tally=tally, seconds=self.plan.seconds)
        tally.seconds += time.perf_counter() - start
        self.was_compared = held is not None
        if held is None:
            self.lost(subject, tally)
        return held

    def lost(self, subject: Subject, tally: Tally) -> None:
        """Give the device up when a fault left it dead; that of another process comes back with a new one."""
        if (tally.faults or tally.outside.failed) and subject.remote is None and not alive(subject.arrays):
            ran = tally.faults[-1][2] if tally.faults else tally.outside.example
            self.plan.lost[subject.arrays] = (
                f"the device stopped answering while {subject.name} ran {ran}; "
                f"nothing after it is judged on this device"
            )

    def _golden(self, cases: Iterator[Case], but: Collection[str] = ()) -> Iterator[tuple[Case, dict[str, Any]]]:
        """Yield each case with its golden outputs; a case the golden model refuses is the harness's own fault.

        but: subjects that these cases are not for; none is made when nobody else is left.
        """
        for self.number, case in enumerate(cases):
            if all(subject.name in but for subject in self.active()):
                return
            golden = self.golden(case)
            if golden is not None:
                yield case, golden

    def golden(self, case: Case) -> dict[str, Any] | None:
        """Return the model's outputs; a case that it cannot take is reported, and the run goes on."""
        self.progress.step(case)
        try:
            try:
                return run_golden(case)
            except MemoryError:
                self._release()
                return run_golden(case)
        except Exception as error:
            kind = "refused" if isinstance(error, RefnumError) else f"failed ({type(error).__name__}) on"
            self.report.harness.append(f"the golden model {kind} {case} ({case.label}): {error}")
            return None
