"""Products of experts (N19.8): rows of levels and their inputs.

`a` has the rows of all experts, one after the other, and `b` a matrix of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

import numpy as np

from refnum.tiles import tile_count

from ..draw.products import COLUMNS, scale_kinds, scales_of_kind, terms_for
from ..operation import OPERATIONS
from . import values
from .covering import Level, Row, Table, pairs, shape_of, singles
from .factors import ADDRESSES, GROUPED, PAIRED_EMPTY, SCALARS, SPLITS, STORAGES
from .ragged import drawn, splits

EXPERTS = (3, 1, 2, 8, 9, 33, 129)
LENGTHS = (33, 1, 31, 32, 64, 65, 127, 128, 129)
"""Rows of the longest expert."""
BEFORE = (3, 0, 1, 2, 31, 32, 33, 64, 128)
"""Rows of the experts before it: where it begins."""
PAIRED_LENGTHS, PAIRED_BEFORE = (33, 1, 32, 65, 128), (3, 0, 1, 32, 128)
EMPTY = (*PAIRED_EMPTY, "all")
"""Which experts have no row."""
TERMS = (33, 1, 16, 17, 31, 32, 64, 65, 127, 128, 129, 160, 257)
PAIRED_TERMS = (33, 17, 64, 128, 160)
WIDE = (3, 1, 5, 8, 16, 17, 33, 130)
"""Columns of the product; with more than 128 an expert has two squares of scales along them."""
DRAWN, DRAWN_ROWS = ("cut", "many", "boundary", "long", "alike", "ordered"), 48
"""Ways of drawing the rows of every expert, see `ragged.drawn`, and rows of levels that are drawn."""
ROOM = 4096
"""Columns with which `ragged.drawn` has 64 experts at most."""
MOST, MOST_DRAWN = 1 << 19, 1 << 16
"""Products of two elements in the largest case of a check, and of a campaign; an ordinary case has some 10^4."""
FEW = 5
"""The most experts in half of a campaign's rows of levels: with few of them an empty one decides most."""
OF_B = ("experts", "columns of the product", "columns")
"""Factors whose product is the elements of `b`."""
MARKS = frozenset({"splits", "experts", "drawn"})
"""Factors of which a row of a product of experts has one at least, in a plain call too."""
STACKED = tuple(level for level in STORAGES if not level.startswith("broadcast"))
"""Storages of arrays of three axes: `transposed` turns each expert's matrix, `every other row` leaves out every other
expert."""


def rows(operation: str, params: Mapping[str, Any], amount: str) -> list[Row]:
    """Return the rows of a variant's products of experts, none where its operation has no such products."""
    if operation not in GROUPED:
        return []
    order = str(params["order"])
    table = _table(operation, order, paired=False)
    base = {name: levels[0] for name, levels in table.items()}
    fits = partial(_fits, MOST)
    found = singles(table, fits, base)
    if amount in ("full", "exhaustive"):
        many = {**base, "experts": EXPERTS[-1], "rows before it": 0}
        found += [{**many, "empty experts": empty} for empty in EMPTY]
        found += pairs(_table(operation, order, paired=True), fits, base) + _drawn(operation, table)
    return found[:2] if amount == "smoke" else found


def campaign_row(operation: str, params: Mapping[str, Any], dice: Random) -> Row:
    """Return a row of a campaign: levels together, or experts of any number of rows, in a call of any form."""
    table = _table(operation, str(params["order"]), paired=False)
    if dice.random() < 0.4:
        return _drawn_row(operation, table, dice.choice(DRAWN), dice)
    most = dice.choice((FEW, max(EXPERTS)))
    table = {**table, "experts": tuple(count for count in EXPERTS if count <= most)}
    row = {name: dice.choice(levels) for name, levels in table.items()}
    while not _fits(MOST_DRAWN, row) or math.prod(int(row[name]) for name in OF_B) > MOST_DRAWN:
        name = dice.choice(list(table))
        row[name] = dice.choice(table[name])
    return {**row, **form(operation, dice)}


def _fits(most: int, row: Row) -> bool:
    """Whether a row's levels agree and its products are no more than so many."""
    counts, wide = splits(row, even=False), int(row.get("columns of the product", max(COLUMNS)))
    return counts is not None and sum(counts) * wide * int(row["columns"]) <= most


