"""Rows of a campaign: levels of the same factors as a check's, drawn anew for every shard.

A check asks every level, every pair and some drawn rows, always the same. A campaign draws three and more levels
together, other ones in every shard, and sizes between those that a check asks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

from . import further, grouped
from .covering import Row, Table
from .cutting import BEHIND
from .factors import CAST_SHAPES, CASTS, GROUPED, PRODUCTS, ROUTED
from .groups import DATA
from .mixed import columns_of, drawn_shape, form, mixed_rows, sized
from .mixed import count as drawn_count
from .plan import DEAR, base_beside, base_row, tables, uniform_levels, within

CALLS = ("once", "twice", "after a refusal", "at once", "once", "probed", *BEHIND)
"""How a case is called: once, once more, after a call that must be refused, from two threads, in every way, and right
behind each kind of other call."""
COMBINED, LARGE, STACKED, UNIFORM, FURTHER = 3, 12, 4, 12, 12
"""Of so many rows one has levels of the tables together, one has more elements than the others, one is a product of
experts where an operation has such products, one has an input that is one element all over, and one has levels that no
table has."""
TALL, WIDE = (1 << 12, 70_000), (1 << 14, 1 << 17)
"""The least and the most rows, or columns, of a row that is large in one of them."""
TRIES = 30


def campaign_rows(
    operation: str, profile: str, params: Mapping[str, Any], salt: str, count: int, largest: int
) -> list[Row]:
    """Return so many rows of a variant, the same for the same salt.

    largest: elements of the largest case; those of most rows are some 10^4.
    """
    forms, outs, shapes = tables(operation, profile, params)
    dice = Random(f"campaign {operation} {salt}")
    found = mixed_rows(operation, f"campaign {salt}", count, forms, outs, shapes)
    most, uniforms = max(1 << 12, largest // DEAR.get(operation, 1)), uniform_levels(operation, profile, params)
    beyond = further.campaign_rows(operation, params, 4 * largest if operation in PRODUCTS else most)
    for number in range(count):
        if operation in GROUPED and number % STACKED == 1:
            found[number] = grouped.campaign_row(operation, params, dice)
            continue
        if beyond and number % FURTHER == FURTHER - 1:
            found[number] = _beyond(operation, params, dice.choice(beyond), most, forms, dice)
            continue
        if number % UNIFORM == UNIFORM - 2:
            drawn = _uniform(operation, shapes, uniforms, number, dice)
        else:
            drawn = _drawn(operation, str(params.get("dtype")), shapes, number, most, dice)
        if drawn:
            found[number] = {**drawn, **form(drawn, {**forms, **(outs if dice.random() < 0.5 else {})}, dice)}
    numbers = DATA.get(operation, {})
    return [{**row, **_numbers(numbers, dice), "calls": dice.choice(CALLS)} for row in found]


def _numbers(numbers: Mapping[str, tuple[int, ...]], dice: Random) -> Row:
    """Return an argument that is not the default, one time in four."""
    if not numbers or dice.random() > 1 / 4:
        return {}
    name = dice.choice(list(numbers))
    return {name: dice.choice(numbers[name])}


def _drawn(operation: str, dtype: str, shapes: Table, number: int, largest: int, dice: Random) -> Row:
    if number % LARGE == LARGE // 2 + 1:
        return {**drawn_shape(operation, shapes, 0, 1 << 12, dice), **_large(operation, largest, dice)}
    if operation in CASTS:  # the model's bfloat16 without axes is a scalar, and no array to compare
        axes = CAST_SHAPES[: -1 if dtype == "bfloat16" else None]
        shapes = {**shapes, "form of the array": axes}
    return _combined(operation, shapes, largest, dice) if number % COMBINED == 0 else {}


def _beyond(operation: str, params: Mapping[str, Any], levels: Row, largest: int, forms: Table, dice: Random) -> Row:
    """Return ordinary levels beside some that no table has, half of them with other rows, in a call of any form."""
    row = {**base_beside(operation, params), **levels}
    if "rows" in levels and "columns of the product" not in levels and dice.random() < 0.5:
        room = max(1, min(1 << 13, largest // max(1, int(row["columns"]))))
        row["rows"] = drawn_count(dice, room, room)
    experts = operation in GROUPED and not grouped.MARKS.isdisjoint(levels)
    return {**(grouped.form(operation, dice) if experts else form(row, forms, dice)), **row}


def _uniform(operation: str, shapes: Table, uniforms: list[str], number: int, dice: Random) -> Row:
    """Return a shape with every optional input, of which one input is one element all over."""
    row = drawn_shape(operation, shapes, number, 1 << dice.randint(7, 13), dice)
    return {
        **row,
        **{name: "given" for name, level in row.items() if level == "absent"},
        "uniform": dice.choice(uniforms),
    }


def _combined(operation: str, shapes: Table, largest: int, dice: Random) -> Row:
    """Return any levels of the tables together; those that make a case too large give way to ordinary ones."""
    base, fits = base_row(operation), within(operation, min(largest, 1 << 17))
    row = {name: dice.choice(levels) for name, levels in shapes.items()}
    for _ in range(TRIES):
        if fits(row):
            break
        name = dice.choice(list(shapes))
        row[name] = dice.choice(shapes[name]) if dice.random() < 0.5 else base.get(name, shapes[name][0])
    return {**(row if fits(row) else base), "classes": dice.choice(("ordinary", "special"))}


def _large(operation: str, largest: int, dice: Random) -> Row:
    """Return sides of which one is large, or whose product is."""
    way = dice.choice(("rows", "columns", "elements"))
    if way == "columns":
        wide = min(largest, _between(dice, *WIDE))
        return _flat(operation, min(dice.randint(1, 3), max(1, largest // wide)), wide)
    least = columns_of(operation, 1)
    area = largest if way == "rows" else _between(dice, min(1 << 17, largest), largest)
    rows = _between(dice, *TALL) if way == "rows" else _between(dice, 1, max(1, area // 32))
    rows = max(2, min(rows, area // min(least, 32)))
    width = dice.randint(1, 64) if way == "rows" else area // rows
    return _flat(operation, rows, max(1, min(width, area // rows)))


def _flat(operation: str, rows: int, elements: int) -> Row:
    """Return the levels of so many rows of so many elements; wide rows are not padded to 32."""
    align: Row = {"align": 1} if operation in ROUTED and elements > TALL[0] else {}
    return {**sized(operation, rows, columns_of(operation, elements)), **align}


def _between(dice: Random, low: int, high: int) -> int:
    """Draw a number of a uniform order of magnitude."""
    return round(math.exp(dice.uniform(math.log(low), math.log(high))))
