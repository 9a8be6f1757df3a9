"""Fields of a variant: large cases of which thousands of parts are asked as calls of their own.

The golden model runs once a field. So exact numbers of rows beside exact numbers of columns, and residues beside forms
of the call, cost little more than the subject's own calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from ..case import Case
from ..operation import OPERATIONS
from .build import build, form_of
from .covering import Level, Row, Table
from .cutting import COLUMNS, GIVEN, TILE, Cutting, Field, Part, cutting
from .factors import BESIDE_POWERS, RAGGED
from .mixed import CLASSES, LOOSE, OUT_SHARE, SHARES, columns_of, drawn_shape, form
from .plan import DEAR, SCALE_BYTES, tables

SMALL = tuple(range(1, 67))
MARKS = tuple(sorted({*BESIDE_POWERS[1:], 16383, 16384, 16385}))
"""Numbers that kernels single out: every small one, and those beside powers of two and one and a half of them."""
MOST_TALL, MOST_WIDE = 4097, 513
"""The largest number of rows, and of blocks of 32 columns."""
RESIDUES = tuple(count for count in range(67, 1027) if count not in MARKS)
"""Numbers that stand for every residue of 512, below it and beyond."""
EACH = 6
"""Numbers of the other side that each of `RESIDUES` meets."""
AREA, MOST, THIN = 1 << 14, 1 << 17, 4
"""Elements below which every pair is asked; of the largest part; and of how many pairs between one is asked."""
BRIEF, BRIEF_AREA = 12, 1 << 12
"""Of so many fields one is asked of a variant that is not the first, of fewer where an operation has fewer variants, in
parts of so few elements."""
STEP = 4
"""Storages by which that of an input is ahead of the input's before it."""
LEAST_SHARE = 0.7
"""Share of `mixed.SHARES` from which on an operation is asked every pair; of others half of that share is."""
SEEDS = 6
"""Seeds of which one gives arrays that are cut in the way that was found."""
PLAIN_SHARE = 0.2
"""Share of the parts that are asked in the plain form."""


