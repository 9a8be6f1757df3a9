"""The call before another one, or in another thread: what a kernel may keep of it must not show in the next.

It is on the same arrays, on other data of their shapes, on other columns, on as many elements in another shape, or of
another variant. What comes of it is looked at elsewhere: it is a call like any other there.
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
    ROWS,
    THE_SAME,
    Cutting,
    Part,
    step_of,
)
from ...cases.structure.turns import cases_beside
from ..subject import Subject, arguments_for
from .call import other_data

KEPT = 3
"""Fields whose columns later ones are called behind."""
_fields: list[tuple[Case, Cutting]] = []
"""The latest fields of one variant, no two with as many columns."""


class Company:
    """The calls that go before those of one subject on the parts of a field."""

    def __init__(self, subject: Subject, case: Case, cutting: Cutting) -> None:
        """Take a field, and keep it for later ones."""
        self.subject, self.cutting = subject, cutting
        self.others = other_variants(subject, case.operation, case.profile, case.params)
        same = [one for one in _fields if _variant(one[0]) == _variant(case)]
        self.earlier = [one for one in same if _columns(one[0]) != _columns(case)]
        _fields[:] = [*self.earlier[-KEPT:], (case, cutting)]

    def before(self, part: Part, case: Case) -> Case | None:
        """Return the case that goes before a part's, or at its time in another thread; None where nothing does."""
        if part.calls not in BEHIND or not case.elements:
            return None
        plain = replace(case, params={**case.params, FORM: {}})
        if part.calls in (THE_SAME, ANOTHER_THREAD):
            return plain
        if part.calls == ANOTHER_VARIANT and self.others:
            return self.others[(part.first + part.count + case.elements) % len(self.others)]
        found = None
        if part.calls == ANOTHER_SHAPE:
            found = _turned(plain, self.cutting)
        elif part.calls == OTHER_COLUMNS:
            found = next(self._wider(part), None)
        return found or other_data(plain)

    def keywords(self, case: Case) -> dict[str, Any] | None:
        """Return the keywords of a call on a case, with arrays of its own; None where the subject takes no such."""
        arrays = {name: np.array(one) for name, one in stored_inputs(case).items()}
        with suppress(RefnumError):
            return arguments_for(self.subject, case, arrays)
        return None

    def _wider(self, part: Part) -> Iterator[Case]:
        """Yield cases of as many rows as a part has, and other columns."""
        for case, cutting in reversed(self.earlier) if self.cutting.axis == ROWS else ():
            if all(
                case.inputs[name].shape[axis] >= part.count * step
                for name, (axis, step) in cutting.inputs.items()
                if name in case.inputs
            ):
                yield replace(part, first=0, row={}, form={}, same=False).case(case, cutting)


def _variant(case: Case) -> tuple[str, str, str]:
    return case.operation, case.profile, str(sorted(case.params.items()))


def _columns(case: Case) -> int:
    return int(case.inputs[OPERATIONS[case.operation].inputs[0]].shape[-1])


def other_variants(subject: Subject, operation: str, profile: str, params: Mapping[str, Any]) -> list[Case]:
    """Return a small case of each other variant that a subject has, always the same.

    params: those that a variant is named by; others are left out.
    """
    row = OPERATIONS[operation]
    kept = {name: level for name, level in params.items() if name in {*row.params, *row.layouts, "random"}}
    kept |= {"random": "keyed"} if "philox" in params else {}
    every = cases_beside(operation, profile, kept)
    return [one for one in every if not subject.refuses(one.operation, one.profile, one.params)]


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
    cut = cutting.inputs.keys() & case.inputs.keys()
    return case.with_inputs({name: np.reshape(case.inputs[name], shape) for name in cut})
