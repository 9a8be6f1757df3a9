"""Mixed rows: small shapes of every kind, in calls of every form, on values of every class.

Two levels of different factors have thousands of pairs, so the rows are drawn, by a fixed seed, and most pairs stand in
one: residues and thresholds of rows, columns and counts, forms of a call, and special elements beside each other.
"""

from __future__ import annotations

import math
from random import Random

from ..operation import OPERATIONS
from .covering import Level, Row, Table
from .factors import CASTS, RAGGED, ROUTED
from .ragged import DRAWN

FEWER = {"unpermute": 3, "swiglu_backward": 3, "matmul_fp8": 6, **dict.fromkeys(CASTS, 4)}
"""Operation -> the part of the rows that it gets: its model takes longer, or it has few levels of a shape."""
PLAIN = 0.4
"""Share of the factors of form that stay plain in a row, so that one form does not always stand beside others."""
SIZES = (12, 13, 14, 15, 15, 17)
"""Powers of two below which the elements of a row stay, in turn."""
STAIRS = 17.5
"""Power of two of the elements of a stair: of any two thresholds within 2^17 elements, a stair is beyond both."""
CLASSES = ("ordinary", "special")
LOOSE = frozenset({"swiglu_backward", "matmul_fp8", "unpermute"}) | CASTS
"""Operations that take any number of columns."""
MOST_ROWS, MOST_BLOCKS, MOST_TOKENS, MOST_EXPERTS = 1 << 13, 520, 1 << 14, 1100


def mixed_rows(operation: str, salt: str, count: int, forms: Table, outs: Table, shapes: Table) -> list[Row]:
    """Return rows of a shape and a form each, always the same; a third of them give `out`.

    Args:
        operation, salt: seed the draw.
        count: rows before an operation's own part of them is taken.
        forms, outs: factors of the call, and of `out`, the plain level first.
        shapes: factors of the shape; those that are no sizes are drawn from their levels.
    """
    dice = Random(f"{operation} {salt}")
    found: list[Row] = []
    for number in range(count // FEWER.get(operation, 1)):
        shape = _shape(operation, shapes, number, 1 << dice.choice(SIZES), dice)
        found.append({**shape, **_form(shape, {**forms, **(outs if number % 3 == 0 else {})}, dice)})
    return found


def stairs(operation: str, salt: str, forms: Table, outs: Table, shapes: Table) -> list[Row]:
    """Return rows of some 2^17.5 elements, from one row to one block of columns, in calls of every form."""
    dice, found = Random(f"stairs {operation} {salt}"), []
    for step in range(0, int(2 * STAIRS) + 1):
        tall = round(2 ** (step / 2))
        wide = math.ceil(2**STAIRS / tall / _unit(operation)) * _unit(operation)
        if operation in ROUTED and operation != "unpermute":
            wide = math.ceil(2**STAIRS / tall / 32) * 17
        if wide * tall <= 1 << 19:
            shape = {**_shape(operation, shapes, 0, 1 << 12, dice), **_sized(operation, tall, wide)}
            found.append({**shape, **_form(shape, {**forms, **(outs if step % 2 else {})}, dice)})
    return found


def _unit(operation: str) -> int:
    if operation in LOOSE:
        return 1
    return 17 if operation in ROUTED else 32


def _sized(operation: str, tall: int, wide: int) -> Row:
    tall += tall % 2 if OPERATIONS[operation].even_rows else 0
    if operation not in RAGGED and operation not in ROUTED:
        return {"rows": tall, "columns": wide}
    more: Row = {"align": 32, "tokens": max(1, tall // 8), "taken": "scattered"} if operation in ROUTED else {}
    return {"drawn": "cut", "drawn rows": tall, "columns": wide, **more}


def count(dice: Random, most: int) -> int:
    """Draw a count: small, at a power of two or one and a half of it, any of the first thousand, or any at all."""
    roll = dice.random()
    if roll < 0.35:
        return dice.randint(1, min(66, most))
    if roll < 0.6:
        drawn = (1 << dice.randint(0, most.bit_length() - 1)) * dice.choice((2, 2, 3)) // 2 + dice.choice((-1, 0, 0, 1))
        return max(1, min(most, drawn))
    if roll < 0.88:
        return dice.randint(1, min(1100, most))
    return max(1, min(most, round(math.exp(dice.uniform(0, math.log(most + 1))))))


def _shape(operation: str, table: Table, number: int, most: int, dice: Random) -> Row:
    sizes = ("rows", "columns", "elements", "form of the array", "experts", "rows of an expert", "rows before it",
             "empty experts")  # fmt: skip
    row: Row = {name: dice.choice(levels) for name, levels in table.items() if name not in sizes}
    unit = _unit(operation)
    blocks = MOST_ROWS * 2 if unit == 1 else MOST_BLOCKS
    if number % 2:
        wide = count(dice, min(blocks, most // unit))
        tall = count(dice, max(1, min(MOST_ROWS, most // (wide * unit))))
    else:
        tall = count(dice, min(MOST_ROWS, most // unit))
        wide = count(dice, max(1, min(blocks, most // (tall * unit))))
    if operation in ROUTED or operation in RAGGED:
        row |= {"drawn": DRAWN[number % len(DRAWN)], "drawn rows": tall, "columns": wide * unit}
        if operation in ROUTED:
            row |= _routed(operation, row, tall, wide * unit, most, dice)
    else:
        row |= {"rows": tall + (tall % 2 if OPERATIONS[operation].even_rows else 0), "columns": wide * unit}
    return {**row, "classes": dice.choice(CLASSES)}


def _routed(operation: str, row: Row, tall: int, wide: int, most: int, dice: Random) -> Row:
    """Return tokens and how they are taken; the model sums the rows of one token one after the other."""
    tokens = count(dice, max(1, min(MOST_TOKENS, 2 * most // wide)))
    if operation == "unpermute" and tall > 300:
        return {"tokens": max(tokens, tall // 32), "taken": "scattered"}
    return {"tokens": tokens}


def _form(shape: Row, table: Table, dice: Random) -> dict[str, Level]:
    """Return levels of a form; splits that the shape gives none of stay so."""
    free = {name: levels for name, levels in table.items() if name != "form shape" and shape.get(name) != "None"}
    return {name: levels[0] if name != "out" and dice.random() < PLAIN else dice.choice(levels)
            for name, levels in free.items()}  # fmt: skip