def _table(operation: str, order: str, paired: bool) -> Table:
    """Return the factors of products of experts: all levels, or those of which every pair is asked."""
    table: dict[str, tuple[Level, ...]] = {
        "experts": EXPERTS[:-1] if paired else EXPERTS,
        "rows of an expert": PAIRED_LENGTHS if paired else LENGTHS,
        "rows before it": PAIRED_BEFORE if paired else BEFORE,
        "empty experts": EMPTY,
        "columns": PAIRED_TERMS if paired else TERMS,
        "splits": SPLITS,
        **({} if paired else {"columns of the product": WIDE}),
    }
    if OPERATIONS[operation].main == "values":
        return table
    kinds = tuple(kind or "none" for kind in scale_kinds(order)[::-1])
    return {**table, "scales of a": tuple(kind for kind in kinds if kind != "square"), "scales of b": kinds}


def _drawn(operation: str, table: Table) -> list[Row]:
    """Return rows of experts with any number of rows, in calls of every form."""
    dice = Random(f"experts {operation}")
    return [_drawn_row(operation, table, DRAWN[place % len(DRAWN)], dice) for place in range(DRAWN_ROWS)]


def _drawn_row(operation: str, table: Table, way: str, dice: Random) -> Row:
    """Return a row of experts with any number of rows, in a call of any form."""
    shape: Row = {name: dice.choice(levels) for name, levels in table.items() if name.startswith("scales of")}
    shape |= {"drawn": way, "drawn rows": dice.randint(1, 130)}
    shape["columns"] = dice.randint(1, 66)
    return {**shape, **form(operation, dice)}


def form(operation: str, dice: Random) -> Row:
    """Return levels of the factors of form of a call."""
    forms: dict[str, tuple[Level, ...]] = {"splits": SPLITS, "scalars": SCALARS}
    for name in ("a", "b", *OPERATIONS[operation].optional):
        forms |= {f"{name}.storage": STACKED if name.startswith("b") else STORAGES, f"{name}.address": ADDRESSES}
    return {name: levels[0] if dice.random() < 0.4 else dice.choice(levels) for name, levels in forms.items()}


def counts_of(row: Row, seed: int) -> list[int]:
    """Return the rows of each expert."""
    if "form shape" in row:
        whole = shape_of(row)[0]
        return [whole // 3, 0, whole - whole // 3]
    if "rows of each" in row:
        return [int(row["rows of each"])] * (int(row["experts"]) - 1) + [0]
    if "drawn" in row:
        return drawn(str(row["drawn"]), int(row["drawn rows"]), ROOM, 1, seed, even=False)
    return splits(row, even=False) or []


def inputs(
    operation: str, params: Mapping[str, Any], row: Row, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the operands of every expert, their scales and `splits`; experts differ in their codes and scales."""
    counts, order = counts_of(row, seed), str(params["order"])
    k = terms_for(order, shape_of(row)[1] if "form shape" in row else int(row["columns"]))
    wide, experts = int(row.get("columns of the product", COLUMNS[seed % len(COLUMNS)])), len(counts)
    sides, stacked = {"a": sum(counts), "b": wide * experts}, (experts, wide)
    found: dict[str, np.ndarray] = {}
    for place, (name, side) in enumerate(sides.items()):
        if OPERATIONS[operation].main == "values":
            found[name] = values.floats(values.FORMATS["bfloat16"], (side, k), seed + place, (1, 32))
            continue
        found[name] = values.finite_fp8(str(params[f"{name}_format"]), (side, k), seed + place)
        if row.get(f"scales of {name}", "none") == "none":
            continue
        line = np.arange(side)
        line = line + line // wide if name == "b" else line
        scales = values.scale_bytes(line, np.arange(tile_count(k)), seed + place, 120)
        kind = str(row[f"scales of {name}"])
        if name == "a" or kind == "tensor":
            found[f"{name}_scales"] = values.scales_as(scales_of_kind(scales, kind).copy(), name, row, seed)
        else:
            each = scales.reshape(*stacked, tile_count(k))
            stack = np.stack([scales_of_kind(one, kind) for one in each])
            found["b_scales"] = values.scales_as(stack, name, row, seed)
    return {**found, "b": found["b"].reshape(*stacked, k)}, {"splits": counts}
