"""The call before another one, or in another thread: what a kernel may keep of it must not show in the next.

It is on the same arrays, on other data of their shapes, on other columns or rows, on as many elements in another shape,
or of another variant with other optional inputs. What comes of it is looked at elsewhere: it is a call like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from refnum.errors import RefnumError

from ...cases.case import FORM, Case
from ...cases.layouts import stored_inputs
from ...cases.operation import OPERATIONS
from ...cases.structure.cutting import (
    ANOTHER_SHAPE,
    ANOTHER_THREAD,
    ANOTHER_VARIANT,
    BEHIND,
    OTHER_COLUMNS,
    OTHER_ROWS,
    ROWS,
    THE_SAME,
    Cutting,
    Part,
    step_of,
)
from ...cases.structure.turns import case_beside, far_from, opposite
from ..subject import Subject, arguments_for
from .call import other_data

FEW = 3
"""Other variants below which each stands before a call in both dtypes."""
KEPT = 3
"""Fields whose columns later ones are called behind."""
Keywords = dict[str, Any]
Known = dict[int, Keywords | None]
"""Identity of a case, 0 for one of the variant at hand -> the keywords of its call but for the arrays; None where the
subject takes no such call."""
_far: dict[str, tuple[Subject, list[tuple[str, Mapping[str, Any]]]]] = {}
"""Variant, without the data of a case -> the latest subject, and the other variants that it has."""
_beside: dict[tuple[Any, ...], tuple[Subject, list[Case], Known]] = {}
"""(variant, inputs) -> the latest subject, cases of the other variants that it has, and what is known of these."""
_fields: list[tuple[str, Case, Cutting]] = []
"""The latest fields of one variant, which comes first, no two with as many columns."""


class Company:
    """The calls that go before those of one subject on the parts of a field."""

    def __init__(self, subject: Subject, case: Case, cutting: Cutting) -> None:
        """Take a field, and keep it for later ones."""
        self.subject, self.case, self.cutting = subject, case, cutting
        self.others, self.known = _with_other_inputs(subject, case)
        self.known.pop(0, None)
        self.other: Case | None = None
        own = _variant(case)
        same = [one for one in _fields if one[0] == own and _columns(one[1]) != _columns(case)]
        self.earlier = [(one, cut) for _, one, cut in same]
        _fields[:] = [*same[-KEPT:], (own, case, cutting)]

    def before(self, part: Part, case: Case) -> Case | None:
        """Return the case that goes before a part's, or at its time in another thread; None where nothing does."""
        calls = ANOTHER_VARIANT if part.behind_variant else part.calls
        if calls not in BEHIND or not case.elements:
            return None
        if calls == ANOTHER_VARIANT and self.others:
            return self.others[part.turn % len(self.others)]
        params = {**case.params, FORM: {}}
        plain = Case(case.operation, case.profile, params, case.inputs, case.recipe, case.label, case.domain)
        if calls in (THE_SAME, ANOTHER_THREAD):
            return plain
        found = None
        if calls == ANOTHER_SHAPE:
            found = _turned(plain, self.cutting)
        elif calls == OTHER_ROWS:
            found = _part_of(plain, 0, 1)
        elif calls == OTHER_COLUMNS:
            found = next(self._wider(part), None) or _part_of(plain, 1, step_of(case.operation))
        return found or replace(plain, inputs=part.of(self._other_data(), self.cutting.inputs))

    def keywords(self, case: Case) -> Keywords | None:
        """Return the keywords of a call on a case, with arrays of its own; None where the subject takes no such."""
        if self.subject.outside is not None and self.subject.outside(case):
            return None
        arrays = {name: np.array(one) for name, one in stored_inputs(case).items()}
        key = id(case) if any(one is case for one in self.others) else 0
        if key not in self.known:
            self.known[key] = None
            with suppress(RefnumError):
                given = arguments_for(self.subject, case, arrays)
                self.known[key] = {name: value for name, value in given.items() if name not in arrays}
        known = self.known[key]
        if known is None:
            return None
        lists = {name: list(value) for name, value in known.items() if isinstance(value, list)}
        return {**known, **lists, **arrays}

    def _other_data(self) -> Mapping[str, np.ndarray]:
        """Return the field's arrays with other data, of which each part has the numbers that its own are made of."""
        if self.other is None:
            self.other = other_data(self.case, {name: axis for name, (axis, _) in self.cutting.inputs.items()})
        return self.other.inputs

    def _wider(self, part: Part) -> Iterator[Case]:
        """Yield cases of as many rows as a part has, and other columns."""
        for case, cutting in reversed(self.earlier) if self.cutting.axis == ROWS else ():
            if all(
                case.inputs[name].shape[axis] >= part.count * step
                for name, (axis, step) in cutting.inputs.items()
                if name in case.inputs
            ):
                yield replace(part, first=0, row={}, form={}, same=False).case(case, cutting)


