"""How a large case is cut into parts whose golden answers are parts of its own.

Most operations are local: the answer to some rows of a matrix is those rows of the answer. Whether an operation is, and
how its arrays are cut, is found by the golden model.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refnum.errors import RefnumError

from ..case import FORM, Case, plain
from ..layouts import IN, OUT
from ..operation import OPERATIONS, run_golden
from .build import build
from .covering import Level, Row
from .factors import RAGGED, ROUTED
from .mixed import LOOSE, columns_of

Arrays = Mapping[str, np.ndarray]
ROWS, COLUMNS, WHOLE = "rows", "columns", "whole"
TILE = 128
"""Columns by which fields of blocks are cut along their rows: whole tiles, so that the last tile of a part is its
field's."""
BATCH = 1 << 18
"""Elements of the parts that are called one after the other before their answers are compared."""
GIVEN = ("tensor_amax",)
"""Inputs that a field has where its operation takes them: without them the answer hangs on all elements. An output that
does not grow, such as a scale of the tensor, then hangs on them alone, which the golden answer to a part confirms."""
TWO_EXPERTS: Row = {"experts": 2, "rows of an expert": 34, "rows before it": 32, "empty experts": "none", "tokens": 40}
FEW, MANY, NARROW = 7, 263, 160
"""Experts, and rows and columns, of the cases that tell how arrays grow: by more rows than any tile has."""


@dataclass(frozen=True)
class Cutting:
    """How the arrays of an operation are cut.

    axis: `rows`, `columns`, or `whole` where nothing is. inputs, outputs: name -> (axis, elements a row or a step of
    columns) of what is cut. from_first: whether every part begins at the first row, as random bits of a key do.
    """

    axis: str
    inputs: Mapping[str, tuple[int, int]]
    outputs: Mapping[str, tuple[int, int]]
    from_first: bool = False


REFUSED, AT_ONCE = "after a refusal", "at once"
THE_SAME, OTHER_DATA = "behind the same", "behind other data"
OTHER_COLUMNS, OTHER_ROWS = "behind other columns", "behind other rows"
ANOTHER_SHAPE, ANOTHER_VARIANT = "behind another shape", "behind another variant"
ANOTHER_THREAD = "behind another thread"
BEHIND = (THE_SAME, OTHER_DATA, OTHER_COLUMNS, OTHER_ROWS, ANOTHER_SHAPE, ANOTHER_VARIANT, ANOTHER_THREAD)
"""How a part is called: right behind a call that must be refused, at once with its like, or right behind another call:
of the same inputs, of other data in their shapes, of as many rows of other columns, of half of the rows, of as many
elements in another shape, of another variant, or of the same from another thread."""
UNCUT = Cutting(WHOLE, {}, {})
"""That of a variant whose answers to parts are no parts of its answer: a case is called in many forms."""


@dataclass(frozen=True)
class Part:
    """Some rows of a field, or all columns from a tile on, or a whole field, and how a call on them is made.

    first: row or tile. count: rows; 0 for all that follows. row: the levels of its case. form: as in `Case.params`.
    same: every row is the first one, as a storage that repeats rows wants it. calls: what goes before, or at its time.
    turn: which of several such calls, by the times that the part's number is called so. elsewhere: whether the call
    before it comes from another thread.
    """

    first: int
    count: int
    row: Row
    form: Mapping[str, Level]
    same: bool = False
    calls: str = "once"
    turn: int = 0
    elsewhere: bool = False

    @property
    def behind_refusal(self) -> bool:
        """Whether a call at once comes right behind a refused one, as one in three does."""
        return self.calls == AT_ONCE and self.turn % 3 == 1

    @property
    def behind_variant(self) -> bool:
        """Whether a call at once comes right behind one of another variant, as one in three does."""
        return self.calls == AT_ONCE and self.turn % 3 == 2

    def without_out(self) -> Part:
        """Return the part in a call that gives no `out`."""
        return self.without([name for name in self.form if name.startswith("out")])

    def without(self, names: Collection[str]) -> Part:
        """Return the part in a call in which these factors of its form are plain; itself for none."""
        if not names:
            return self
        row, form = ({name: level for name, level in one.items() if name not in names} for one in (self.row, self.form))
        return replace(self, row=row, form=form)

    def of(self, arrays: Arrays, cut: Mapping[str, tuple[int, int]]) -> dict[str, np.ndarray]:
        """Return arrays of a field, cut; views of them."""
        return {name: self._one(array, *cut[name]) if name in cut else array for name, array in arrays.items()}

    def _one(self, array: np.ndarray, axis: int, step: int) -> np.ndarray:
        if self.same:
            one = array[self.first : self.first + 1]
            return np.broadcast_to(one, (self.count, *one.shape[1:]))
        place = slice(self.first * step, (self.first + self.count) * step if self.count else None)
        return array[place] if axis == 0 else array[(slice(None),) * axis + (place,)]

    def case(self, field: Case, cutting: Cutting) -> Case:
        """Return the case of this part of a field, with arrays of its own."""
        inputs = {name: np.array(array, order="C") for name, array in self.of(field.inputs, cutting.inputs).items()}
        params = {**field.params, **({FORM: dict(self.form)} if self.form else {})}
        label = "structure: " + ", ".join(f"{name} {level}" for name, level in self.row.items())
        return replace(field, inputs=inputs, params=params, label=label)


