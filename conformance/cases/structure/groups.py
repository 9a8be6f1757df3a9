"""Which pairs of numbers stand in which field of a variant, and beside which levels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import refnum

from ..layouts import IN
from ..layouts import OUT as OUT_LAYOUT
from ..operation import OPERATIONS
from . import further
from .covering import Row, Table
from .cutting import COLUMNS, GIVEN, ROWS, UNCUT, WHOLE, Cutting, cutting, step_of
from .factors import PRODUCTS, RAGGED, ROUTED
from .mixed import CLASSES
from .numbers import (
    MOST,
    RESIDUES,
    SMALL,
    TURNS,
    Pairs,
    brief_pairs,
    few_pairs,
    pairs,
    share_of,
    some_pairs,
    tall_numbers,
    unit,
    wide_numbers,
)
from .plan import DEAR, layout_pairs, uniform_levels
from .ragged import EVERY

SPECIAL_SHARE, SPECIAL_TURNS, WHOLE_SHARE, WHOLE_SMALL, LEAST_SMALL = 0.12, 6, 0.3, 0.85, 0.55
"""Share of the pairs that a variant with a layout or a key is asked, and turns; share of one that is not cut, and that
of its pairs of small numbers; the least share of those of any other."""
BRIEF_SPECIAL = 6
"""Of so many brief pairs one is asked of a variant with a layout or a key."""
MOST_SPREAD, THOUSANDS, BRIEF_SPREAD = 4200, 24, 12
"""The most rows of fields of drawn experts; fields of a thousand experts, of which balanced ones have twice as many and
ordered ones three times; and of how many one is asked briefly."""
WIDTHS = 4
"""Numbers of columns beside which each of these fields is asked."""
FAR_APART, FEW_EXPERTS = 7, {"alike": 24, "ordered": 33}
"""Of how many fields of balanced, and of ordered, experts one has few rows, and how many, of the most columns."""
RANDOM_STEP = 4
"""Of so many brief pairs one is asked with random bits of each kind."""
OWN_ROWS, BESIDE, FEW_BESIDE = 24, 1 << 13, 6
"""Numbers of rows beside levels that no table has, elements of their largest part, and rows beside many columns."""
LEVELS, BELOW_ZERO, MANY_FIELDS, UNIFORM_ROWS = 10, 0.7, 1.5, 24
"""Levels of which one input is one element all over that have all numbers, less of them where there are more levels;
the share of it for elements below zero, whose like is above; by what it is less where fields are many or dear; and the
numbers of rows that all other variants have of each level."""
ORDINARY, LARGE = 3, 1 << 14
"""Of how many numbers one stands amid ordinary elements alone; and elements beyond which none does."""
DATA: Mapping[str, Mapping[str, tuple[int, ...]]] = {
        "encode_e2m1": {"scale_byte": (0, 1, 126, 128, 254, 255)},
        "hadamard16": {"signs": (0, 1, 254, 55271, 55273, 65535)},
        "hadamard_quantize_nvfp4": {"signs": (0, 1, 254, 55271, 55273, 65535)},
        "radix4": {"n0": (-20, 0, 40)}, "dequantize_radix4": {"n0": (-20, 0, 40)},
        "dge": {"k": (1, 16), "cap": (1, 9)}}  # fmt: skip
"""Operation -> numbers that are arguments, and values of theirs that are not the default."""
TWOFOLD = ("prob", "grad", "weights", "values", "splits", "a_scales", "b_scales")
"""Factors of a shape of which each number meets every level."""
RESIDUE_SET = frozenset(RESIDUES)
Members = Sequence[tuple[int, int, int]]
"""(rows, columns or blocks, times) of the parts of a field."""


@dataclass(frozen=True)
class Maker:
    """What the fields of a variant have in common. every: the tables of `plan.tables`. brief: how much it is asked."""

    operation: str
    profile: str
    params: Mapping[str, Any]
    cutting: Cutting
    every: tuple[Table, Table, Table]
    brief: bool = False


def groups(maker: Maker, amount: str, dice: Random) -> Iterator[tuple[Maker, Row, Members]]:
    """Yield (what the field has in common with others, its own levels, its parts) of each field."""
    operation = maker.operation
    special = len(maker.params) > len(OPERATIONS[operation].defaults())
    turns = SPECIAL_TURNS if special else TURNS
    whole = maker.cutting.axis == WHOLE
    small = 0 if special else WHOLE_SMALL if whole else LEAST_SMALL
    step_along = step_of(operation) // unit(operation) if maker.cutting.axis == COLUMNS else 1
    if amount == "brief":
        numbers = _brief(maker, dice)
    else:
        numbers = pairs(operation, _share(maker), dice, turns, small, whole, step_along)
    if amount != "brief" and not {IN, OUT_LAYOUT}.isdisjoint(maker.params):
        numbers |= Counter(layout_pairs(operation, maker.params))
    yield from _apart(maker, numbers, {})
    if operation in ROUTED or operation in RAGGED:
        yield from _spread(maker, amount, dice)
    yield from _beside_rows(maker, "brief" if special else amount, dice)
    if special:
        return
    yield from _uniform(maker, dice)
    if amount == "brief":
        return
    for name in further.random_inputs(operation):
        cut = cutting(operation, maker.profile, maker.params, {name: "given"})
        found = brief_pairs(operation, dice, False)
        kept = Pairs(dict(dice.sample(sorted(found.items()), len(found) // RANDOM_STEP)))
        yield from _apart(replace(maker, cutting=cut), kept, {name: "given"})
    for name, values in DATA.get(operation, {}).items():
        for value in values:
            yield from _apart(maker, brief_pairs(operation, dice, False), {name: value})
    for name in (name for name in GIVEN if name in maker.every[2]):
        yield from _apart(replace(maker, cutting=UNCUT), brief_pairs(operation, dice, False), {name: "absent"})


def _apart(maker: Maker, numbers: Pairs, more: Row) -> Iterator[tuple[Maker, Row, Members]]:
    """Yield fields of some pairs: ordinary elements and special ones are apart, as are levels of `TWOFOLD`.

    A field that few parts would have is of one class. more: levels of all of them.
    """
    operation, axis, shape = maker.operation, maker.cutting.axis, maker.every[2]
    two = [name for name in TWOFOLD if len(shape.get(name, ())) > 1]
    gathered: dict[tuple[int, ...], list[tuple[int, int, int]]] = defaultdict(list)
    for (rows, size), times in numbers.items():
        rest = size * unit(operation) % step_of(operation) // unit(operation)
        key = {ROWS: (size,), COLUMNS: (rows, rest), WHOLE: (rows, size)}[axis]
        of_all = axis == COLUMNS or maker.brief or bool(more) or size in RESIDUE_SET
        parity = sum(key) if of_all else rows + size
        large = rows * size * unit(operation) > LARGE
        for half in (0, 1) if two else (0,):
            share = (times + (parity + half) % 2) // 2 if two else times
            special = large or (sum(key) + half if two else parity) % ORDINARY > 0
            if share:
                gathered[*key, special and operation not in PRODUCTS, half].append((rows, size, share))
    for place, (key, members) in enumerate(sorted(gathered.items())):
        levels = {name: shape[name][(key[-1] + at * (place // 4)) % len(shape[name])] for at, name in enumerate(two)}
        yield maker, {**levels, "classes": CLASSES[key[-2]], **more}, members


def _beside_rows(maker: Maker, amount: str, dice: Random) -> Iterator[tuple[Maker, Row, Members]]:
    """Yield fields of levels that no table has: many rows beside each, briefly beside one in six."""
    every = further.beside_rows(maker.operation, maker.params) if maker.cutting.axis == ROWS else ()
    for place, levels in enumerate(every):
        if amount == "brief" and (place + len(maker.profile)) % BRIEF_SPECIAL:
            continue
        wide = int(levels.get("columns", 160))
        tall = [rows for rows in tall_numbers() if rows * wide <= max(BESIDE, FEW_BESIDE * wide)]
        members = [(rows, 1, 1) for rows in sorted(dice.sample(tall, min(OWN_ROWS, len(tall))))]
        yield maker, {**levels, "classes": CLASSES[place % 3 > 0]}, members


def _uniform(maker: Maker, dice: Random) -> Iterator[tuple[Maker, Row, Members]]:
    """Yield fields of which one input is one element all over."""
    given: Row = {name: "given" for name, levels in maker.every[2].items() if "absent" in levels}
    every = [] if maker.operation in PRODUCTS else uniform_levels(maker.operation, maker.profile, maker.params)
    shares = [BELOW_ZERO if "minus" in level else 1.0 for level in every]
    dear = DEAR.get(maker.operation, 1)
    most = min(1.0, LEVELS / max(1.0, sum(shares)))
    most /= MANY_FIELDS if maker.cutting.axis != ROWS or dear > 1 else 1
    rows_each = max(1, UNIFORM_ROWS // len(list(OPERATIONS[maker.operation].variants())))
    for level, share in zip(every, shares, strict=True):
        if maker.brief:
            numbers = some_pairs(maker.operation, dice, rows_each)
        else:
            numbers = few_pairs(maker.operation, dice, most * share, MOST // dear)
        yield from _apart(maker, numbers, {**given, "uniform": level})


def _share(maker: Maker) -> float:
    share = share_of(maker.operation, maker.operation in DEAR)
    share *= SPECIAL_SHARE if len(maker.params) > len(OPERATIONS[maker.operation].defaults()) else 1
    return share * (WHOLE_SHARE if maker.cutting.axis == WHOLE else 1)


def _spread(maker: Maker, amount: str, dice: Random) -> Iterator[tuple[Maker, Row, Members]]:
    """Yield fields of rows spread over experts in every way, each of several widths of one residue."""
    operation, step, block = maker.operation, step_of(maker.operation), unit(maker.operation)
    ways = [(f"experts {count}", max(count, dice.choice(tall_numbers()[:90]))) for count in (*tall_numbers(), 1100)]
    ways += [("long", count) for count in tall_numbers()] + [("thousand", 1500)] * THOUSANDS
    ways += [(dice.choice(("many", "boundary")), dice.choice(SMALL)) for _ in range(THOUSANDS)]
    ways += [("alike", dice.choice(tall_numbers())) for _ in range(2 * THOUSANDS)]
    ways += [("ordered", dice.choice((33, 300, 1000, 3000))) for _ in range(3 * THOUSANDS)]
    given: Row = {"splits": "list"} if operation in RAGGED else {}
    yield maker, {**given, "drawn": "every", "classes": CLASSES[1]}, [(sum(EVERY), 1, 2)]
    for place, (way, rows) in enumerate(ways):
        if rows > MOST_SPREAD or (amount == "brief" and (place + len(maker.profile)) % BRIEF_SPREAD):
            continue
        room = max(step // block, MOST // 8 // min(4, DEAR.get(operation, 1)) // block // rows)
        residue = place % (step // block) if maker.cutting.axis == COLUMNS else 0
        sizes = [size for size in wide_numbers(operation) if size <= room and (size - residue) * block % step == 0]
        chosen = {dice.choice(sizes) for _ in range(WIDTHS)} if sizes else {1}
        if way in ("alike", "ordered") and place % FAR_APART == 0:
            rows, most = FEW_EXPERTS[way], MOST // block // FEW_EXPERTS[way]
            chosen = {most - (most - residue) % (step // block)}
        chosen = chosen if maker.cutting.axis == COLUMNS else {min(chosen)}
        yield (
            maker,
            {**given, "drawn": way, "classes": CLASSES[place % 3 > 0]},
            [(rows, size, 2) for size in sorted(chosen)],
        )


def _brief(maker: Maker, dice: Random) -> Pairs:
    """Return the pairs of a variant that is not the first: each is asked once of every value of every parameter."""
    operation, params = maker.operation, maker.params
    found, every = brief_pairs(operation, Random(operation)), list(OPERATIONS[operation].variants())
    plain = {name: value for name, value in params.items() if name in every[0]}
    if len(plain) < len(params):
        return Pairs({pair: times for pair, times in found.items() if dice.randrange(BRIEF_SPECIAL) == 0})
    values = [(name, value) for name, value in plain.items() if value != every[0][name]]
    if maker.profile != refnum.HOPPER.name:
        values = [("", maker.profile)]

    def asked(pair: tuple[int, int]) -> bool:
        for name, value in values:
            alike = [one for one in every if not name or one[name] == value]
            if Random(f"{pair} {name} {value}").choice(alike) == plain:
                return True
        return False

    return Pairs({pair: times for pair, times in found.items() if asked(pair)})
