"""Mixed rows: small shapes of every kind in calls of every form, so that a level of a shape meets the levels of a form.

Every pair of them has thousands of members, so the rows are drawn, by a fixed seed, and most pairs stand in one.
"""

from __future__ import annotations

from random import Random

from .covering import Fits, Level, Row, Table

COUNT, TRIES = 1600, 20
FEWER = {"unpermute": 4}
"""Operation -> the part of so many rows that it gets: the golden model sums the rows of a token one after the other."""
PLAIN = 0.4
"""Share of the factors of form that stay plain in a row, so that one form does not always stand beside others."""
TALL = 320
"""Up to here every number of rows is asked, not the levels of the table alone."""
MIXED = 1 << 15
"""Elements of the largest case."""


def mixed_rows(operation: str, shapes: Table, forms: Table, outs: Table, fits: Fits) -> list[Row]:
    """Return rows of a shape and a form each, always the same; a third of them give `out`.

    Args:
        operation: seeds the draw.
        shapes: factors of the shape. forms, outs: those of the call, and of `out`, the plain level first.
        fits: whether a shape can be asked.
    """
    dice = Random(operation)
    found: list[Row] = []
    for number in range(COUNT // FEWER.get(operation, 1)):
        drawn = (_shape(shapes, number, dice) for _ in range(TRIES))
        shape = next((row for row in drawn if fits(row)), None)
        if shape is not None:
            found.append({**shape, **_form(shape, {**forms, **(outs if number % 3 == 0 else {})}, dice)})
    return found


def _shape(shapes: Table, number: int, dice: Random) -> Row:
    row: Row = {name: dice.choice(levels) for name, levels in shapes.items()}
    if "rows" in row and number % 2:
        row["rows"] = number // 2 % TALL + 1
    return row


def _form(shape: Row, table: Table, dice: Random) -> dict[str, Level]:
    """Return levels of a form; splits that the shape gives none of stay so."""
    free = {name: levels for name, levels in table.items() if name != "form shape" and shape.get(name) != "None"}
    return {name: levels[0] if name != "out" and dice.random() < PLAIN else dice.choice(levels)
            for name, levels in free.items()}  # fmt: skip
