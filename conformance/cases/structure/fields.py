"""Fields of a variant: large cases of which thousands of parts are asked as calls of their own.

The golden model runs once a field. So exact numbers of rows beside exact numbers of columns, and each of them beside
every form of the call, cost little more than the subject's own calls.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from ..case import Case
from ..layouts import IN
from .build import build, form_of, holds
from .covering import Level, Row, Table
from .cutting import (
    ANOTHER_SHAPE,
    ANOTHER_THREAD,
    ANOTHER_VARIANT,
    AT_ONCE,
    BEHIND,
    COLUMNS,
    GIVEN,
    OTHER_COLUMNS,
    OTHER_DATA,
    OTHER_ROWS,
    REFUSED,
    ROWS,
    THE_SAME,
    Cutting,
    Field,
    Part,
    cutting,
    one_shape,
    step_of,
)
from .groups import RESIDUE_SET, Maker, Members, groups
from .mixed import columns_of, drawn_shape, free
from .numbers import MOST, TURNS, unit
from .plan import tables
from .ragged import EVERY

SEEDS = 6
"""Seeds of which one gives arrays that are cut in the way that was found."""
OUT, SAME, OTHERS = (0, 4), (5,), (1, 2, 3, 6, 7)
"""Of eight turns those that give `out`, those that repeat a row, and those in any other storage."""
_KINDS = tuple(next(kind for kind in (OUT, SAME, OTHERS) if turn in kind) for turn in range(8))
SEEN_AGAIN = 1 << 14
"""Elements up to which a pair that is asked once, in a form that shows less, is asked in another one too: a call that
gives `out` hands out no arrays of its own, and rows that are all alike cannot be told apart."""
ENOUGH_TURNS = 2 * TURNS
"""Turns of a number after which a pair that is asked once is asked in no form that shows less."""
CALL_TURNS = (ANOTHER_VARIANT, THE_SAME, OTHER_DATA, REFUSED, OTHER_COLUMNS, ANOTHER_SHAPE, AT_ONCE, ANOTHER_THREAD,
              OTHER_ROWS)  # fmt: skip
"""How the calls of nine turns are made: each of the eight forms in turn."""
BRIEF_TURNS = 5
"""Of so many calls of a variant that is not the first one is made in turn; the others are behind another variant."""
BEHIND_LARGE = 1 << 16
"""Elements beyond which a part is called behind a small call of another variant, in the place of one as large."""
ELSEWHERE = {False: (2, 5), True: (0, 2, 4, 5)}
"""Of seven turns those whose call before comes from another thread, of small parts and of such large ones."""
APART = 11
"""Turns between those of two numbers that are neighbours."""
STEPS = (1, 17, 19, 29, 31, 37, 41, 43, 47, 53)
"""Steps by which the levels of factors are taken in turn: they have no divisor in common with the numbers of levels."""
MOST_TOKENS, CROWDED, MOST_PADDED = 16390, 5, 1 << 13
"""The most tokens; of how many fields one has as many as may be; elements of padding by which few are aligned."""


def fields(operation: str, profile: str, params: Mapping[str, Any], amount: str) -> Iterator[Field]:
    """Yield the fields of a variant, always the same; none at level smoke."""
    if amount == "smoke":
        return
    found, every = cutting(operation, profile, params), tables(operation, profile, params)
    maker = Maker(operation, profile, params, found, every, amount == "brief")
    salt, number, met = f"{operation} {profile} {sorted(params.items())}", 0, Counter[tuple[bool, int]]()
    for place, (one, way, members) in enumerate(groups(maker, amount, Random(salt))):
        field = _field(one, way, members, place, Random(f"{salt} {place}"), number, met)
        if field is not None:
            yield field
            number += len(field.parts)


def parts(operation: str, profile: str, params: Mapping[str, Any], amount: str) -> Iterator[Case]:
    """Yield the case of every part of a variant's fields, in order."""
    for field in fields(operation, profile, params, amount):
        yield from (part.case(field.case, field.cutting) for part in field.parts)


