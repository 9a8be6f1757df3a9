"""Who is judged. A subject is a named set of callables, one an operation, behind one small interface.

Subjects are loaded by `loading/`. None is imported by name here.

A callable takes the golden twin's keywords: the arrays, the operation's parameters, and `profile` where the
operation has one. A parameter that a callable does not name may be left out as long as it is at its default;
any other value is reported as unsupported. Results are a tuple of arrays, or one array.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from refnum.errors import ArgumentError, UnsupportedError
from refnum.profiles import Profile, get_profile, profile_name

from ..cases.case import DESCRIPTIVE, Case, plain
from ..cases.contracts import Contract, checked_contract
from ..cases.entry import DATA_PARAMS, UNNAMED_PARAMS
from ..cases.layouts import PLAIN
from ..cases.levels import checked_level
from ..cases.operation import OPERATIONS, arguments_of
from .arrays import LIBRARIES

KINDS = ("model", "host", "gpu", "peer", "user", "control")
DEFAULT_PROFILES = ("HOPPER", "OCP")


class Broken(str):
    """A reason why a subject cannot be judged that is a fault of its own: what should have given one failed."""


def words_of(error: BaseException) -> str:
    """Return the type of an error and the first line of its words."""
    first = next(iter(str(error).strip().splitlines()), "")[:300]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _always() -> tuple[bool, str]:
    return True, ""


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Subject:
    """A judged implementation.

    A subject whose callable names the keyword `layout_in`, `layout_out` or `philox` is judged on scale layouts and on
    random bits by key too.

    Attributes:
        name: unique among the subjects of a run.
        operations: operation -> callable.
        kind: one of `KINDS`.
        profiles: names of the profiles that it claims to implement; None when it claims none. A callable without a
            `profile` keyword is then judged by the profile of the run.
        further: operation -> profiles that it claims for this operation in addition.
        level: the level of agreement that it claims (N16), its name or number. It is judged by this level; the report
            gives the level that it reaches.
        arrays: `numpy`, `cupy`, `torch`, `torch-cuda` or `jax`: the library of the arrays that its callables take. CuPy
            has no bfloat16; CuPy callables take its uint16 bits.
        inputs: the contract of its inputs, a name or names of `cases.contracts`. It is judged on cases inside; what it
            does outside is information.
        available: returns (whether it can be used on this machine, the reason if not).
        describe: returns versions, flags and devices for the report.
        supports: (operation, profile, params) -> the reason why it does not support a variant, or "". It is called
            for the parameters of single cases too, where a case has a value that the operation's table does not list.
        levels: operation -> level of agreement, where that is not `level`.
        outside: case -> the reason why the case is too large for it, or "".
        origin: the `path/to/file.py:name` that it was loaded from, for the replay command.
        on_request: whether it is judged only when the user gives its name, because it is slow.
        one_code: whether scale rule and rounding are arguments of one piece of code, so that a proof under one profile
            holds under the others.
        trace: operation -> digests of the code that runs, for certificates (N18.5).
        mutable: returns the sources that mutation testing may change (`commands.mutate.workshop.Sources`).
        remote: runs a watched call in the subject's own process (`isolation.parent`); None for a subject in this one.
        tunings: operation -> name -> context in which its kernels are launched with another cut, for
            `refnum bench --tune`.
        forced_paths: operation -> name -> context that forces a code path which the callable otherwise takes only for
            large data. Judged cases are small, and each one is run on every path.
    """

    name: str
    operations: Mapping[str, Callable[..., Any]]
    kind: str = "user"
    profiles: tuple[str, ...] | None = None
    further: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    level: int = 0
    arrays: str = "numpy"
    inputs: Contract = ()
    available: Callable[[], tuple[bool, str]] = _always
    describe: Callable[[], dict[str, Any]] = _nothing
    supports: Callable[[str, str, Mapping[str, Any]], str] | None = None
    levels: Mapping[str, int] = field(default_factory=dict)
    outside: Callable[[Case], str] | None = None
    origin: str = ""
    on_request: bool = False
    one_code: bool = False
    trace: Callable[[str], dict[str, str]] | None = None
    mutable: Callable[[], Any] | None = None
    remote: Callable[..., Any] | None = None
    tunings: Callable[[str], Mapping[str, Callable[[], AbstractContextManager[Any]]]] | None = None
    forced_paths: Mapping[str, Mapping[str, Callable[[], AbstractContextManager[Any]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a claimed level of agreement that is none: beyond the last one anything would hold."""
        if not isinstance(self.levels, Mapping):
            raise ArgumentError(f"{self.name} has levels={self.levels!r}; give operation -> level of agreement.")
        object.__setattr__(self, "level", checked_level(self.level, self.name))
        levels = {operation: checked_level(level, self.name) for operation, level in self.levels.items()}
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "inputs", checked_contract(self.inputs, self.name))

    def within(self, contract: Contract) -> Subject:
        """Return this subject, judged by a contract of inputs too, beside its own."""
        return replace(self, inputs=(*self.inputs, *contract)) if contract else self

    def claimed_level(self, operation: str) -> int:
        """Return the level of agreement claimed for an operation."""
        return self.levels.get(operation, self.level)

    def profiles_for(self, operation: str) -> tuple[str, ...]:
        """Return the profiles to judge an operation by when none is asked for: those that it claims.

        A subject that claims none is judged by the usual ones, or by the first of them if it takes no profile.
        """
        claimed = self.claims(operation)
        if claimed:
            return claimed
        return DEFAULT_PROFILES if self._takes_profile(operation) else DEFAULT_PROFILES[:1]

    def claims(self, operation: str) -> tuple[str, ...]:
        """Return the profiles that it claims for an operation; empty when it claims none."""
        return (*(self.profiles or ()), *self.further.get(operation, ()))

    def _takes_profile(self, operation: str) -> bool:
        accepted = accepts(self.operations[operation]) if operation in self.operations else (frozenset[str](), False)
        return accepted is None or accepted[1] or "profile" in accepted[0]

    def refuses(self, operation: str, profile: str, params: Mapping[str, Any]) -> str:
        """Return why this subject cannot be judged on a variant, or an empty string when it can."""
        if operation not in self.operations:
            return f"{self.name} has no {operation}"
        if OPERATIONS[operation].undefined(profile):
            return OPERATIONS[operation].undefined(profile)
        claimed = self.claims(operation) if OPERATIONS[operation].profiled else ()
        if claimed and profile not in claimed:
            return f"{self.name} claims {', '.join(claimed)}, not {profile}"
        if claimed and profile != claimed[0] and not self._takes_profile(operation):
            return f"its {operation} takes no `profile`, so only its first one, {claimed[0]}, can be judged"
        if self.supports is not None:
            try:
                reason = self.supports(operation, profile, params)
            except Exception as error:  # foreign code may fail in any way: its own fault, and nobody else's
                return Broken(f"its `supports` failed: {words_of(error)}")
            if reason:
                return reason
        return _signature_gap(self.operations[operation], operation, params)


