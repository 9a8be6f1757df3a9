"""The context of a worker process: the spec of its campaign, and the subjects that are usable on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from refnum.digest import model_digest

from ...cases.levels import Outcome
from ...cases.recipes.recipe import Recipe
from ...cases.structure.levels import Levels
from ...subjects.choose import choose
from ...subjects.subject import Subject
from .errors import WorkerError
from .shards import address_of, recipes_of
from .spec import Spec

FATAL = frozenset({Outcome.FAULT, Outcome.TIMEOUT, Outcome.COMPILE_ERROR})


class Tell(Protocol):
    """Announces a case before it begins. warming: the first case of its target in this process, which may compile."""

    def __call__(self, number: int, warming: bool = False) -> None:
        """Announce the case with this number."""


class WorkerContext:
    """The subjects of a campaign in this process. warm: the targets that this process has called."""

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

    def recipes(self, task: Mapping[str, Any]) -> Sequence[Recipe | Levels]:
        """Return the recipes of a task's shard."""
        address = address_of(task)
        return recipes_of(self.spec, self.targets[address.target], address)