def _field(
    maker: Maker,
    way: Row,
    members: Members,
    place: int,
    dice: Random,
    number: int,
    met: Counter[tuple[bool, int]],
) -> Field | None:
    """Return a field with its parts, None where no seed gives arrays that are cut in the way that was found.

    met: how often each number of rows, or of columns, was asked: the larger one of a pair, which stands in fewer pairs,
    says in which form they are asked.
    """
    operation, found = maker.operation, maker.cutting
    forms, outs, shapes = maker.every
    cell = max(rows for rows, _, _ in members), max(size for _, size, _ in members)
    shape = drawn_shape(operation, shapes, 0, MOST // 2, dice, cell)
    shape |= {name: "given" for name in GIVEN if name in shape}
    if "drawn" in shape:
        shape["drawn"] = dice.choice(("one", "cut", "cut", "cut", "balanced", "rising"))
    if "tokens" in shape and place % CROWDED == 0:
        shape |= {"tokens": max(1, min(MOST_TOKENS, MOST // int(shape["columns"]))), "taken": "scattered"}
    shape |= way
    if operation == "unpermute" and place % CROWDED != 1:  # its model adds the rows of a token one after the other
        shape |= {"tokens": max(int(shape["tokens"]), int(shape["drawn rows"]) // 4), "taken": "scattered"}
    if "align" in shape and int(shape["align"]) * _experts(shape) * int(shape["columns"]) > MOST_PADDED:
        shape["align"] = dice.choice((1, 2, 8))
    repeated = {} if _repeats(maker) else _repeated(forms, dice)
    cases = (build(operation, maker.profile, maker.params, {**shape, **repeated}, seed)
             for seed in range(number, number + SEEDS))  # fmt: skip
    case = next((one for one in cases if found.axis != ROWS or _fits(one, found, int(shape["rows"]))), None)
    if case is None:
        return None
    made, unable = [], _unable(case, found, place)
    tables = _levels(shape, {**forms, **outs}), _levels(shape, forms)
    turns = ((rows, size, turn) for rows, size, times in members for turn in _turns(operation, rows, size, times, met))
    for rows, size, turn in turns:
        named, same = _form(maker, case, tables[turn % 8 not in OUT], turn)
        calls = CALL_TURNS[turn % len(CALL_TURNS)]
        calls = unable.get(calls, calls)
        large = rows * size * unit(operation) > BEHIND_LARGE
        if (maker.brief and turn % BRIEF_TURNS) or (calls in BEHIND and large):
            calls = ANOTHER_VARIANT
        elsewhere = calls == ANOTHER_THREAD or turn % 7 in ELSEWHERE[large]
        turn = turn if maker.brief and calls != AT_ONCE else turn // len(CALL_TURNS)
        how = {"same": same, "calls": calls, "turn": turn, "elsewhere": elsewhere}
        made.append(_part(maker, {**shape, **named, **repeated, "calls": calls}, cell, rows, size, how, dice))
    return Field(case, found, tuple(dice.sample(made, len(made))), number)


def _unable(case: Case, found: Cutting, place: int) -> dict[str, str]:
    """Return how no part of a field can be called, and how it is called instead.

    The first field has no other columns before it; many have no other shape.
    """
    if found.axis == COLUMNS:
        return {OTHER_COLUMNS: ANOTHER_VARIANT, OTHER_ROWS: OTHER_DATA, ANOTHER_SHAPE: ANOTHER_VARIANT}
    if one_shape(case, found):
        return {}
    return {ANOTHER_SHAPE: OTHER_DATA, **({} if place and found.axis == ROWS else {OTHER_COLUMNS: OTHER_DATA})}


def _turns(operation: str, rows: int, size: int, times: int, met: Counter[tuple[bool, int]]) -> Iterator[int]:
    """Yield the turns in which a pair is asked, so many or, where it would be seen less, some more; see `_field`.

    A number that was seen in enough turns goes on to one that shows more.
    """
    rarer, seen = (rows >= size, max(rows, size)), False
    alone = times == 1 and rows * size * unit(operation) <= SEEN_AGAIN and rarer[1] not in RESIDUE_SET
    if rarer[1] in RESIDUE_SET and not met[rarer]:  # it is asked few times, first in a form that shows all
        met[rarer] = next(turn for turn in range(8) if (turn + APART * rarer[1]) % 8 in OTHERS)
    while times > 0 or (alone and not seen):
        turn = met[rarer] + APART * rarer[1]
        met[rarer] += 1
        seen = turn % 8 in OTHERS
        if seen or not alone or met[rarer] <= ENOUGH_TURNS:
            times -= 1
            yield turn


def _experts(shape: Row) -> int:
    """Return about how many experts a shape has."""
    way, _, count = str(shape["drawn"]).partition(" ")
    return int(
        count
        or {"thousand": 1100, "many": 1100, "alike": 100, "cut": 100, "balanced": 66, "every": len(EVERY)}.get(way, 8)
    )


def _part(
    maker: Maker, row: Row, cell: tuple[int, int], rows: int, size: int, how: Mapping[str, Any], dice: Random
) -> Part:
    """Return some rows of a field, or its last columns, or the whole. how: the call is made, as fields of a part."""
    if maker.cutting.axis == ROWS:
        first = 0 if maker.cutting.from_first else dice.randint(0, cell[0] - rows)
        return Part(first, rows, {**row, "rows": rows}, form_of(row), **how)
    row = {**row, "columns": columns_of(maker.operation, size * unit(maker.operation))}
    first = (cell[1] - size) * unit(maker.operation) // step_of(maker.operation)
    return Part(first if maker.cutting.axis == COLUMNS else 0, 0, row, form_of(row), **how)


def _repeated(forms: Table, dice: Random) -> Row:
    """Return the storage of one input of a field, whose rows or columns are all alike; often none."""
    names = [name for name, levels in forms.items() if name.endswith(".storage") and "broadcast columns" in levels]
    if not names or dice.random() < 0.8:
        return {}
    name = dice.choice(names)
    return {name: dice.choice([level for level in forms[name] if str(level).startswith("broadcast")])}


def _fits(case: Case, found: Cutting, rows: int) -> bool:
    """Whether a case's arrays are cut as those of the cutting are: scales of a product are of a kind by the seed."""
    cut = ((case.inputs[name], *found.inputs[name]) for name in found.inputs.keys() & case.inputs.keys())
    return all(array.shape[axis] == rows * step for array, axis, step in cut)


def _levels(shape: Row, table: Table) -> list[tuple[str, tuple[Level, ...], int, int]]:
    """Return the factors of a form that are free beside a shape: name, levels, step and first turn."""
    free_ones = enumerate(free(shape, table))
    return [(name, _distinct(table[name]), STEPS[place % len(STEPS)], 5 * place) for place, name in free_ones]


def _form(
    maker: Maker, case: Case, table: Sequence[tuple[str, tuple[Level, ...], int, int]], turn: int
) -> tuple[dict[str, Level], bool]:
    """Return levels of a form, and whether all rows are one: then every array that is cut repeats its row.

    turn: of the levels, so that a number meets all of them; those of each kind of turn are counted by themselves.
    """
    kind = _KINDS[turn % 8]
    turn = len(kind) * (turn // 8) + kind.index(turn % 8)
    named = {name: levels[(turn * step + first) % len(levels)] for name, levels, step, first in table}
    if not holds(case.inputs.get("row_map"), str(named.get("row_map.dtype", "int32"))):
        del named["row_map.dtype"]
    same = kind is SAME and _repeats(maker)
    return (named | {f"{name}.storage": "broadcast rows" for name in maker.cutting.inputs} if same else named), same


@functools.lru_cache(maxsize=64)
def _distinct(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return the levels of a factor that repeat no row and no column."""
    return tuple(level for level in levels if not str(level).startswith("broadcast"))


def _repeats(maker: Maker) -> bool:
    """Whether some of the parts may be one row, repeated."""
    return maker.cutting.axis == ROWS and not maker.cutting.from_first and IN not in maker.params