_FORMER = {"ways": "forced_paths", "apart": "remote"}
"""Former name of a field -> its name; the dict form takes both for one release."""


def from_dict(entry: Mapping[str, Any] | Subject, origin: str) -> Subject:
    """Return a Subject from the dict form of the entry-point group; ArgumentError names what is wrong."""
    if isinstance(entry, Subject):
        return entry
    if not isinstance(entry, Mapping):
        raise ArgumentError(f"A subject from {origin} is {type(entry).__name__}; give a dict with its fields.")
    entry = {_FORMER.get(name, name): value for name, value in entry.items()}
    fields = set(Subject.__dataclass_fields__)
    unknown = sorted(set(entry) - fields)
    if unknown:
        raise ArgumentError(f"Subject from {origin} has unknown keys {unknown}; allowed are {sorted(fields)}.")
    if not isinstance(entry.get("name"), str) or not isinstance(entry.get("operations"), Mapping):
        raise ArgumentError(f"Subject from {origin} needs a `name` (text) and `operations` (name -> callable).")
    strange = sorted(set(entry["operations"]) - set(OPERATIONS))
    if strange:
        raise ArgumentError(
            f"Subject {entry['name']} from {origin} has unknown operations {strange}; "
            f"choose from {', '.join(OPERATIONS)}."
        )
    if entry.get("kind", "user") not in KINDS:
        raise ArgumentError(f"Subject {entry['name']} has kind {entry['kind']!r}; choose from {', '.join(KINDS)}.")
    if not entry["operations"]:
        raise ArgumentError(f"Subject {entry['name']} from {origin} has no operation: there is nothing to judge.")
    _check_fields(entry, f"Subject {entry['name']} from {origin}")
    values = dict(entry)
    values["profiles"] = _names(values.get("profiles") or ()) or None
    values["further"] = {name: _names(profiles) for name, profiles in (values.get("further") or {}).items()}
    return Subject(**values)


_MAPPINGS = {
    "levels": "operation -> level",
    "further": "operation -> profiles",
    "forced_paths": "operation -> name -> way",
}
_CALLED = ("available", "describe", "supports", "outside", "trace", "mutable", "remote", "tunings")


