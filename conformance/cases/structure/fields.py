"""Fields of a variant: large cases of which thousands of parts are asked as calls of their own.

The golden model runs once a field. So exact numbers of rows beside exact numbers of columns, and each of them beside
every form of the call, cost little more than the subject's own calls.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import refnum

from ..case import Case
from ..layouts import IN
from ..layouts import OUT as OUT_LAYOUT
from ..operation import OPERATIONS
from . import further
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
    UNCUT,
    WHOLE,
    Cutting,
    Field,
    Part,
    cutting,
    one_shape,
    step_of,
)
from .factors import PRODUCTS, RAGGED, ROUTED
from .mixed import CLASSES, columns_of, drawn_shape, free
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
    tall_numbers,
    unit,
    wide_numbers,
)
from .plan import DEAR, layout_pairs, tables, uniform_levels
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
SPECIAL_SHARE, SPECIAL_TURNS, WHOLE_SHARE, WHOLE_SMALL, LEAST_SMALL = 0.12, 6, 0.3, 0.85, 0.4
"""Share of the pairs that a variant with a layout or a key is asked, and turns; share of one that is not cut, and that
of its pairs of small numbers; the least share of those of any other."""
BRIEF_SPECIAL = 6
"""Of so many brief pairs one is asked of a variant with a layout or a key."""
MOST_SPREAD, THOUSANDS, BRIEF_SPREAD = 4200, 24, 12
"""The most rows of fields of drawn experts; fields of a thousand experts, of balanced and of ordered ones; and of how
many one is asked briefly."""
WIDTHS = 4
"""Numbers of columns beside which each of these fields is asked."""
FAR_APART, FEW_EXPERTS = 7, {"alike": 24, "ordered": 33}
"""Of how many fields of balanced, and of ordered, experts one has few rows, and how many, of the most columns."""
MOST_TOKENS, CROWDED, MOST_PADDED = 16390, 5, 1 << 13
"""The most tokens; of how many fields one has as many as may be; elements of padding by which few are aligned."""
RANDOM_STEP = 4
"""Of so many brief pairs one is asked with random bits of each kind."""
OWN_ROWS, BESIDE, FEW_BESIDE = 24, 1 << 13, 6
"""Numbers of rows beside levels that no table has, elements of their largest part, and rows beside many columns."""
UNIFORM, LEVELS = 0.7, 9
"""Share of the numbers that stand in fields of which one input is one element all over, and the levels that have as
many; half of it for elements below zero, whose like is above, and where fields are many or dear."""
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
_RESIDUES = frozenset(RESIDUES)
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


def fields(operation: str, profile: str, params: Mapping[str, Any], amount: str) -> Iterator[Field]:
    """Yield the fields of a variant, always the same; none at level smoke."""
    if amount == "smoke":
        return
    found, every = cutting(operation, profile, params), tables(operation, profile, params)
    maker = Maker(operation, profile, params, found, every, amount == "brief")
    salt, number, met = f"{operation} {profile} {sorted(params.items())}", 0, Counter[tuple[bool, int]]()
    for place, (one, way, members) in enumerate(_groups(maker, amount, Random(salt))):
        field = _field(one, way, members, place, Random(f"{salt} {place}"), number, met)
        if field is not None:
            yield field
            number += len(field.parts)


def parts(operation: str, profile: str, params: Mapping[str, Any], amount: str) -> Iterator[Case]:
    """Yield the case of every part of a variant's fields, in order."""
    for field in fields(operation, profile, params, amount):
        yield from (part.case(field.case, field.cutting) for part in field.parts)


def _groups(maker: Maker, amount: str, dice: Random) -> Iterator[tuple[Maker, Row, Members]]:
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
    if amount == "brief" or special:
        return
    yield from _uniform(maker, dice)
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
    groups: dict[tuple[int, ...], list[tuple[int, int, int]]] = defaultdict(list)
    for (rows, size), times in numbers.items():
        rest = size * unit(operation) % step_of(operation) // unit(operation)
        key = {ROWS: (size,), COLUMNS: (rows, rest), WHOLE: (rows, size)}[axis]
        of_all = axis == COLUMNS or maker.brief or bool(more) or size in _RESIDUES
        parity = sum(key) if of_all else rows + size
        large = rows * size * unit(operation) > LARGE
        for half in (0, 1) if two else (0,):
            share = (times + (parity + half) % 2) // 2 if two else times
            special = large or (sum(key) + half if two else parity) % ORDINARY > 0
            if share:
                groups[*key, special and operation not in PRODUCTS, half].append((rows, size, share))
    for place, (key, members) in enumerate(sorted(groups.items())):
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
    shares = [0.5 if "minus" in level else 1.0 for level in every]
    dear = DEAR.get(maker.operation, 1)
    most = UNIFORM * min(1.0, LEVELS / max(1.0, sum(shares))) / (2 if maker.cutting.axis != ROWS or dear > 1 else 1)
    for level, share in zip(every, shares, strict=True):
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
    ways += [("alike", dice.choice(tall_numbers())) for _ in range(THOUSANDS)]
    ways += [("ordered", dice.choice((33, 300, 1000, 3000))) for _ in range(2 * THOUSANDS)]
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
        calls = OTHER_DATA if calls in unable else calls
        large = rows * size * unit(operation) > BEHIND_LARGE
        if (maker.brief and turn % BRIEF_TURNS) or (calls in BEHIND and large):
            calls = ANOTHER_VARIANT
        part = _part(maker, {**shape, **named, **repeated}, cell, rows, size, same, calls, dice)
        elsewhere = calls == ANOTHER_THREAD or turn % 7 in ELSEWHERE[large]
        turn = turn if maker.brief else turn // len(CALL_TURNS)
        made.append(replace(part, turn=turn, elsewhere=elsewhere))
    return Field(case, found, tuple(dice.sample(made, len(made))), number)


def _unable(case: Case, found: Cutting, place: int) -> tuple[str, ...]:
    """Return how no part of a field can be called: behind other columns in the first one, or in another shape."""
    if found.axis == COLUMNS:
        return OTHER_COLUMNS, OTHER_ROWS, ANOTHER_SHAPE
    if one_shape(case, found):
        return ()
    return (ANOTHER_SHAPE,) if place and found.axis == ROWS else (ANOTHER_SHAPE, OTHER_COLUMNS)


def _turns(operation: str, rows: int, size: int, times: int, met: Counter[tuple[bool, int]]) -> Iterator[int]:
    """Yield the turns in which a pair is asked, so many or, where it would be seen less, some more; see `_field`.

    A number that was seen in enough turns goes on to one that shows more.
    """
    rarer, seen = (rows >= size, max(rows, size)), False
    alone = times == 1 and rows * size * unit(operation) <= SEEN_AGAIN and rarer[1] not in _RESIDUES
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
    maker: Maker, row: Row, cell: tuple[int, int], rows: int, size: int, same: bool, calls: str, dice: Random
) -> Part:
    """Return some rows of a field, or its last columns, or the whole."""
    if maker.cutting.axis == ROWS:
        first = 0 if maker.cutting.from_first else dice.randint(0, cell[0] - rows)
        return Part(first, rows, {**row, "rows": rows, "calls": calls}, form_of(row), same, calls)
    row = {**row, "columns": columns_of(maker.operation, size * unit(maker.operation)), "calls": calls}
    first = (cell[1] - size) * unit(maker.operation) // step_of(maker.operation)
    return Part(first if maker.cutting.axis == COLUMNS else 0, 0, row, form_of(row), False, calls)


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
