"""The count of one subject on one variant: what was compared, what failed, and the verdict that follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..cases.case import Case, plain, variant
from ..cases.findings import Finding
from ..cases.levels import NO_LEVEL, Outcome, failed_name, level_name
from ..cases.operation import OPERATIONS
from .coverage import Coverage
from .kinds import Kind
from .outside import Outside
from .refusals import Refusals
from .repeats import excluded

KEEP = 6
FAULTS_BEFORE_STOP = 3


@dataclass(eq=False)
class Failure:
    """One failing case: the level that it fails (every level below it fails too), or a breach by name.

    kind: the kind of difference that it is an example of, if it is one of a certain kind.
    """

    case: Case
    level: int
    words: str = ""
    finding: str = ""
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    kind: Kind | None = None


@dataclass
class KindCount:
    """One kind of difference: items that bear it, and examples, those with fewest other kinds and elements first."""

    count: int = 0
    examples: list[tuple[int, Failure]] = field(default_factory=list)

    def add(self, count: int, kinds: int, failure: Failure) -> None:
        """Count the items of a case that bears `kinds` kinds, and keep it if it is among the plainest."""
        self.count += count
        self.examples.append((kinds, failure))
        self.examples.sort(key=lambda example: (example[0], example[1].case.elements))
        del self.examples[KEEP:]

    def failures(self, kind: Kind, reached: int) -> list[Failure]:
        """Return the examples as failures of this kind, where the level reached forgives nothing worse."""
        return [replace(failure, level=min(kind.level, reached), kind=kind) for _, failure in self.examples]

    def plain(self, failures: list[Failure]) -> list[Failure]:
        """Return those of the examples, as failures, that bear as few other kinds as the plainest one."""
        return [one for (kinds, _), one in zip(self.examples, failures, strict=True) if kinds == self.examples[0][0]]


def ended(outcome: Outcome, words: str) -> Finding:
    """Return the finding of a call that came to no result: it hung, ended its process, or raised an error."""
    if outcome is Outcome.TIMEOUT:
        return Finding.HUNG
    return Finding.DIED if words.startswith("its process") else Finding.RAISED


@dataclass
class DomainCount:
    """One enumerable domain: its exact size, how it is enumerated, and how far one subject came.

    calls: cases (chunks of the domain) compared. wrong: those that failed. complete: the enumeration ended and
    every chunk of it was compared; only then is the size a count of what was verified. contract: in words, where
    members outside of it were replaced; how many are inside is not counted, so nothing of it is called proved.
    """

    name: str
    size: int
    how: str
    calls: int = 0
    wrong: int = 0
    missed: int = 0
    complete: bool = False
    contract: str = ""

    def add(self, held: bool | None) -> None:
        """Count one case: whether the subject held on it, None if it was not compared."""
        self.calls += 1
        self.missed += held is None
        self.wrong += held is False

    @property
    def points(self) -> int:
        """Points of the domain that were compared, as far as that is known: all, or none yet."""
        return self.size if self.complete and not self.contract else 0

    @property
    def verdict(self) -> str:
        """`proved`, `wrong` or `incomplete`."""
        if self.wrong:
            return "wrong"
        return "proved" if self.complete and not self.contract else "incomplete"

    @property
    def text(self) -> str:
        """The words of the verdict line."""
        if not self.complete:
            return f"did not finish {self.name} (of {self.size} cases)"
        if self.contract:
            return f"ran all of {self.name} that is inside of {self.contract}"
        if self.wrong:
            return f"ran all of {self.name} ({self.size} cases)"
        return f"proved {self.name} ({self.size} cases)"


@dataclass
class Tally:
    """Counts of one (subject, operation, profile, parameters).

    undeclared: words -> how often a case was refused that nothing declared said would be. coverage: of structure.
    accepted: illegal calls that were answered, in words and as cases.
    probes: name of a probe that was tried -> the words with which the subject refused it, or empty.
    out: whether its adapter does not fit, so that nothing more is asked of it. left_out: what was not asked, and why.
    outside: the contract of its inputs, and what it did beyond it.
    calls: those whose bytes were compared; repeated: those of them on inputs of an earlier call; flips: those of them
    that gave other bytes than most calls on the same inputs; checked: wrong calls that were made again at once.
    not_asked: what was left of each stream of cases when the subject was left alone.
    """

    subject: str
    operation: str
    profile: str
    params: dict[str, Any]
    claimed: int = 0
    corners: int = 0
    vectors: int = 0
    sampled: int = 0
    tensors: int = 0
    compared: int = 0
    reached: int = 0
    seconds: float = 0.0
    refusal: str = ""
    probes: dict[str, str] = field(default_factory=dict)
    outcome: Outcome | None = None
    words: str = ""
    unsupported: Counter[str] = field(default_factory=Counter)
    undeclared: Counter[str] = field(default_factory=Counter)
    refusals: Refusals = field(default_factory=Refusals)
    accepted: list[tuple[str, Case]] = field(default_factory=list)
    structural: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    faults: list[tuple[Outcome, str, Case]] = field(default_factory=list)
    failing: int = 0
    failures: list[Failure] = field(default_factory=list)
    classes: dict[str, list[int]] = field(default_factory=dict)
    kinds: dict[Kind, KindCount] = field(default_factory=dict)
    domains: list[DomainCount] = field(default_factory=list)
    smoke: bool = False
    out: bool = False
    coverpoints: int = 0
    holes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    outside: Outside = field(default_factory=Outside)
    calls: int = 0
    repeated: int = 0
    flips: int = 0
    not_asked: list[str] = field(default_factory=list)
    checked: int = 0

    @property
    def stopped(self) -> bool:
        """Whether this subject is left alone from here on: it is out, or keeps faulting."""
        return self.out or bool(self.refusal) or len(self.faults) >= FAULTS_BEFORE_STOP

    @property
    def wrong(self) -> bool:
        """Whether what was asked so far is enough to fail: a breach, a level above the one claimed, or a fault."""
        return (
            bool(self.faults or self.accepted)
            or self.reached > self.claimed
            or any(failure.finding for failure in self.failures)
        )

    @property
    def cases(self) -> int:
        """Cases compared."""
        counted = self.corners + self.structural + self.vectors + self.sampled + self.tensors
        return counted + sum(domain.points for domain in self.domains)

    def fail(self, failure: Failure) -> None:
        """Count a failing case and keep it if it is the first or among the smallest of its level and breach."""
        self.failing += 1
        alike = [f for f in self.failures if (f.level, f.finding) == (failure.level, failure.finding)]
        if len(alike) >= KEEP:
            largest = max(alike, key=lambda kept: kept.case.elements)
            if largest.case.elements <= failure.case.elements:
                return
            self.failures.remove(largest)
        if not alike or len(self.failures) < KEEP * 2:
            self.failures.append(failure)

    def repeat(self, case: Case, calls: int, flips: int) -> None:
        """Count calls on the inputs of an earlier one, and how many of all these gave other bytes than most."""
        self.calls += calls
        self.repeated += calls
        self.flips += flips
        if flips:
            words = f"{flips} of {calls + 1} calls on the same inputs gave other bytes: the result is not determined"
            self.fail(Failure(case, NO_LEVEL, words, Finding.NOT_DETERMINISTIC))

    def add_kinds(self, failure: Failure, kinds: Mapping[Kind, int]) -> None:
        """Count the kinds of difference of one failing case."""
        for kind, count in kinds.items():
            self.kinds.setdefault(kind, KindCount()).add(count, len(kinds), failure)

    def worst(self) -> list[Kind]:
        """Return the kinds of difference, worst first: by the level that ignores them, then by number of items."""
        return sorted(self.kinds, key=lambda kind: (-kind.level, -self.kinds[kind].count, kind))

    def add_classes(self, counts: dict[str, list[int]]) -> None:
        """Add the block counts of one comparison by input class."""
        for letter, (blocks, wrong, level) in counts.items():
            kept = self.classes.setdefault(letter, [0, 0, 0])
            self.classes[letter] = [kept[0] + blocks, kept[1] + wrong, max(kept[2], level)]

    def close(self) -> Outcome:
        """Return the outcome: the worst of what happened; nothing compared is never a pass."""
        if self.outcome is not None:
            return self.outcome
        self.outcome, self.words = self._decide()
        return self.outcome

    def _decide(self) -> tuple[Outcome, str]:
        if self.refusal:
            return Outcome.UNSUPPORTED, self.refusal
        if self.flips:
            return Outcome.FLAKY, self._flipped()
        breaches = [failure for failure in self.failures if failure.finding]
        if self.malformed:
            return Outcome.MALFORMED, breaches[0].words
        if breaches or self.reached > self.claimed:
            named = self.out or self.reached <= self.claimed
            return Outcome.MISMATCH, breaches[0].words if breaches and named else self._reach()
        if self.faults:
            outcome, words, _ = self.faults[0]
            return outcome, words if self.out else f"{len(self.faults)} of its calls failed: {words}"
        if self.accepted:
            return (
                Outcome.FAULT,
                f"{len(self.accepted)} calls were taken that must be refused: "
                f"{'; '.join(words for words, _ in self.accepted[:4])}",
            )
        unexplained = self.refusals.unexplained()
        if unexplained:
            return Outcome.NOT_VERIFIED, unexplained
        if self.compared and self.undeclared:
            return Outcome.NOT_VERIFIED, self._undeclared()
        if self.compared and self.coverage.cut:
            return Outcome.NOT_VERIFIED, self.coverage.cut
        if self.compared == 0:
            if self.outside.cases and not self.unsupported:
                return Outcome.UNSUPPORTED, self.outside.words()
            if self.unsupported:
                return Outcome.UNSUPPORTED, self._refused()
            return Outcome.NOT_VERIFIED, "nothing was compared"
        return Outcome.PASS, self._reach()

    @property
    def malformed(self) -> bool:
        """Whether nothing else is wrong than that results are missing, or of another dtype or shape."""
        return bool(self.failures) and all(failure.finding == Finding.SHAPE for failure in self.failures)

    def _reach(self) -> str:
        if self.reached >= NO_LEVEL:
            return "results that no order gives" if OPERATIONS[self.operation].bounded else "decoded values differ"
        return f"{level_name(self.reached)}" + (
            "" if self.reached <= self.claimed else f", claimed {level_name(self.claimed)}"
        )

    def _flipped(self) -> str:
        return (
            f"not deterministic: {self.flips:,} of {self.calls:,} calls gave other bytes than most calls on the same "
            f"inputs ({self.repeated:,} calls repeated an earlier one)"
        )

    def _refused(self) -> str:
        return "; ".join(f"{count} cases: {words}" for words, count in self.unsupported.most_common(3))

    def _undeclared(self) -> str:
        words, count = self.undeclared.most_common()[0][0], self.undeclared.total()
        return (
            f"{count} cases were refused that it does not declare to refuse, for example: {words}; declare what "
            f"it takes (dtypes, rows, columns, max_elements, supports, outside)"
        )

    def left_alone(self) -> str:
        """Return in words what was not asked because the subject was left alone, and why; empty where all was."""
        why = "its adapter does not fit" if self.out else f"after {len(self.faults)} faults"
        if not self.stopped:
            why = "its device stopped answering"
        return f"not asked, {why}: {', '.join(self.not_asked)}" if self.not_asked else ""

    def evidence(self) -> str:
        """Return in words what the verdict rests on."""
        parts = []
        if self.corners:
            parts.append(f"{self.corners} corner cases")
        if self.structural:
            parts.append(f"{self.structural} structural cases")
        if self.vectors:
            parts.append(f"{self.vectors} frozen vectors")
        parts += [domain.text for domain in self.domains]
        if self.sampled:
            parts.append(f"{self.sampled} sampled cases, not a proof")
        if self.tensors:
            parts.append(f"{self.tensors} tensors from files, not a proof")
        if self.unsupported and self.compared:
            parts.append(f"refused {self._refused()}")
        parts += [f"left out {words}" for words in self.left_out]
        if self.not_asked:
            parts.append(self.left_alone())
        if self.outside.cases:
            parts.append(f"for information, {self.outside.words()}")
        if excluded(self.calls) and self.close() is Outcome.PASS:
            words = f"which excludes (95 %) that more than 1 in {excluded(self.calls):,} flips"
            parts.append(f"{self.calls:,} calls without a flip, {words}")
        if self.smoke:
            parts.append("smoke only: this is not a verification")
        return "; ".join(parts)

    def serializable(self) -> dict[str, Any]:
        """Return the result record of a report, without its failures."""
        outcome = self.close()
        return {
            "subject": self.subject,
            "operation": self.operation,
            "clause": OPERATIONS[self.operation].clause,
            "profile": self.profile,
            "params": plain(self.params),
            "variant": variant(self.operation, self.profile, self.params),
            "outcome": outcome.value,
            "words": self.words,
            "evidence": self.evidence(),
            "level": {
                "claimed": level_name(self.claimed),
                "reached": level_name(self.reached) if self.compared and not self.malformed else None,
            },
            "cases": self.cases,
            "corners": self.corners,
            "structural": self.structural,
            "structure": self.coverage.serializable(),
            "vectors": self.vectors,
            "sampled": self.sampled,
            "tensors": self.tensors,
            "compared": self.compared,
            "calls": {
                "compared": self.calls,
                "repeated": self.repeated,
                "flips": self.flips,
                "excludes": excluded(self.calls) if outcome is Outcome.PASS else 0,
            },
            "failing": self.failing,
            "not_asked": self.left_alone(),
            "faults": len(self.faults),
            "refused": sum(self.unsupported.values()),
            "seconds": round(self.seconds, 3),
            "coverpoints": self.coverpoints,
            "holes": [] if self.malformed else self.holes,
            "refusal": self._refused() if self.unsupported else "",
            "probes": self.probes,
            "differences": [
                {
                    "class": kind.letter,
                    "output": kind.output,
                    "way": kind.way,
                    "fails": failed_name(min(kind.level, self.reached), self.operation),
                    "count": self.kinds[kind].count,
                }
                for kind in self.worst()
            ],
            "findings": sorted(
                {failure.finding for failure in self.failures if failure.finding}
                | {ended(outcome, words) for outcome, words, _ in self.faults}
                | ({Finding.ILLEGAL_ACCEPTED} if self.accepted else set())
            ),
            **({"outside": self.outside.serializable()} if self.outside.contract else {}),
            "domains": [
                {"name": d.name, "size": d.size, "how": d.how, "points": d.points, "verdict": d.verdict}
                for d in self.domains
            ],
            "classes": {
                letter: {"blocks": blocks, "wrong": wrong, "level": level_name(level)}
                for letter, (blocks, wrong, level) in sorted(self.classes.items())
            },
        }
