"""The targets of a campaign and the size of its shards: written at the start and never changed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refnum import get_profile
from refnum.digest import model_digest
from refnum.errors import ArgumentError, FileError, RefnumError

from ...cases.case import plain, variant
from ...cases.operation import OPERATIONS, run_golden, select
from ...cases.recipes.inputs import expand
from ...cases.recipes.recipe import Recipe
from ...reports import files
from ...reports.gpus import smi
from ...subjects.choose import Choice, choose
from ...subjects.isolation.parent import stop_all
from ...subjects.named import is_file
from ..check.plan import Plan, variants

CASES = 25
"""Cases of a shard by default: a second or so of work, so that little is lost when a worker dies."""
ELEMENTS = 1 << 17
"""Elements of the largest case by default, of subjects on the CPU."""
LARGEST, ROOM = 1 << 28, 320
"""The same on a GPU, and the bytes of its memory that each element must have; see `largest_case`."""
TRIED, PADDING = 1 << 22, 128
"""Elements up to which a case of a corpus is tried before the campaign, and rows that a split may be padded by."""
TIMEOUT = 30.0
ON_DEVICE = ("cupy", "torch-cuda")


@dataclass(frozen=True)
class Target:
    """One subject on one operation, profile and choice of parameters.

    device: `gpu` or `cpu`, what its worker needs.
    """

    subject: str
    operation: str
    profile: str
    params: dict[str, Any]
    device: str

    @property
    def key(self) -> tuple[str, str, dict[str, Any]]:
        """Operation, profile and parameters, as recipes and coverpoints ask for them."""
        return self.operation, self.profile, self.params

    @property
    def variant(self) -> str:
        """The name of what is judged, without the subject."""
        return variant(*self.key)

    @property
    def name(self) -> str:
        """The name in the database: subject and variant."""
        return f"{self.subject} {self.variant}"


@dataclass(frozen=True)
class Spec:
    """A campaign: all that decides which cases are made and who is judged.

    seed: below 2^64. subjects: names as typed, files as absolute paths. records: what each subject said of itself.
    targets: every (subject, variant). cases: of a shard. elements: of the largest case. timeout: seconds of a call.
    round: shards that are planned together. model: digest of the golden model.
    corpus: recipes as JSON that an earlier campaign found worth keeping; they are judged first.
    isolate: whether subjects live in processes of their own beside the worker, see `subjects.choose.choose`.
    """

    seed: int
    subjects: tuple[str, ...]
    records: tuple[dict[str, Any], ...]
    targets: tuple[Target, ...]
    cases: int
    elements: int
    timeout: float
    round: int
    model: str
    corpus: tuple[dict[str, Any], ...] = ()
    isolate: bool | None = None

    def to_json(self) -> str:
        """Return the spec as canonical JSON; `from_json` gives an equal one back."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """Return the spec of `to_json`."""
        data = json.loads(text)
        targets = tuple(Target(**target) for target in data.pop("targets"))
        lists = {name: tuple(data.get(name, ())) for name in ("subjects", "records", "corpus")}
        return cls(**{**data, "targets": targets, **lists})

    def likeness(self) -> str:
        """Return a digest of all but the seed and the round: campaigns that agree in it may be merged."""
        data = dataclasses.asdict(dataclasses.replace(self, seed=0, round=0))
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

    @property
    def devices(self) -> set[str]:
        """The devices its subjects need: `cpu`, `gpu` or both."""
        return {target.device for target in self.targets}


def make_spec(
    subjects: Sequence[str] | None = None,
    operations: Sequence[str] | None = None,
    profiles: Sequence[str] | None = None,
    seed: int = 0,
    cases: int = CASES,
    elements: int | None = None,
    timeout: float = TIMEOUT,
    round_shards: int | None = None,
    corpus: Path | None = None,
    isolate: bool | None = None,
) -> Spec:
    """Return the spec of a new campaign over the usable subjects that were named.

    Raises ArgumentError when a name selects nothing, a number is out of range, or no subject can be judged here.
    """
    for name in profiles or ():
        get_profile(name)
    if not 0 <= seed < 1 << 64:
        raise ArgumentError(f"seed={seed}; a seed is a whole number from 0 to 2^64-1.")
    chosen = choose(list(subjects) if subjects else None, isolate)
    refused: dict[str, None] = {}
    targets = tuple(_targets(chosen, operations, profiles, refused))
    stop_all()
    if not targets:
        reasons = (
            "; ".join([*(f"{item.name}: {why}" for item, why in chosen.unusable), *refused]) or "none is installed"
        )
        raise ArgumentError(f"No subject can be judged on these operations and profiles here ({reasons}).")
    on_host = {subject.name for subject in chosen.usable if subject.remote is not None}
    large = all(target.device == "gpu" and target.subject not in on_host for target in targets)
    judged = {target.subject for target in targets}
    return Spec(
        seed=seed,
        subjects=tuple(_absolute(name) for name in subjects) if subjects else tuple(sorted(judged)),
        records=tuple(record for record in chosen.records() if record["name"] in judged),
        targets=targets,
        cases=cases,
        elements=elements or (largest_case() if large else ELEMENTS),
        timeout=timeout,
        round=round_shards or max(16, len(targets)),
        model=model_digest(),
        corpus=() if corpus is None else read_corpus(corpus, targets),
        isolate=isolate,
    )


def unnamed(spec: Spec, names: Sequence[str]) -> list[str]:
    """Return the files and programs among a campaign's subjects that are not among some names."""
    allowed = {_absolute(name) for name in names}
    return [name for name in spec.subjects if is_file(name) and name not in allowed]