def fields(operation: str, profile: str, params: Mapping[str, Any], amount: str) -> Iterator[Field]:
    """Yield the fields of a variant, always the same; none where it is not local, or at level smoke."""
    found = cutting(operation, profile, params) if amount != "smoke" else None
    if found is None:
        return
    every = tables(operation, profile, params)
    salt, number, met = f"{operation} {profile} {sorted(params.items())}", 0, Counter[int]()
    step = BRIEF if OPERATIONS[operation].profiled else min(BRIEF, len(list(OPERATIONS[operation].variants())))
    sizes = _by_rows(operation, Random(salt)) if found.axis == COLUMNS else _by_columns(operation, Random(salt))
    for place, (size, others) in enumerate(sizes):
        if amount == "brief":
            unit = 1 if operation in LOOSE else 32
            others = [other for other in others if other * size * unit <= max(BRIEF_AREA, AREA // step)]
            if not others or (place + len(salt)) % step:
                continue
        field = _field(operation, profile, params, found, size, others, every, Random(f"{salt} {place}"), number, met)
        yield field
        number += len(field.parts)


def parts(operation: str, profile: str, params: Mapping[str, Any], amount: str) -> Iterator[Case]:
    """Yield the case of every part of a variant's fields, in order."""
    for field in fields(operation, profile, params, amount):
        yield from (part.case(field.case, field.cutting) for part in field.parts)


def _field(
    operation: str,
    profile: str,
    params: Mapping[str, Any],
    found: Cutting,
    size: int,
    others: Sequence[int],
    every: tuple[Table, Table, Table],
    dice: Random,
    number: int,
    met: Counter[int],
) -> Field:
    """Return the field of one number of columns and numbers of rows, or of one number of rows and widths in blocks.

    met: how often each of the other numbers was asked, which says in which storage it is asked next.
    """
    forms, outs, shapes = every
    by_rows = found.axis == COLUMNS
    cell = (size, max(others)) if by_rows else (max(others), size)
    shape: Row = {**drawn_shape(operation, shapes, 0, 1 << 12, dice, cell), "classes": CLASSES[number % 2]}
    shape |= {name: "given" for name in GIVEN if name in shape}
    if by_rows:
        shape |= {"drawn": dice.choice(("one", "cut"))}
    if operation == "encode_e2m1" and dice.random() < 0.5:
        shape["scale_byte"] = dice.choice(SCALE_BYTES)
    cases = (build(operation, profile, params, shape, seed) for seed in range(number, number + SEEDS))
    case = next((one for one in cases if by_rows or _fits(one, found, int(shape["rows"]))), None)
    if case is None:
        return Field(build(operation, profile, params, shape, number), found, (), number)
    found_parts = []
    for place, other in enumerate(dice.sample(others, len(others))):
        turn = _turn(size, place) if size in RESIDUES else _turn(other, met[other])
        met[other] += 1
        plain = dice.random() < PLAIN_SHARE and size not in RESIDUES and other not in RESIDUES
        table = {**forms, **(outs if dice.random() < OUT_SHARE else {})}
        named, same = ({}, False) if plain else _form(found, shape, table, dice, turn)
        if by_rows:
            row = {**shape, "columns": columns_of(operation, 32 * other), **named}
            found_parts.append(Part((max(others) - other) * 32 // TILE, 0, row, form_of(row)))
        else:
            row = {**shape, "rows": other, **named}
            found_parts.append(Part(dice.randint(0, max(others) - other), other, row, form_of(row), same))
    return Field(case, found, tuple(found_parts), number)


def _fits(case: Case, found: Cutting, rows: int) -> bool:
    """Whether a case's arrays are cut as those of the cutting are: scales of a product are of a kind by the seed."""
    cut = ((case.inputs[name], *found.inputs[name]) for name in found.inputs.keys() & case.inputs.keys())
    return all(array.shape[axis] == rows * step for array, axis, step in cut)


def _turn(number: int, times: int) -> int:
    """Return the turn of the storages in which a number is asked: others beyond 512, where its residue comes again."""
    return times + EACH * (number // 512) + 5 * (number % 512)


def _form(found: Cutting, shape: Row, table: Table, dice: Random, turn: int) -> tuple[dict[str, Level], bool]:
    """Return levels of a form, and whether all rows are one: then every array that is cut repeats its row.

    turn: of the storages, so that a number meets all of them.
    """
    named = form(shape, table, dice)
    for place, name in enumerate(name for name in named if name.endswith(".storage")):
        named[name] = table[name][(turn + STEP * place) % len(table[name])]
    repeated = [name for name, level in named.items() if str(level).startswith("broadcast")]
    if not repeated:
        return named, False
    if found.axis == COLUMNS:
        return {**named, **dict.fromkeys(repeated, "element gap")}, False
    others = dict.fromkeys(repeated, "contiguous")
    return {**named, **others, **{f"{name}.storage": "broadcast rows" for name in found.inputs}}, True


def _share(operation: str) -> float:
    """Return the share of all pairs that an operation is asked: less than all where its model takes longer."""
    share = SHARES.get(operation, 0.5 if operation in DEAR else 1.0)
    return share / 2 if share < LEAST_SHARE else 1.0


def _kept(operation: str, rows: int, size: int, dice: Random) -> bool:
    """Whether a pair of numbers is asked: every small one, some of those up to the largest."""
    area, share = rows * columns_of(operation, size if operation in LOOSE else 32 * size), _share(operation)
    return area <= MOST * share and dice.random() < share * (1 if area <= AREA else 1 / THIN)


def _each(operation: str, number: int, others: Sequence[int], dice: Random) -> list[int]:
    """Return some numbers of the other side for one of `RESIDUES`."""
    room = AREA // number // (1 if operation in LOOSE else 32)
    fitting = [other for other in others if other <= room] or [1]
    count = max(1, round((EACH if operation in LOOSE else EACH / 2) * _share(operation)))
    return [dice.choice(fitting) for _ in range(count)]


def _by_columns(operation: str, dice: Random) -> list[tuple[int, list[int]]]:
    """Return numbers of columns, or of blocks, each with the numbers of rows that are asked beside it."""
    loose = operation in LOOSE
    wide = [*SMALL, *(mark for mark in MARKS if loose or mark <= MOST_WIDE)]
    tall = [*SMALL, *(mark for mark in MARKS if mark <= MOST_TALL)]
    found = {size: [rows for rows in tall if _kept(operation, rows, size, dice)] for size in wide}
    for rows in RESIDUES:
        for size in _each(operation, rows, SMALL, dice):
            found[size].append(rows)
    for size in RESIDUES if loose else ():
        found[size] = sorted(set(_each(operation, size, SMALL, dice)))
    return [(size, others) for size, others in found.items() if others]


def _by_rows(operation: str, dice: Random) -> list[tuple[int, list[int]]]:
    """Return numbers of rows, each with numbers of blocks of one residue of a tile that are asked beside it."""
    even = OPERATIONS[operation].even_rows and operation in RAGGED
    found: list[tuple[int, list[int]]] = []
    for rows in sorted({*SMALL, *MARKS, *RESIDUES}):
        if rows > MOST_TALL or (even and rows % 2):
            continue
        if rows in RESIDUES:
            residue = dice.randrange(TILE // 32)
            alike = [size for size in SMALL if size % (TILE // 32) == residue]
            sizes = _each(operation, rows, alike, dice)[: EACH // 2]
        else:
            sizes = [size for size in SMALL if _kept(operation, rows, size, dice)]
            marks = [mark for mark in MARKS if mark <= MOST_WIDE and _kept(operation, rows, mark, dice)]
            sizes += [mark for mark in marks if dice.random() < 0.5]
        for residue in range(TILE // 32):
            widths = sorted({size for size in sizes if size % (TILE // 32) == residue})
            found += [(rows, widths)] if widths else []
    return found
