"""What to run: the plan of a run, its variants, and the callbacks that tell of its progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import refnum

from ...cases.case import Case, plain, variant
from ...cases.entry import Operation
from ...cases.layouts import IN, OUT
from ...cases.levels import Outcome
from ...subjects.layout_variants import lacking, special_params, unclaimed
from ...subjects.subject import Broken, Subject
from ...verdicts.outside import Outside
from ...verdicts.tally import Tally

RUN_LEVELS = ("smoke", "standard", "exhaustive")


@dataclass(frozen=True)
class Share:
    """The variants of one operation with one choice of parameters (as JSON), under every profile."""

    operation: str
    params: str

    def holds(self, item: Variant) -> bool:
        """Whether a variant is of this share."""
        return item.operation.name == self.operation and item.choice == self.params


@dataclass
class Plan:
    """What to run. profiles None means every profile that a subject claims.

    lost: libraries whose device died during the run, with the words that say when; filled by the engine.
    named: operations asked for by name; a subject that lacks one is reported as unsupported, not left out.
    special: whether scale layouts and keyed random bits are asked of the subjects that name their keywords.
    cases: (operation, profile, params) -> cases that replace corners, domains and sampled cases.
    decided: (subject, operation, parameters, domain) -> profiles under which it was proved so far; by the engine.
    structured: (subject, operation) that were asked all factors of structure; by the engine.
    laid: (subject, operation) -> the profile under which its scale layouts are asked, if not under each.
    unfit: (subject, variant) whose calls failed behind which another variant was to be judged; by the engine.
    share: the part of the variants that is run; None means all.
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
    lost: dict[str, str] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    special: bool = False
    cases: Callable[[str, str, dict[str, Any]], Iterator[Case]] | None = None
    decided: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    laid: dict[tuple[str, str], str] = field(default_factory=dict)
    structured: set[tuple[str, str]] = field(default_factory=set)
    unfit: set[tuple[str, str]] = field(default_factory=set)
    share: Share | None = None

    def elsewhere(self, subject: Subject, item: Variant) -> list[str]:
        """Return in words what is asked of a subject under another profile than a variant's."""
        profile = self.laid.get((subject.name, item.operation.name), item.profile)
        stochastic = refnum.get_profile(item.profile).rounding == "stochastic"
        return [] if profile == item.profile or stochastic else [f"scale layouts, asked under {profile}"]


@dataclass
class Progress:
    """Callbacks of a run; the default does nothing.

    start: how many variants there are. enter: the variant at work, once on its vectors and once on all else. step:
    the case that is next. wrong: in words, that vectors of an operation show a subject to be wrong. leave: the results
    of a variant.
    """

    start: Callable[[int], None] = lambda variants: None
    enter: Callable[[str], None] = lambda name: None
    step: Callable[[Case], None] = lambda case: None
    wrong: Callable[[str], None] = lambda words: None
    leave: Callable[[list[dict[str, Any]]], None] = lambda results: None


@dataclass
class Variant:
    """One operation under one profile and one choice of parameters, and the subjects to judge on it.

    special: whether it asks for a scale layout or for keyed random bits.
    """

    operation: Operation
    profile: str
    params: dict[str, Any]
    subjects: list[Subject]
    special: bool = False

    @property
    def name(self) -> str:
        """The variant, as reports name it."""
        return variant(self.operation.name, self.profile, self.params)

    @property
    def choice(self) -> str:
        """The parameters as JSON."""
        return json.dumps(plain(self.params))

    @property
    def kind(self) -> str:
        """What is asked in full once: an operation, and apart from it with random bits, keys and each layout."""
        layouts = " ".join(f"{name}={self.params[name]}" for name in (IN, OUT) if name in self.params)
        keyed = "" if layouts else str(self.params.get("random", ""))
        return f"{self.operation.name} {refnum.get_profile(self.profile).rounding} {layouts}{keyed}"


