"""The office: what a worker process has of a campaign, its spec and the subjects as they are usable here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ...cases.levels import Outcome
from ...cases.recipes.recipe import Recipe
from ...reports.environment import model_digest
from ...subjects.choose import choose
from ...subjects.subject import Subject
from .errors import WorkerError
from .shards import address_of, recipes_of
from .spec import Spec

FATAL = frozenset({Outcome.FAULT, Outcome.TIMEOUT, Outcome.COMPILE_ERROR})


class Tell(Protocol):
    """Says which case begins; warming: it is the first of its target here, whose call may compile for long."""

    def __call__(self, number: int, warming: bool = False) -> None:
        """Say it."""


class Office:
    """The subjects of a campaign as this process has them; warm: targets that have been called here."""

    def __init__(self, spec: Spec) -> None:
        if spec.model != model_digest():
            raise WorkerError(f"This machine has golden model {model_digest()}; the campaign has {spec.model}.")
        self.spec = spec
        self.targets = {target.name: target for target in spec.targets}
        chosen = choose(list(spec.subjects), spec.isolate)
        self.subjects: dict[str, Subject] = {subject.name: subject for subject in chosen.usable}
        self.reasons = {subject.name: why for subject, why in chosen.unusable}
        self.warm: set[str] = set()

    def subject(self, target: str) -> Subject:
        """Return the subject of a target; WorkerError when it cannot be used here."""
        name = self.targets[target].subject
        if name not in self.subjects:
            raise WorkerError(f"{name} cannot be used here: {self.reasons.get(name, 'it is not installed')}.")
        return self.subjects[name]

    def recipes(self, task: Mapping[str, Any]) -> list[Recipe]:
        """Return the recipes of a task's shard."""
        address = address_of(task)
        return recipes_of(self.spec, self.targets[address.target], address)