def _check_fields(entry: Mapping[str, Any], who: str) -> None:
    """Raise ArgumentError for a field of another kind than it must be."""
    for name, what in _MAPPINGS.items():
        if not isinstance(entry.get(name) or {}, Mapping):
            raise ArgumentError(f"{who} has {name}={entry[name]!r}; give a dict, {what}.")
    for name in _CALLED:
        if entry.get(name) is not None and not callable(entry[name]):
            raise ArgumentError(f"{who} has {name}={entry[name]!r}; give a function.")
    for name, function in entry["operations"].items():
        if not callable(function):
            raise ArgumentError(f"{who} has {type(function).__name__} as {name}; give a function.")
    if entry.get("arrays", "numpy") not in LIBRARIES:
        raise ArgumentError(f"{who} has arrays={entry['arrays']!r}; choose from {', '.join(LIBRARIES)}.")
    if not isinstance(entry.get("profiles") or (), Iterable | Profile):
        raise ArgumentError(f"{who} has profiles={entry['profiles']!r}; give their names.")


def _names(profiles: Any) -> tuple[str, ...]:
    """Return the names of profiles; a text is one of them."""
    listed = (profiles,) if isinstance(profiles, str | Profile) else profiles
    return tuple(profile_name(get_profile(profile)) for profile in listed)


def accepts(function: Callable[..., Any]) -> tuple[frozenset[str], bool] | None:
    """Return (named keywords, takes any keyword), or None when the signature cannot be read."""
    if type(function) is FunctionType:
        return _accepts(function)
    return _read(function)


@functools.lru_cache(maxsize=256)
def _accepts(function: FunctionType) -> tuple[frozenset[str], bool] | None:
    return _read(function)


def _read(function: Callable[..., Any]) -> tuple[frozenset[str], bool] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    keywords = frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return keywords, any(p.kind is p.VAR_KEYWORD for p in parameters)


def takes(function: Callable[..., Any], keyword: str) -> bool:
    """Whether a callable names this keyword (a bare `**kwargs` does not count as naming it)."""
    accepted = accepts(function)
    return accepted is not None and keyword in accepted[0]


def takes_out(function: Callable[..., Any], operation: str) -> bool:
    """Whether a callable writes its results into arrays given as `out`, which is no dtype by the operation's row."""
    return "out" not in OPERATIONS[operation].params and takes(function, "out")


def _signature_gap(function: Callable[..., Any], operation: str, params: Mapping[str, Any]) -> str:
    accepted = accepts(function)
    if accepted is None or accepted[1]:
        return ""
    defaults = {**dict.fromkeys(OPERATIONS[operation].layouts, PLAIN), **OPERATIONS[operation].defaults()}
    for name, value in params.items():
        if name not in (*DESCRIPTIVE, *DATA_PARAMS) and name not in accepted[0] and value != defaults.get(name):
            return f"its {operation} takes no {name!r}, so only {name}={defaults.get(name)} can be judged"
    return ""


def _refuses_beside(subject: Subject, case: Case) -> str:
    """Return why a subject does not support a case with a value that is none of the table's choices, or nothing.

    Nor is any value of a parameter that the operation's variants do not have.
    """
    if not subject.supports:
        return ""
    choices = OPERATIONS[case.operation].params
    asked = {name: value for name, value in case.params.items() if name in choices or name in UNNAMED_PARAMS}
    beside = any(name not in choices or value not in choices[name]
                 for name, value in plain(asked).items() if name not in DATA_PARAMS)  # fmt: skip
    if not beside:
        return ""
    params = {name: value for name, value in case.params.items() if name not in DATA_PARAMS}
    return subject.supports(case.operation, case.profile, params)


def declines(subject: Subject, case: Case) -> str:
    """Return why a subject declares a case outside of what it takes, or an empty text."""
    return (subject.outside(case) if subject.outside else "") or _refuses_beside(subject, case)


def arguments_for(subject: Subject, case: Case, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords for one call on these arrays, which are of the subject's library.

    Raises UnsupportedError when the callable cannot take something that matters, or the case is outside of what the
    subject supports.
    """
    reason = declines(subject, case)
    if reason:
        raise UnsupportedError(f"{subject.name}: {reason}.")
    function = subject.operations[case.operation]
    operation = OPERATIONS[case.operation]
    wanted = {**arguments_of(case), **inputs}
    lists = {name: list(value) for name, value in wanted.items() if isinstance(value, list)}
    wanted |= lists  # a kernel that changes its list must not change the case
    if operation.profiled:
        wanted["profile"] = get_profile(case.profile)
    accepted = accepts(function)
    if accepted is None or accepted[1]:
        return wanted
    defaults = {**operation.defaults(), **dict.fromkeys(operation.layouts, PLAIN), "splits": None}
    for name in [name for name in wanted if name not in accepted[0]]:
        value = case.params.get(name)
        droppable = name == "profile" or (name in case.params and value == defaults.get(name, ...))
        droppable |= name in operation.nullable and name not in case.inputs
        if not droppable:
            raise UnsupportedError(f"{subject.name}: its {case.operation} takes no {name!r}.")
        del wanted[name]
    return wanted
