"""Mixed rows: small shapes of every kind, in calls of every form, on values of every class.

Two levels of different factors have thousands of pairs, so the rows are drawn, by a fixed seed, and most pairs stand in
one: residues and thresholds of rows, columns and counts, forms of a call, and special elements beside each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from random import Random

from ..operation import OPERATIONS
from .covering import Level, Row, Table
from .factors import CASTS, PRODUCTS, RAGGED, ROUTED, UNBLOCKED
from .ragged import DRAWN

SHARES = {"unpermute": 0.35, "occ": 0.5, "swiglu_backward": 0.35, "matmul_fp8": 0.15, "matmul_bf16": 0.15,
          "swiglu_quantize": 0.6, "quantize_nvfp4": 0.6,
          **dict.fromkeys(("permute_pad", "permute_unpack", "pack_payload", "unpack_payload"), 2.0),
          **dict.fromkeys(CASTS, 0.8),
          **{name: 0.25 for name, row in OPERATIONS.items() if row.family in ("updates", "oscillation")},
          "out_control": 0.7}  # fmt: skip
"""Operation -> the rows that it gets of those of `plan.MIXED`: its model takes longer, or next to nothing."""
OUT_SHARE, PLAIN = 1 / 3, 0.4
"""Share of the rows that give `out`, and of the factors of form that stay plain in a row."""
SIZES = (11, 12, 12, 13, 13, 14, 14, 15, 15, 17)
"""Powers of two below which the elements of a row stay, in turn."""
STAIRS = 17.5
"""Power of two of the elements of a stair: of any two thresholds within 2^17 elements, a stair is beyond both."""
GRID = tuple((rows, units) for rows in range(1, 67) for units in range(1, 27))
"""Small numbers of rows and of blocks, or columns, which meet in turn: no residue is left to luck."""
LOOSE_GRID = tuple((rows, columns) for rows in range(1, 67) for columns in range(1, 67))
GRIDDED = frozenset((1, 3, 5, 7, 9, 11, 13, 15, 17, 19))
"""Of twenty rows, those whose sides are the grid's."""
CLASSES = ("ordinary", "special")
CROWD = 300
"""Rows beyond which no token is given all of them: the model of `unpermute` adds them one after the other."""
LOOSE = frozenset({"swiglu_backward", "unpermute"}) | PRODUCTS | CASTS | UNBLOCKED
"""Operations that take any number of columns."""
MOST_ROWS, MOST_BLOCKS, MOST_TOKENS, MOST_LOOSE = 1 << 12, 1 << 9, 1 << 14, 1 << 14
"""The largest numbers of rows, blocks of 32 columns, tokens, and columns where any number of them is taken."""