def read_corpus(path: Path, targets: Sequence[Target]) -> tuple[dict[str, Any], ...]:
    """Return the recipes of a `corpus.json` that belong to some target, each once.

    The model runs on each of at most TRIED elements, so that a case that is none is the file's fault and not a model's.
    Raises FileError for a file of another kind, or with a case that this version does not know or the model refuses.
    """
    body = files.read_json(path, "corpus", 1)
    wanted = {target.variant for target in targets}
    found = {}
    for number, entry in enumerate(body["cases"]):
        try:
            recipe = Recipe.from_json(entry["recipe"])
            if variant(recipe.operation, recipe.profile, recipe.params) in wanted:
                _try(recipe)
                found[json.dumps(recipe.to_json(), sort_keys=True)] = recipe.to_json()
        except (RefnumError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise FileError(f"{path}: case {number} is none: {type(error).__name__}: {error}") from error
    return tuple(found[key] for key in sorted(found))


def _try(recipe: Recipe) -> None:
    """Raise an error of any kind for a recipe that stands for no case, ArgumentError for one that is too large."""
    splits = recipe.params.get("splits") or []
    rows = max(recipe.shape[0], sum(splits) + PADDING * len(splits) if OPERATIONS[recipe.operation].routed else 0)
    size = max(rows, 1) * max(recipe.shape[1], 1)
    if size > LARGEST:
        raise ArgumentError(f"it has {size} elements; at most {LARGEST} are judged")
    if size <= TRIED:
        run_golden(expand(recipe))


def largest_case() -> int:
    """Return the power of two that the smallest GPU here has room for, up to LARGEST; 2**24 where none tells."""
    sizes = [int(card["memory.total"]) << 20 for card in smi() if card.get("memory.total", "").isdigit()]
    room = min(sizes, default=ROOM << 24) // ROOM
    return int(min(LARGEST, 1 << max(17, room.bit_length() - 1)))


def _targets(
    chosen: Choice, operations: Sequence[str] | None, profiles: Sequence[str] | None, refused: dict[str, None]
) -> list[Target]:
    """Every variant that a subject can be judged on; why the others are not goes to `refused`."""
    plan = Plan(chosen.usable, select(list(operations) if operations else None), list(profiles) if profiles else None,
                special=True)  # fmt: skip
    found = []
    for item in variants(plan):
        for subject in item.subjects:
            key = item.operation.name, item.profile, plain(item.params)
            reason = subject.refuses(*key)
            if reason:
                refused[reason] = None
            else:
                found.append(Target(subject.name, *key, "gpu" if subject.arrays in ON_DEVICE else "cpu"))
    return found


def _absolute(name: str) -> str:
    """Return `path/to/file.py:NAME` with an absolute path, so that workers find it from anywhere."""
    path, colon, attribute = name.partition(".py")
    if not colon:
        return name
    return f"{Path(path + '.py').resolve()}{attribute}"
