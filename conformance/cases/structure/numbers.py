"""Numbers of rows beside numbers of columns: which pairs of them the parts of fields are asked, and how often.

Kernels single out small numbers, those beside powers of two and one and a half of them, whole tiles, and residues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from ..operation import OPERATIONS
from .factors import BESIDE_POWERS
from .mixed import LOOSE, SHARES

SMALL = tuple(range(1, 67))
MARKS = tuple(sorted({*BESIDE_POWERS[1:], *(count + step for count in BESIDE_POWERS[1:27] for step in (-1, 1)),
                      16383, 16384, 16385}))  # fmt: skip
"""Numbers that kernels single out: every small one, those beside powers of two and one and a half of them, and, up to
1,026, those one further off, as ends of residues are."""
MOST_TALL, MOST_WIDE, WHOLE_TILES = 4097, 513, 100
"""The largest number of rows, and of blocks; blocks of as many whole tiles and a part as are singled out."""
TILED = tuple(wide * count - step for wide in (32, 128) for count in range(3, 26) for step in (0, 1))
"""Columns of whole tiles, and of those and a part."""
RESIDUES = tuple(count for count in range(67, 1027) if count not in MARKS)
"""Numbers that stand for every residue of 512, below it and beyond."""
_ALIKE = frozenset({*MARKS, *TILED} - {*SMALL, *BESIDE_POWERS})
ALIKE_OF, NEAR, GRID = 2, 1 << 12, {True: 0.6, False: 0.85}
"""Of how many pairs one is asked whose rows or columns are only singled out as tiles or as ends of residues, for which
others stand as well; elements of a pair of few; and the largest share of pairs that are not both small, where any
number of columns is taken and where blocks are."""
EACH, LOW = 4, 256
"""Numbers of the other side that each of `RESIDUES` meets; those below `LOW` meet as much of it as may be."""
AREA, MOST = 1 << 14, 1 << 17
"""Elements below which every pair is asked, and of the largest part."""
THIN = {1 << 15: 3, 1 << 16: 6, MOST: 12}
"""Elements -> of how many pairs up to there one is asked: large ones cost most and differ least."""
TURNS = 16
"""Times that a number is asked at least, in other forms."""
GIANT_TALL, GIANT_WIDE = {True: 65540, False: 4096}, {True: 65540, False: 2051}
"""The most rows beside one block of columns, and blocks or columns beside two rows, where any number of columns is
taken and where blocks are."""
FEW_ROWS, FEW_COLUMNS = 3, 2
"""Rows, and columns where any number is taken, beside which a large number is asked in every form."""
LEAST_SHARE, FAIR_SHARE = 0.7, 0.25
"""Share of `mixed.SHARES` from which on an operation is asked every pair; of others half of that share is. From the
second on each number still meets the largest number that a case has room for."""
LOW_COLUMNS, FEW_TIMES = 3, 2
"""Of so many residues of 256 beyond it one stands as columns, as each of 512 does beyond: a field of columns costs more
than its calls; and the least times that one below 512 stands as rows."""
FEW_RESIDUES = 48
"""Residues among few numbers of rows."""
BRIEF, BRIEF_RESIDUES = (1, 2, 5, 17), 3
"""Columns or blocks beside which numbers of rows are asked briefly, and of how many residues one is."""
ODD_TILES = ((9, 12), (17, 24))
"""Blocks of 32 columns that are three tiles of 128, or of 256, whole or with a part."""
WHOLE_TWICE = 0.1
"""Share of pairs below which a residue beyond 512 stands as rows or as columns, not as both."""
ENDS = (17, 18, 24, 25, 31, 32, 33, 34, 47, 48, 49, 63, 64, 65)
"""Rows beside the most columns of which each operation is asked, beyond one tile: ends and middles of residues."""
WARP = 32
"""Of so many rows, or a multiple, are the most beside each even number of columns: kernels may take them together."""
Pairs = Counter[tuple[int, int]]
"""(rows, columns or blocks) -> how often they are asked together."""


def unit(operation: str) -> int:
    """Return the elements of the least columns."""
    return 1 if operation in LOOSE else 32


def tall_numbers() -> tuple[int, ...]:
    """Return the numbers of rows that are singled out."""
    return (*SMALL, *(mark for mark in MARKS if mark <= MOST_TALL))


def wide_numbers(operation: str) -> tuple[int, ...]:
    """Return the numbers of columns, or of blocks, that are singled out."""
    if operation in LOOSE:
        return tuple(sorted({*SMALL, *MARKS, *TILED}))
    return tuple(sorted({*range(1, WHOLE_TILES + 1), *(mark for mark in MARKS if mark <= MOST_WIDE)}))


def share_of(operation: str, dear: bool) -> float:
    """Return the share of all pairs that an operation is asked: less than all where its model takes longer."""
    share = SHARES.get(operation, 0.5 if dear else 1.0)
    return share / 2 if share < LEAST_SHARE else 1.0


def pairs(
    operation: str,
    share: float,
    dice: Random,
    turns: int = TURNS,
    small: float = 0,
    whole: bool = False,
    step_along: int = 1,
) -> Pairs:
    """Return the pairs that the first variant is asked.

    share: of the pairs of singled out numbers. turns: times that each number is asked at least, other residues only
    where they are all of `TURNS`. small: the least share of pairs of `SMALL` numbers, or of few elements.
    whole: whether each pair is a field of its own. step_along: the columns or blocks by which fields are cut along
    their rows.
    """
    found, step, tall, wide = Pairs(), unit(operation), tall_numbers(), wide_numbers(operation)
    most = int(MOST * min(1, 2 * share))
    for rows in tall:
        for size in wide:
            area = rows * size * step
            near = max(rows, size * step) <= SMALL[-1] or (not whole and area <= NEAR)
            of = max(share, small) if near else share
            if max(rows, size) > SMALL[-1]:
                of = min(of, GRID[step == 1]) / (ALIKE_OF if step == 1 and {rows, size} & _ALIKE else 1)
            if area <= most and dice.random() < of / _thinned(area):
                found[rows, size] = 1
    largest = MOST if share >= LEAST_SHARE else MOST // 4 if share >= FAIR_SHARE else most
    found.update(set(_residues(operation, share, dice, step_along)) if turns == TURNS else ())
    for pair in {*_largest(operation, largest if turns == TURNS else most // 8)} - {*found}:
        found[pair] = 1
    _in_turns(found, operation, turns, share, None if whole else dice)
    dear = share < LEAST_SHARE
    found[4097 if dear else GIANT_TALL[step == 1], 1] += turns
    found[GIANT_TALL[True], 1] += 1 if dear and turns == TURNS else 0
    found[2, GIANT_WIDE[step == 1]] += turns // 2 if dear else turns
    return _even(operation, found)


def _thinned(area: int) -> int:
    """Return of how many pairs of so many elements one is asked."""
    return 1 if area <= AREA else next(count for most, count in THIN.items() if area <= most)


def brief_pairs(operation: str, dice: Random, residues: bool = True) -> Pairs:
    """Return pairs in which every singled out number stands once, most beside a small one, and the largest.

    residues: whether some residues of 256 stand there too, of numbers beyond 256, as a kernel may treat its last tile
    apart.
    """
    found, step = Pairs(), unit(operation)
    for rows in tall_numbers():
        found[rows, dice.choice([size for size in BRIEF if size * step * rows <= AREA // 2] or [1])] += 1
    for size in wide_numbers(operation):
        found[dice.randint(1, max(1, min(40, AREA // 2 // step // size))), size] += 1
    for rows in (number for number in range(LOW, 2 * LOW, BRIEF_RESIDUES) if residues and number not in MARKS):
        found[rows, dice.randint(1, 2)] += 1
        if step == 1:
            found[1, rows] += 1
    found[4097, 1] += 1
    found[2, GIANT_WIDE[step == 1]] += 1
    return _even(operation, found)


def few_pairs(operation: str, dice: Random, share: float, most: int) -> Pairs:
    """Return pairs in which a share of the singled out numbers stands, rows and columns in the same pairs.

    Some residues stand among the rows; and most elements stand in a single block of columns, and in one row.
    """
    found, step = Pairs(), unit(operation)
    tall, wide = (dice.sample(of, round(share * len(of))) for of in (tall_numbers(), wide_numbers(operation)))
    left = set(wide)
    for rows in (*tall, *dice.sample(RESIDUES, round(share * FEW_RESIDUES))):
        room = [size for size in wide if rows * size * step <= AREA // 2] or [1]
        size = dice.choice([size for size in room if size in left] or room)
        left.discard(size)
        found[rows, size] = 1
    for size in sorted(left):
        found[dice.randint(1, max(1, min(SMALL[-1], AREA // 2 // step // size))), size] = 1
    found[most // step, 1] = found[1, most // step] = 1
    return _even(operation, found)


def some_pairs(operation: str, dice: Random, count: int) -> Pairs:
    """Return so many small numbers of rows, each beside the same few columns."""
    size = dice.choice(BRIEF)
    return _even(operation, Pairs({(rows, size): 1 for rows in dice.sample(SMALL, count)}))


def _even(operation: str, found: Pairs) -> Pairs:
    """Return pairs whose rows are even where an operation takes no others."""
    if not OPERATIONS[operation].even_rows:
        return found
    even = Pairs()
    for (rows, size), times in found.items():
        even[rows + rows % 2, size] += times
    return even


def _residues(operation: str, share: float, dice: Random, step_along: int = 1) -> Iterator[tuple[int, int]]:
    """Yield each of `RESIDUES` beside some small numbers: as rows, and as columns where any number is taken.

    The low ones, which small numbers of tiles hold, stand beside an odd number of tiles above one too; those of 512
    beyond them, for which there is room beside one block, beside two or three as well. Where fields are cut along
    their rows, one field has all that a number stands beside.
    """
    loose = operation in LOOSE
    count = max(1, round((EACH // 2 if loose else EACH - 1) * share))
    for number in RESIDUES:
        room = max(1, min(SMALL[-1], AREA // 4 // number // unit(operation)))
        thin = loose and share < WHOLE_TWICE and number >= 2 * LOW
        for turn in range(max(count, FEW_TIMES if number < 2 * LOW else 1)):
            if not thin or number % 2:
                size = dice.randint(1, room)
                along = size - (size - number) % step_along  # of a remainder that is the number's
                yield number, along if along > 0 else 1 + number % min(step_along, room)
            low = number in range(LOW, 2 * LOW) and number % LOW_COLUMNS
            if loose and turn < count and not low and not (thin and number % 2):
                yield dice.randint(min(2, room), room), number  # the row behind one is seen
        if LOW <= number < 2 * LOW and not loose:
            yield number, dice.randint(2, 3) if step_along == 1 else 2 + number % 2
        if number < LOW and dice.random() < share:
            blocks = dice.randint(*ODD_TILES[number % len(ODD_TILES)])
            yield number, 32 * blocks - dice.randint(0, 31) if loose else blocks


def _largest(operation: str, most: int) -> Iterator[tuple[int, int]]:
    """Yield each number of rows beside the most columns, each number of columns beside the most rows."""
    step, wide = unit(operation), wide_numbers(operation)
    low = [rows for rows in RESIDUES if rows < LOW]
    for rows, area in (*((rows, most) for rows in tall_numbers()), *((rows, most // 4) for rows in low)):
        yield rows, max((size for size in wide if rows * size * step <= area), default=1)
    if MOST // 8 < most < MOST:  # of a dear operation
        yield from ((rows, max(size for size in wide if rows * size * step <= MOST)) for rows in ENDS)
    for size in wide:
        part = most if most == MOST or size <= SMALL[-1] or size % 32 == 0 or step > 1 else most // 2
        rows = max(1, min(MOST_TALL, part // step // size))
        yield rows - rows % WARP if rows > WARP and size % 2 == 0 else rows, size


def _in_turns(found: Pairs, operation: str, turns: int, share: float, dice: Random | None) -> None:
    """Ask numbers that stand in few pairs more often: beside small numbers that dice draw, or one for want of dice.

    Large ones of a dear operation are asked half as often.
    """
    step, met = unit(operation), (Counter[int](), Counter[int]())
    for (rows, size), times in found.items():
        met[0][rows] += times
        met[1][size] += times

    def beside(number: int, usual: int, least: int) -> int:
        most = min(SMALL[-1], AREA // 2 // step // number)
        return dice.randint(1, most) if dice is not None and most > least else usual

    def wanted(number: int) -> int:
        return turns // 2 if share < LEAST_SHARE and number * step > AREA else turns

    for rows in tall_numbers():
        for _ in range(wanted(rows) - met[0][rows]):
            found[rows, beside(rows, FEW_COLUMNS if step == 1 else 1, FEW_COLUMNS)] += 1
    for size in wide_numbers(operation):
        for _ in range(wanted(size) - met[1][size]):
            found[beside(size, FEW_ROWS, FEW_ROWS), size] += 1