def shares_of(plan: Plan) -> list[Share]:
    """Return the shares into which the variants of a plan fall: first each operation's first, which is asked the most.

    So the processes have short shares left when the work runs out, and end together.
    """
    found: dict[str, dict[str, None]] = {}
    for item in variants(replace(plan, share=None, laid={}, structured=set())):
        found.setdefault(item.operation.name, {})[item.choice] = None
    every = [[Share(operation, choice) for choice in choices] for operation, choices in found.items()]
    return [shares[0] for shares in every] + [share for shares in every for share in shares[1:]]


def variants(plan: Plan) -> list[Variant]:
    """Return every (operation, profile, parameters) that a subject has or was asked for, with those subjects.

    Of a plan for a share, those of the share; the kinds whose first variant is another share's count as asked in full.
    """
    found = _variants(plan)
    share = plan.share
    if share is None:
        return found
    seen: set[tuple[str, str]] = set()
    for item in found:
        here = item.operation.name == share.operation
        for subject in item.subjects if here else ():
            key = subject.name, item.kind
            if key not in seen and not subject.refuses(item.operation.name, item.profile, item.params):
                seen.add(key)
                if not share.holds(item):
                    plan.structured.add(key)
    return [item for item in found if share.holds(item)]


def _variants(plan: Plan) -> list[Variant]:
    found: list[Variant] = []
    plan.laid.clear()
    plan.structured.clear()
    for operation in plan.operations:
        owners = [
            subject for subject in plan.subjects if operation.name in subject.operations or operation.name in plan.named
        ]
        for profile in _profiles(plan, operation, owners):
            here = [
                subject
                for subject in owners
                if plan.profiles or not operation.profiled or profile in subject.profiles_for(operation.name)
            ]
            if not here:
                continue
            choices = list(operation.variants())
            for params in choices[:1] if plan.level == "smoke" else choices:
                found.append(Variant(operation, profile, params, here))
            if plan.special and plan.level != "smoke":
                found += _specials(plan, operation, profile, here)
    return found


def _specials(plan: Plan, operation: Operation, profile: str, subjects: list[Subject]) -> Iterator[Variant]:
    """Yield the variants with scale layouts and keyed random bits, for the subjects that name their keywords.

    At level standard, layouts, which the profile does not touch, are asked under the first profile that a subject can
    be judged under, and under stochastic rounding, which kernels do apart; at level exhaustive under each.
    """
    stochastic = refnum.get_profile(profile).rounding == "stochastic"
    asked = [
        subject
        for subject in subjects
        if stochastic or plan.level == "exhaustive" or (subject.name, operation.name) not in plan.laid
    ]
    for params in special_params(plan.level, operation, keyed=operation.keyed and stochastic):
        able = [subject for subject in asked if not lacking(subject, operation, params)]
        if able:
            yield Variant(operation, profile, params, able, special=True)
        for subject in able:
            if plan.level != "exhaustive" and not stochastic and not subject.refuses(operation.name, profile, params):
                plan.laid[subject.name, operation.name] = profile


def _profiles(plan: Plan, operation: Operation, owners: list[Subject]) -> list[str]:
    if not operation.profiled:
        return ["HOPPER"]
    if plan.profiles:
        return plan.profiles
    claimed = dict.fromkeys(profile for subject in owners for profile in subject.profiles_for(operation.name))
    return sorted(claimed, key=lambda name: (list(refnum.PROFILES).index(name.partition("+")[0]), name))


def new_tally(plan: Plan, subject: Subject, item: Variant) -> Tally:
    """Return the empty tally of a subject on a variant, refused if the subject cannot be judged on it.

    One that fails when it is asked whether it supports the variant has that fault on it.
    """
    name = item.operation.name
    refusal = subject.refuses(name, item.profile, item.params)
    broken = isinstance(refusal, Broken)
    return Tally(
        subject.name,
        name,
        item.profile,
        item.params,
        claimed=subject.claimed_level(name),
        refusal=refusal,
        outcome=Outcome.FAULT if broken else None,
        words=refusal if broken else "",
        smoke=plan.level == "smoke",
        left_out=[] if item.special else [*unclaimed(subject, name, item.profile), *plan.elsewhere(subject, item)],
        outside=Outside(subject.inputs),
    )
