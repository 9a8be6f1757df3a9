"""Rows of each expert and row maps from levels: where the longest expert lies, who is empty, how tokens are taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

import numpy as np

from .covering import Level
from .factors import BESIDE_POWERS

OTHERS_FEW, OTHERS_MANY = (1, 33, 2, 130, 5, 64, 3), (1, 2, 1, 3)
"""Rows of the experts behind the longest: of up to 33 experts, and of more."""


def filled(experts: int, empty: str) -> list[int]:
    """Return the experts that have rows."""
    middle = experts // 2
    gone: dict[str, set[int]] = {
        "none": set(),
        "first": {0},
        "last": {experts - 1},
        "middle": {middle},
        "two in a row": {middle, middle + 1},
        "three first": {0, 1, 2},
        "33 in a row": set(range(1, 34)),
        "every other": set(range(0, experts, 2)),
        "all but one": set(range(experts)) - {middle},
        "odd ones": set(range(1, experts, 2)),
        "130 first": set(range(130)),
        "1024 first": set(range(1024)),
        "130 last": set(range(experts - 130, experts)),
        "all": set(range(experts)),
    }
    return [expert for expert in range(experts) if expert not in gone[empty]]


def splits(row: Mapping[str, Level], even: bool) -> list[int] | None:
    """Return the rows of each expert, or None where the levels exclude each other.

    even: every count is made even, since two rows share a byte.
    """
    experts, length, before = int(row["experts"]), int(row["rows of an expert"]), int(row["rows before it"])
    empty = str(row["empty experts"])
    needed = {"33 in a row": 35, "130 first": 131, "130 last": 131, "two in a row": 3, "three first": 4,
              "1024 first": 1025}  # fmt: skip
    if experts < needed.get(empty, 1):
        return None
    full = filled(experts, empty)
    if len(full) < 1 + (before > 0):
        return [0] * experts if empty == "all" or not full else None
    counts = [0] * experts
    others = OTHERS_FEW if experts <= 33 else OTHERS_MANY
    for place, expert in enumerate(full):
        counts[expert] = others[place % len(others)]
    if before:
        counts[full[0]] = before
    counts[full[1 if before else 0]] = length
    return [count + count % 2 for count in counts] if even else counts


def row_map(taken: str, tokens: int, count: int) -> np.ndarray:
    """Return the tokens of `count` routed rows, i32."""
    return _TAKEN[taken](np.arange(count, dtype=np.int64), tokens).astype(np.int32)


def _scattered(number: np.ndarray, tokens: int) -> np.ndarray:
    return (number * 7919 + 13) % tokens


_TAKEN: Mapping[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "in order": lambda number, tokens: number % tokens,
    "scattered": _scattered,
    "backwards": lambda number, tokens: (tokens - 1 - number) % tokens,
    "last alone": lambda number, tokens: np.full(len(number), tokens - 1),
    "first alone": lambda number, tokens: np.zeros(len(number)),
    "eight each": lambda number, tokens: number // 8 % tokens,
    "33 of one": lambda number, tokens: np.where(number < 33, tokens // 2, _scattered(number, tokens)),
    "few of many": lambda number, tokens: number * 7919 % max(1, tokens // 7),
    "every expert": lambda number, tokens: number % tokens,
    "with gaps": lambda number, tokens: number * tokens // max(1, len(number)) % tokens,
    "shuffled": lambda number, tokens: np.random.default_rng(tokens).permutation(max(tokens, len(number)))[
        : len(number)
    ],
}
"""How tokens are taken -> (numbers of the routed rows, tokens) -> the token of each."""
DRAWN = ("cut", "alike", "long", "many", "ordered", "cut", "boundary", "one", "cut")
"""Ways of drawing the rows of every expert: see `drawn`."""
MOST_EXPERTS, MOST_PADDED, RISING = 1100, 1 << 18, 12
EVERY = (*range(1, 63), *(count for count in BESIDE_POWERS if count < 1600))
"""Rows of the experts of one case that has every length which kernels single out, up to 1,537."""


def drawn(way: str, rows: int, columns: int, align: int, seed: int, even: bool) -> list[int]:
    """Return rows of every expert, always the same for the same arguments.

    Args:
        way: `every` length of `EVERY`, `cut` the rows at random places, one expert `long` among few, `many` experts of
            few rows, a `boundary` anywhere behind small experts, `one` expert with all, experts with `alike` rows, of
            which the last may have fewer, `ordered` experts of which no two have as many rows and all a multiple of
            some number, more than half a `thousand` experts, `balanced` ones, of which the last may have fewer rows,
            `rising` or falling ones of whole groups, or, for `experts n`, so many experts that have all.
        rows: of all experts, about; exactly, for `cut`, `one`, `balanced` and `rising`.
        columns, align: each expert's rows are padded to a multiple of `align`, which bounds the experts.
        seed: of the draw. even: every count is even.
    """
    dice = Random(f"{way} {rows} {columns} {seed}")
    most = max(2, min(MOST_EXPERTS, MOST_PADDED // (columns * max(align, 1))))
    if even and way in _EXACT:
        return [2 * count for count in _FULL[way](dice, rows // 2, most)]
    if way in _FULL:
        counts = _FULL[way](dice, rows, most)
    elif way.startswith("experts "):
        counts = _parted(dice, rows, int(way.partition(" ")[2]))
    else:
        counts = _with_runs(dice, _WAYS[way](dice, rows, most))
    return [count + count % 2 for count in counts] if even else counts


def _few(dice: Random, most: int) -> int:
    """Draw a number of experts: any scale, powers of two and those beside them."""
    drawn = 2 ** dice.uniform(0, math.log2(most + 1))
    if dice.random() < 0.5:
        drawn = 2 ** round(math.log2(drawn)) * dice.choice((2, 2, 3)) // 2 + dice.choice((-1, 0, 0, 1))
    return max(1, min(most, round(drawn)))


def _with_runs(dice: Random, counts: list[int]) -> list[int]:
    """Return counts with runs of empty experts before, amid and behind them, more often than not."""
    if dice.random() < 0.4:
        return counts
    first, last = (dice.choice((0, 1, 2, 0, _few(dice, 66), 65)) for _ in range(2))
    middle, place = dice.choice((0, 1, _few(dice, 66), 65)), dice.randint(0, len(counts))
    return [0] * first + counts[:place] + [0] * middle + counts[place:] + [0] * last


def _cut(dice: Random, rows: int, most: int) -> list[int]:
    return _parted(dice, rows, _few(dice, dice.choice((most, 64))))


def _parted(dice: Random, rows: int, experts: int) -> list[int]:
    """Return rows cut at random places into those of so many experts."""
    cuts = sorted(dice.choices(range(rows + 1), k=experts - 1))
    return [end - start for start, end in zip([0, *cuts], [*cuts, rows], strict=True)]


def _alike(dice: Random, rows: int, most: int) -> list[int]:
    """Return the rows of balanced experts: as many for each, and none without a row, but for the last in some draws."""
    experts = _few(dice, min(most, rows))
    each = rows // experts
    return [each] * (experts - 1) + [dice.choice((each, each, dice.randint(1, each)))]


def _ordered(dice: Random, rows: int, most: int) -> list[int]:
    """Return distinct multiples of a number, rising, falling or in no order: whole blocks or tiles for each expert."""
    step = dice.choice([step for step in (1, 16, 32, 64, 128) if step == 1 or 2 * rows >= 9 * step])
    experts = max(2, min(most, math.isqrt(2 * rows // step)))
    counts = [step * count for count in dice.sample(range(1, experts + 3), experts)]
    return dice.choice((counts, sorted(counts), sorted(counts, reverse=True)))


def _balanced(dice: Random, rows: int, most: int) -> list[int]:
    """Return as many rows for each expert, or fewer for the last one."""
    each = -(-rows // _few(dice, min(most, rows, 66)))
    return [each] * (rows // each) + [rows % each] * (rows % each > 0)


def _rising(dice: Random, rows: int, most: int) -> list[int]:
    """Return rising or falling rows of three or more experts in groups of some rows; balanced ones of too few."""
    step = dice.choice([step for step in (1, 16, 32, 64, 128) if step == 1 or (rows % step == 0 and rows >= 6 * step)])
    room = min(most, RISING, (math.isqrt(8 * (rows // step) + 1) - 1) // 2)
    if room < 3:
        return _balanced(dice, rows, most)
    experts = dice.randint(3, room)
    more, rest = divmod(rows // step - experts * (experts + 1) // 2, experts)
    counts = [step * (count + more) for count in range(1, experts + 1)]
    counts[-1] += step * rest
    return counts[:: dice.choice((1, -1))]


def _long(dice: Random, rows: int, most: int) -> list[int]:
    others = [dice.randint(1, 40) for _ in range(dice.randint(1, 3))]
    others.insert(dice.randint(0, len(others)), rows)
    return others


def _many(dice: Random, rows: int, most: int) -> list[int]:
    return [*dice.choices((0, 1, 2, 3), k=_few(dice, most) - 1), 2]


def _thousand(dice: Random, rows: int, most: int) -> list[int]:
    experts = dice.choice((513, 768, 1023, 1024, 1025, dice.randint(513, MOST_EXPERTS)))
    return [*dice.choices((0, 1, 2, 3), k=experts - 1), 2]


def _boundary(dice: Random, rows: int, most: int) -> list[int]:
    first = [dice.choice((0, 1, 2)) for _ in range(_few(dice, min(most, 40)))]
    return [*first, dice.randint(1, max(1, min(rows, 300))), 3]


def _every(dice: Random, rows: int, most: int) -> list[int]:
    return dice.sample(EVERY, len(EVERY))


_FULL = {"alike": _alike, "ordered": _ordered, "balanced": _balanced, "rising": _rising}
"""Ways in which every expert has rows."""
_EXACT = ("balanced", "rising")
"""Those whose rows are exactly as many as are wanted, even ones too."""
_WAYS = {"every": _every, "cut": _cut, "thousand": _thousand, "long": _long, "many": _many, "boundary": _boundary,
         "one": lambda dice, rows, most: [rows]}  # fmt: skip