@dataclass(frozen=True)
class Field:
    """A case that is cut, its parts, and the number of the first one among all parts of a variant."""

    case: Case
    cutting: Cutting
    parts: tuple[Part, ...]
    number: int

    def batches(self, out: bool) -> Iterator[tuple[int, tuple[Part, ...]]]:
        """Yield the parts in runs of few elements, each with the number of its first part.

        out: whether calls may give `out`.
        """
        first, run, size = self.number, list[Part](), 0
        for part in self.parts:
            run.append(part if out else part.without_out())
            size += elements(part.row)
            if size > BATCH:
                yield first, tuple(run)
                first, run, size = first + len(run), [], 0
        if run:
            yield first, tuple(run)


def one_shape(case: Case, cutting: Cutting) -> bool:
    """Whether all that is cut of a case, or all of it, is as large as its elements, so that it has other shapes
    too."""
    shape, cut = case.inputs[OPERATIONS[case.operation].inputs[0]].shape, cutting.inputs.keys() & case.inputs.keys()
    return len(shape) == 2 and all(case.inputs[name].shape == shape for name in cut or case.inputs)


def elements(row: Row) -> int:
    """Return the elements of a part."""
    return int(row.get("rows", row.get("drawn rows", 1))) * int(row["columns"])


def step_of(operation: str) -> int:
    """Return the columns by which an operation's fields are cut along their rows."""
    return TILE if operation in RAGGED else 1 if operation in LOOSE else 32


def cutting(operation: str, profile: str, params: Mapping[str, Any], levels: Row | None = None) -> Cutting:
    """Return how a variant is cut, as its operation on plain scales is; `UNCUT` where parts have other answers.

    levels: of all its fields, such as random bits that are given.
    """
    given = {name: value for name, value in params.items() if name not in (IN, OUT)}
    return _cutting(operation, profile, json.dumps(plain(given)), tuple((levels or {}).items()))


@functools.lru_cache(maxsize=64)
def _cutting(operation: str, profile: str, params: str, levels: tuple[tuple[str, Level], ...]) -> Cutting:
    given, along = json.loads(params), operation in RAGGED or operation in ROUTED
    row: Row = {name: "given" for name in GIVEN if name in OPERATIONS[operation].optional}
    row |= {"classes": "special", **dict(levels)}
    row |= TWO_EXPERTS if along else {}
    step, most = step_of(operation), columns_of(operation, NARROW)
    more = columns_of(operation, NARROW + step)
    sides = ((FEW, most), (FEW, more)) if along else ((FEW, most), (MANY, most))
    try:
        cases = [build(operation, profile, given, {**row, "rows": a, "columns": b}, 1) for a, b in sides]
        answers = [run_golden(case) for case in cases]
        steps = 1 if along else MANY - FEW
        ordinary = build(
            operation, profile, given, {**row, "classes": "ordinary", "rows": sides[1][0], "columns": sides[1][1]}, 2
        )
        inputs, outputs = (_ways(one, other, steps) for one, other in ([case.inputs for case in cases], answers))
    except (RefnumError, KeyError):
        return UNCUT
    whole = OPERATIONS[operation].outputs if along else ()
    uncut = set(answers[0]) - {*(outputs or ()), *GIVEN, *(output.name for output in whole if output.kind == "index")}
    if not inputs or not outputs or (uncut and set(GIVEN).isdisjoint(row)):
        return UNCUT
    ways = [Cutting(COLUMNS, inputs, outputs)] if along else []
    ways += [] if along else [Cutting(ROWS, inputs, outputs, first) for first in (False, True)]
    # special elements can decide everything, which then looks as if each row stood by itself
    beside = ordinary if along else _with_special_rows(ordinary, cases[1], inputs)
    held = ((cases[1], answers[1]), (beside, run_golden(beside)))
    return next((way for way in ways if all(_holds(way, *one) for one in held)), UNCUT)


def _with_special_rows(ordinary: Case, special: Case, inputs: Mapping[str, tuple[int, int]]) -> Case:
    """Return a case of ordinary rows, as many as a part is tried with, above rows with special elements.

    Operands of a product, whose scales are of other kinds, stay ordinary.
    """
    if any(ordinary.inputs[name].shape != special.inputs[name].shape for name in inputs):
        return ordinary
    arrays = {name: np.concatenate([ordinary.inputs[name][:FEW], special.inputs[name][FEW:]]) for name in inputs}
    return ordinary.with_inputs(arrays)


def _holds(way: Cutting, case: Case, answer: Arrays) -> bool:
    """Whether the answer to a part is a part of the answer."""
    part = Part(0 if way.from_first else 1, 0 if way.axis == COLUMNS else 4, {}, {})
    try:
        got = run_golden(part.case(case, way))
    except (RefnumError, KeyError):
        return False
    want = part.of(answer, way.outputs)
    return all(np.array_equal(want[name], array) for name, array in got.items())


def _ways(small: Arrays, large: Arrays, steps: int) -> dict[str, tuple[int, int]] | None:
    """Return name -> (axis, elements a step) of the arrays that grow; None where one grows in another way."""
    ways: dict[str, tuple[int, int]] = {}
    for name, array in large.items():
        grown = [axis for axis in range(array.ndim) if array.shape[axis] != small[name].shape[axis]]
        by_row = steps == 1 or not grown or (grown == [0] and len(array) == MANY)
        if len(grown) > 1 or not by_row:
            return None
        if grown:
            ways[name] = grown[0], (array.shape[grown[0]] - small[name].shape[grown[0]]) // steps
    return ways