def _variant(case: Case) -> str:
    return f"{case.operation} {case.profile} {sorted(case.params.items())}"


def _columns(case: Case) -> int:
    return int(case.inputs[OPERATIONS[case.operation].inputs[0]].shape[-1])


def other_variants(subject: Subject, operation: str, profile: str, params: Mapping[str, Any]) -> list[Case]:
    """Return a small case of each variant of `far_from` that a subject has, always the same.

    params: those that a variant is named by; others are left out.
    """
    every = _others(subject, operation, profile, params)
    return [case_beside(operation, *one, {}, place) for place, one in enumerate(every)]


def _others(
    subject: Subject, operation: str, profile: str, params: Mapping[str, Any]
) -> list[tuple[str, Mapping[str, Any]]]:
    row = OPERATIONS[operation]
    kept = {name: level for name, level in params.items() if name in {*row.params, *row.layouts, "random"}}
    kept |= {"random": "keyed"} if "philox" in params else {}
    key = f"{operation} {profile} {sorted(kept.items())}"
    if key not in _far or _far[key][0] is not subject:
        if len(_far) > KEPT:
            _far.clear()
        _far[key] = subject, far_from(operation, profile, kept, subject.refuses)
    return _far[key][1]


def _with_other_inputs(subject: Subject, case: Case) -> tuple[list[Case], Known]:
    """Return cases of other variants without the optional inputs that a case has, or with those that it lacks.

    Every other one has inputs of another dtype, and where there are few variants each comes both ways. With them
    comes what is known of them.
    """
    key = _variant(case), *case.inputs
    if key in _beside and _beside[key][0] is subject:
        return _beside[key][1:]
    every = _others(subject, case.operation, case.profile, case.params)
    given, dtypes = opposite(case)
    own = {name: level for name, level in case.params.items() if name in OPERATIONS[case.operation].params}
    if not every and (given or dtypes):
        every = [(case.profile, own)]
    laps = (0, 1) if dtypes and len(every) < FEW else (0,)
    ways = [(place, one, dtypes if (place + lap) % 2 else {}) for lap in laps for place, one in enumerate(every)]
    if len(_beside) > KEPT:
        _beside.clear()
    found = [case_beside(case.operation, *one, {**given, **more}, place) for place, one, more in ways]
    _beside[key] = subject, found, {}
    return found, _beside[key][2]


def _part_of(case: Case, axis: int, step: int) -> Case | None:
    """Return a case of half of the rows, or of the columns, where all inputs that have several are cut alike."""
    shape = case.inputs[OPERATIONS[case.operation].inputs[0]].shape
    whole = [name for name, array in case.inputs.items() if array.size > 1]
    count = shape[axis] // step
    if (
        count < 2
        or shape[axis] % step
        or len(shape) != 2
        or any(case.inputs[name].ndim != 2 or case.inputs[name].shape[axis] % count for name in whole)
    ):
        return None
    kept = count // 2
    cut = {name: case.inputs[name] for name in whole}
    sides = {name: array.shape[axis] // count * kept for name, array in cut.items()}
    return case.with_inputs({name: array[: sides[name]] if axis == 0 else array[:, : sides[name]]
                             for name, array in cut.items()})  # fmt: skip


def _turned(case: Case, cutting: Cutting) -> Case | None:
    """Return a case of the same elements with twice the rows and half the columns, or the other way round."""
    rows, columns = case.inputs[OPERATIONS[case.operation].inputs[0]].shape
    step = step_of(case.operation)
    if not columns % (2 * step):
        shape = 2 * rows, columns // 2
    elif not rows % 2:
        shape = rows // 2, 2 * columns
    else:
        return None
    cut = cutting.inputs.keys() & case.inputs.keys() or case.inputs.keys()
    return case.with_inputs({name: np.reshape(case.inputs[name], shape) for name in cut})
