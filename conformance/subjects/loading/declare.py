"""The decorator that declares a function as a subject, and what a declaration may say.

from refnum.conformance import implements

@implements("quantize_mxfp4", profile="OCP", columns=128, nibbles="high_first")
def my_quantizer(x): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from refnum.errors import ArgumentError
from refnum.profiles import Profile, get_profile, profile_name

from ...cases.case import Case
from ...cases.contracts import checked_contract
from ...cases.entry import FLOAT_INPUTS
from ...cases.levels import checked_level
from ...cases.operation import OPERATIONS, near
from ...cases.structure.byte_order import swapped
from .layouts import in_layouts

F = TypeVar("F", bound=Callable[..., Any])
MARK = "refnum_subject"


@dataclass(frozen=True)
class Declaration:
    """What a function said of itself: the operation and the entry of the dict form of a subject."""

    operation: str
    entry: Mapping[str, Any]


@dataclass(frozen=True)
class Limits:
    """Inputs that a kernel supports; cases outside are reported as unsupported, not as wrong.

    dtypes: names of the floating-point inputs it takes (empty: all), by the parameter `input` or, where an operation
    has none, by the first matrix. rows, columns: what the first two-dimensional input's rows and columns, in that
    array's own elements, must be multiples of. max_elements: of any input.
    """

    dtypes: tuple[str, ...] = ()
    rows: int = 1
    columns: int = 1
    max_elements: int = 0

    def refuses(self, case: Case) -> str:
        """Return why a case is outside, or an empty string."""
        first = next((array for array in case.inputs.values() if array.ndim == 2), None)
        given = case.params.get("input") or (first.dtype.name if first is not None else "")
        if self.dtypes and given in FLOAT_INPUTS and given not in self.dtypes:
            return f"it takes {', '.join(self.dtypes)}, not {given}"
        if self.dtypes and swapped(case):
            return f"it takes {', '.join(self.dtypes)} in the machine's byte order"
        own = case.inputs["x"].dtype.name if "x" in case.inputs else ""
        if self.dtypes and own and own not in (*self.dtypes, "uint16"):  # uint16 holds bfloat16 bits
            return f"it takes {', '.join(self.dtypes)}, not {own}"
        if first is not None and (first.shape[0] % self.rows or first.shape[1] % self.columns):
            return f"it takes rows in multiples of {self.rows} and columns of {self.columns}, not {list(first.shape)}"
        largest = max((array.size for array in case.inputs.values()), default=0)
        if self.max_elements and largest > self.max_elements:
            return f"it takes at most {self.max_elements} elements, not {largest}"
        return ""


@dataclass(frozen=True)
class AnyOf:
    """The limits of a subject with several operations, by operation."""

    limits: Mapping[str, Limits] = field(default_factory=dict)

    def __call__(self, case: Case) -> str:
        """Return why a case is outside its operation's limits, or an empty string."""
        return self.limits[case.operation].refuses(case) if case.operation in self.limits else ""


def implements(
    operation: str,
    *,
    name: str = "",
    profile: str | Profile | Sequence[str | Profile] | None = None,
    arrays: str = "numpy",
    level: int | str = 0,
    inputs: str | Sequence[str] = (),
    dtypes: Sequence[str] = (),
    rows: int = 1,
    columns: int = 1,
    max_elements: int = 0,
    nibbles: str = "low_first",
    scales: str = "bytes",
    **more: Any,
) -> Callable[[F], F]:
    """Declare a function as an implementation of an operation; it can still be called as before.

    name: of the subject; functions of one file with the same name are one subject (default: the function's name).
    profile: the profile or profiles that it follows, by name, as `OCP+ties=away`, or as `refnum.Profile` (N14).
    arrays, level and `more`: fields of `subject.Subject`. inputs: the contract of its inputs, `finite`, `nonzero`,
    `normal` or several of them (`cases.contracts`): it is verified inside, and what it does outside is information.
    dtypes, rows, columns, max_elements: see `Limits`. nibbles, scales: the layouts of `refnum.layouts` that its packed
    codes and scales have, in and out.
    Raises ArgumentError for an unknown operation, layout or level of agreement, ProfileError for an unknown profile.
    """
    if operation not in OPERATIONS:
        raise ArgumentError(
            f"No operation is named {operation!r}{near(operation)}; choose from {', '.join(OPERATIONS)}."
        )
    level = checked_level(level, name or operation)
    contract = checked_contract(inputs, name or operation)
    profiles = (profile,) if isinstance(profile, str | Profile) else tuple(profile or ())
    limits = Limits(tuple(dtypes), rows, columns, max_elements)

    def mark(function: F) -> F:
        judged = in_layouts(function, operation, nibbles, scales, arrays)
        entry = {
            "name": name or getattr(function, "__name__", operation),
            "operations": {operation: judged},
            "profiles": [profile_name(get_profile(one)) for one in profiles] or None,
            "arrays": arrays,
            "level": level,
            "inputs": contract,
            "outside": AnyOf({operation: limits}) if limits != Limits() else None,
            **more,
        }
        setattr(function, MARK, Declaration(operation, entry))
        return function

    return mark


def declared(values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the entries of all declared functions among some values, those with the same name as one subject.

    Raises ArgumentError when two of one name say different things.
    """
    entries: dict[str, dict[str, Any]] = {}
    for value in values:
        mark = getattr(value, MARK, None)
        if not isinstance(mark, Declaration):
            continue
        entry = dict(mark.entry)
        before = entries.get(entry["name"])
        entries[entry["name"]] = entry if before is None else _joined(before, entry)
    return list(entries.values())


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    kept = ("operations", "outside")
    unlike = [key for key in {**one, **other} if key not in kept and one.get(key) != other.get(key)]
    if unlike:
        raise ArgumentError(
            f"Two functions of the subject {one['name']} differ in {', '.join(unlike)}: name them apart."
        )
    limits = {**getattr(one["outside"], "limits", {}), **getattr(other["outside"], "limits", {})}
    return {**one, "operations": {**one["operations"], **other["operations"]}, "outside": AnyOf(limits) or None}