def mixed_rows(operation: str, salt: str, count: int, forms: Table, outs: Table, shapes: Table) -> list[Row]:
    """Return rows of a shape and a form each, always the same; a third of them give `out`.

    Args:
        operation, salt: seed the draw.
        count: rows.
        forms, outs: factors of the call, and of `out`, the plain level first.
        shapes: factors of the shape; those that are no sizes are drawn from their levels.
    """
    dice = Random(f"{operation} {salt}")
    cells = LOOSE_GRID if operation in LOOSE else GRID
    grid = dice.sample(cells, len(cells))
    found: list[Row] = []
    for number in range(count):
        cell = grid[number // 2 % len(grid)] if number % 20 in GRIDDED else None
        shape = drawn_shape(operation, shapes, number, 1 << dice.choice(SIZES), dice, cell)
        found.append({**shape, **form(shape, {**forms, **(outs if dice.random() < OUT_SHARE else {})}, dice)})
    return found


def stairs(operation: str, salt: str, forms: Table, outs: Table, shapes: Table) -> list[Row]:
    """Return rows of some 2^17.5 elements, from one row to one block of columns, in calls of every form."""
    dice, found = Random(f"stairs {operation} {salt}"), []
    for tall, wide in _steps(operation):
        shape = {**drawn_shape(operation, shapes, 0, 1 << 12, dice), **sized(operation, tall, wide)}
        found.append({**shape, **form(shape, {**forms, **(outs if dice.random() < 0.5 else {})}, dice)})
    return found


def _steps(operation: str) -> Iterator[tuple[int, int]]:
    """Yield rows and columns whose product is that of a stair."""
    for step in range(0, int(2 * STAIRS) + 1):
        tall = round(2 ** (step / 2))
        if tall * _least(operation) <= 1 << 19:
            yield tall, columns_of(operation, math.ceil(2**STAIRS / tall))


def _least(operation: str) -> int:
    return 1 if operation in LOOSE else 32


def columns_of(operation: str, elements: int) -> int:
    """Return the columns, or bytes of payload, of so many elements or up to a block more."""
    if operation in LOOSE:
        return elements
    return math.ceil(elements / 32) * _unit(operation)


def _unit(operation: str) -> int:
    if operation in LOOSE:
        return 1
    return 17 if operation in ROUTED else 32


def sized(operation: str, tall: int, wide: int) -> Row:
    """Return the levels of a shape of so many rows, in all experts, and columns or bytes of payload."""
    tall += tall % 2 if OPERATIONS[operation].even_rows else 0
    if operation not in RAGGED and operation not in ROUTED:
        return {"rows": tall, "columns": wide}
    more: Row = {"align": 32, "tokens": max(1, tall // 8), "taken": "scattered"} if operation in ROUTED else {}
    return {"drawn": "cut", "drawn rows": tall, "columns": wide, **more}


def count(dice: Random, top: int, most: int) -> int:
    """Draw a count: small, at a power of two or one and a half of it, any of the first thousand, or any at all.

    top: the largest that a kernel singles out, drawn more often than others. most: what the row has room for.
    """
    roll, room = dice.random(), min(top, most)
    if roll < 0.35:
        return dice.randint(1, min(66, room))
    if roll < 0.65:
        levels = [level for level in _levels(top) if level <= room]
        return dice.choice(levels)
    if roll < 0.9:
        return dice.randint(1, min(1100, room))
    return max(1, min(room, round(math.exp(dice.uniform(0, math.log(room + 1))))))


@functools.cache
def _levels(top: int) -> list[int]:
    """Return powers of two, those and a half, and what is beside them, up to the largest, which stands there twice."""
    powers = [(1 << k) * half // 2 for k in range(top.bit_length()) for half in (2, 2, 3)]
    return [max(1, min(top, power + step)) for power in powers for step in (-1, 0, 0, 1)] + [top]


def _blocks(dice: Random, most: int) -> int:
    """Draw a number of blocks of 32 columns: some are whole tiles of 128, or those and a part."""
    if dice.random() < 0.25:
        tiles = min(count(dice, 25, 25), max(1, most // 4))
        return max(1, min(most, dice.choice((tiles, 4 * tiles, 4 * tiles - dice.randint(1, 3)))))
    return count(dice, MOST_BLOCKS, most)


def _sides(operation: str, number: int, most: int, dice: Random) -> tuple[int, int]:
    """Return rows and columns, in units, of at most so many elements; by turns one is drawn first, or very large."""
    unit = _unit(operation)

    def wide(room: int) -> int:
        room = max(1, room // unit)
        if unit > 1:
            return _blocks(dice, min(room, MOST_BLOCKS))
        loose = count(dice, MOST_LOOSE, room)
        return 32 * _blocks(dice, room // 32) if room >= 32 and dice.random() < 0.4 else loose

    if number % 20 == 4:
        return dice.choice((1, 1, 2, 4)), dice.choice((MOST_BLOCKS, MOST_BLOCKS, 257, 511)) * max(1, 32 // unit)
    if number % 20 == 14:
        return MOST_ROWS, 1
    if number % 4:
        columns = wide(most)
        return count(dice, MOST_ROWS, max(1, most // (columns * unit))), columns
    rows = count(dice, MOST_ROWS, most // unit)
    return rows, wide(most // rows)


def drawn_shape(
    operation: str, table: Table, number: int, most: int, dice: Random, cell: tuple[int, int] | None = None
) -> Row:
    """Draw a shape of about so many elements, in rows and units of columns, and its other levels.

    number: of the row, which decides how experts are drawn. cell: rows and units where they are given.
    """
    sizes = ("rows", "columns", "elements", "form of the array", "experts", "rows of an expert", "rows before it",
             "empty experts")  # fmt: skip
    row: Row = {name: dice.choice(levels) for name, levels in table.items() if name not in sizes}
    tall, wide = cell or _sides(operation, number, most, dice)
    wide *= _unit(operation)
    if operation in ROUTED or operation in RAGGED:
        row |= {"drawn": DRAWN[number // 2 % len(DRAWN)], "drawn rows": tall, "columns": wide}
        if number % 20 in (2, 8):
            row |= {"drawn": "thousand", "columns": _unit(operation) * dice.choice((1, 1, 2))}
        if operation in ROUTED:
            row |= _routed(operation, row, tall, int(row["columns"]), most, dice)
    else:
        row |= {"rows": tall + (tall % 2 if OPERATIONS[operation].even_rows else 0), "columns": wide}
    return {**row, "classes": dice.choice(CLASSES)}


def _routed(operation: str, row: Row, tall: int, wide: int, most: int, dice: Random) -> Row:
    """Return tokens and how they are taken; the model sums the rows of one token one after the other."""
    tokens = count(dice, MOST_TOKENS, max(1, 2 * most // wide))
    align: Row = {"align": dice.choice((1, 32))} if int(row.get("align", 32)) * wide > 1 << 15 else {}
    if operation == "unpermute" and (tall > CROWD or row["drawn"] == "thousand"):
        return {"tokens": max(tokens, tall // 32, CROWD // 10), "taken": "scattered", **align}
    return {"tokens": tokens, **(align if "align" in row else {})}


def free(shape: Row, table: Table) -> list[str]:
    """Return the factors of a form beside a shape: splits that it gives none of stay so, float32 has no other dtype."""
    wide = {f"{name}.dtype" for name, of in (("rows", "values"), ("grad", "grad")) if shape.get(of) == "float32"}
    return [name for name in table if name != "form shape" and shape.get(name) != "None" and name not in wide]


def form(shape: Row, table: Table, dice: Random) -> dict[str, Level]:
    """Return levels of the factors of a form that are free."""
    found = {name: table[name][0] if name != "out" and dice.random() < PLAIN else dice.choice(table[name])
             for name in free(shape, table)}  # fmt: skip
    crowded = int(shape.get("drawn rows", 0)) > CROWD or shape.get("drawn") == "thousand"
    if crowded and str(found.get("row_map.storage")).startswith("broadcast"):
        found["row_map.storage"] = "element gap"
    return found
