"""Conditions over sizes: rows, columns, tiles, experts, their rows and boundaries."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random

from ....cases.entry import Operation
from .call import Call
from .condition import Condition, Facts, exact, residue, size

ROWS, COLUMNS, ELEMENTS = 1 << 16, 1 << 16, 1 << 20
"""The largest thresholds: grids have 65,535 blocks along y, and a CPU judges a million elements in a moment."""
EXPERTS, EXPERT_ROWS = 1 << 10, 1 << 12
SMALL = 300
"""Rows and columns that a call has when a condition says nothing of them stay below this."""
RAGGED = "splits"

Maker = Callable[[Random, Operation, Facts], Condition | None]
SIZED: list[Maker] = []


def sized(maker: Maker) -> Maker:
    """Register a maker of conditions."""
    SIZED.append(maker)
    return maker


def up(number: int, step: int) -> int:
    """Return a number raised to a multiple of a step."""
    return -(-number // step) * step


@sized
def rows_from(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """Rows from a threshold on."""
    least = size(dice, 2, ROWS + 1)
    return Condition("rows >= t", f"rows >= {least}", lambda call: call.rows >= least,
                     lambda _: {"rows": up(least, facts.rows)})  # fmt: skip


@sized
def rows_equal(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """One number of rows."""
    one = up(exact(dice, 1, ROWS // 16), facts.rows)
    return Condition("rows == t", f"rows == {one}", lambda call: call.rows == one, lambda _: {"rows": one})


@sized
def rows_residue(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """A remainder of rows, of any number of them or beyond the first tile."""
    modulus = 1 << dice.randint(1, 9)
    rest, beyond = residue(dice, modulus), dice.random() < 0.5
    rest -= rest % facts.rows
    words = f"rows % {modulus} == {rest}" + (f", rows > {modulus}" if beyond else "")
    least = modulus if beyond else 0

    def wants(dice: Random) -> dict[str, int]:
        return {"rows": rest + modulus * dice.randint(1, 3) if beyond or not rest else rest}

    return Condition("rows % m == r", words, lambda call: call.rows > least and call.rows % modulus == rest, wants)


@sized
def columns_from(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """Columns from a threshold on."""
    least = size(dice, facts.columns + 1, COLUMNS + 1)
    return Condition("K >= t", f"K >= {least}", lambda call: call.columns >= least,
                     lambda _: {"columns": up(least, facts.columns)})  # fmt: skip


@sized
def columns_equal(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """One number of columns."""
    one = exact(dice, 1, COLUMNS // 4 // facts.columns) * facts.columns
    return Condition("K == t", f"K == {one}", lambda call: call.columns == one, lambda _: {"columns": one})


@sized
def columns_residue(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """A remainder of columns, of any number of them or beyond the first tile."""
    least = 6 if facts.columns > 1 else 1
    modulus = 1 << dice.randint(least, 9)
    rest, beyond = residue(dice, modulus // facts.columns) * facts.columns, dice.random() < 0.6
    words = f"K % {modulus} == {rest}" + (f", K > {modulus}" if beyond else "")
    over = modulus if beyond else 0

    def wants(dice: Random) -> dict[str, int]:
        return {"columns": rest + modulus * dice.randint(1, 4) if beyond or not rest else rest}

    return Condition("K % m == r", words, lambda call: call.columns > over and call.columns % modulus == rest, wants)


@sized
def tiles(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """A number of blocks or tiles along a row: odd, one number, or from one on."""
    wide = dice.choice((32, 128))
    count = size(dice, 1, 24)
    tests: dict[str, tuple[Callable[[int], bool], int]] = {
        f"an odd number above 1 of tiles of {wide}": (lambda n: n % 2 == 1 and n > 1, 2 * count + 1),
        f"{count} tiles of {wide}": (lambda n: n == count, count),
        f"{count} whole tiles of {wide} and a part": (lambda n: n == count + 1, count + 1),
    }
    words = dice.choice(list(tests))
    test, number = tests[words]
    part = "part" in words and wide > facts.columns

    def holds(call: Call) -> bool:
        return test(-(-call.columns // wide)) and (not part or call.columns % wide > 0)

    return Condition("tiles", words, holds, lambda _: {"columns": number * wide - (facts.columns if part else 0)})


@sized
def elements(dice: Random, operation: Operation, facts: Facts) -> Condition:
    """All elements from a threshold on."""
    least = size(dice, 256, ELEMENTS)

    def wants(dice: Random) -> dict[str, int]:
        columns = up(min(least, dice.choice((64, 256, 1024, 4096))), facts.columns)
        return {"columns": columns, "rows": up(-(-least // columns), facts.rows)}

    return Condition("elements >= t", f"elements >= {least}", lambda call: call.rows * call.columns >= least, wants)


@sized
def experts(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """A number of experts: from one on, or one number."""
    if RAGGED not in facts.parameters:
        return None
    exactly = dice.random() < 0.3
    count = exact(dice, 2, EXPERTS + 1) if exactly else size(dice, 2, EXPERTS + 1)
    words = f"experts {'==' if exactly else '>='} {count}"

    def holds(call: Call) -> bool:
        return len(call.splits) == count if exactly else len(call.splits) >= count

    return Condition("experts", words, holds, lambda dice: {"splits": spread(dice, count, facts)})


def spread(dice: Random, count: int, facts: Facts) -> list[int]:
    """Return rows for so many experts, few each, one in four of them without a row."""
    return [dice.choice((0, 1, 2, 3)) * facts.rows for _ in range(count - 1)] + [2 * facts.rows]


@sized
def expert_rows(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """Rows of one expert: from a threshold on, or one number of them beside another expert."""
    if RAGGED not in facts.parameters:
        return None
    exactly = dice.random() < 0.4
    count = up((exact if exactly else size)(dice, 1, EXPERT_ROWS), facts.rows)
    words = f"an expert of {count} rows" + (" beside others" if exactly else " or more beside others")

    def holds(call: Call) -> bool:
        return len(call.splits) > 1 and any(n == count if exactly else n >= count for n in call.splits)

    return Condition("rows of an expert", words, holds, lambda dice: {"splits": beside(dice, count, facts)})


def beside(dice: Random, count: int, facts: Facts) -> list[int]:
    """Return splits with an expert of so many rows among others of few."""
    others = [dice.randint(1, 40) * facts.rows for _ in range(dice.randint(1, 3))]
    others.insert(dice.randint(0, len(others)), count)
    return others


@sized
def boundaries(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """The remainder of a row at which an expert begins, that of any expert or of one far down the list."""
    if RAGGED not in facts.parameters:
        return None
    modulus = 1 << dice.randint(1, 7)
    rest, index = residue(dice, modulus), size(dice, 1, 40)
    rest -= rest % facts.rows
    words = f"expert {index} or a later one begins at a row r > 0 with r % {modulus} == {rest}"

    def holds(call: Call) -> bool:
        return any(start and start % modulus == rest for start in call.offsets[index - 1 :])

    def wants(dice: Random) -> dict[str, list[int]]:
        first = [dice.choice((0, 1, 2)) * facts.rows for _ in range(index - 1)]
        need = (rest - sum(first)) % modulus
        return {"splits": [*first, need + modulus * (not need + sum(first)), 3 * facts.rows]}

    return Condition("boundary % m == r", words, holds, wants)


WHOLE_GROUPS = "rows in whole groups"
ALIKE = {
    "as many rows as the others": lambda splits: splits[0] > 0 and len(set(splits)) == 1,
    "as many rows as the others, or fewer if it is the last": (
        lambda splits: splits[0] > splits[-1] > 0 and len(set(splits[:-1])) == 1),
}  # fmt: skip
"""What each expert has -> whether some splits are so."""
ORDERED = {
    "more rows than the one before": lambda splits: all(b > a for a, b in itertools.pairwise(splits)),
    "fewer rows than the one before": lambda splits: all(b < a for a, b in itertools.pairwise(splits)),
}
"""What each expert has -> whether some splits are so."""


@sized
def alike_experts(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """So many experts or more with as many rows each, as a balanced router gives them."""
    if RAGGED not in facts.parameters:
        return None
    what, least, step = dice.choice(list(ALIKE)), dice.choice((2, 3, 4, 6, 8, 16)), facts.rows
    test, fewer = ALIKE[what], "fewer" in what

    def holds(call: Call) -> bool:
        return len(call.splits) >= least and test(call.splits)

    def wants(dice: Random) -> dict[str, list[int]]:
        each = dice.randint(2, 20)
        last = dice.randint(1, each - 1) if fewer else each
        return {"splits": [each * step] * (least + dice.randint(0, 3) - 1) + [last * step]}

    return Condition("experts alike", f"each of {least} or more experts has {what}", holds, wants)


@sized
def ordered_experts(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """Experts in the order of their rows, or each of whole groups of rows, three or more."""
    if RAGGED not in facts.parameters:
        return None
    what, least, step = dice.choice([*ORDERED, WHOLE_GROUPS]), dice.choice((3, 4, 5, 6)), facts.rows
    group = dice.choice((16, 32, 64, 128)) if what == WHOLE_GROUPS else step

    def holds(call: Call) -> bool:
        full = len(call.splits) >= least and min(call.splits) > 0
        return full and (ORDERED[what](call.splits) if what in ORDERED else not any(n % group for n in call.splits))

    def wants(dice: Random) -> dict[str, list[int]]:
        counts = sorted(dice.sample(range(1, least + 4), least), reverse=what.startswith("fewer"))
        return {"splits": [count * group for count in counts]}

    words = f"each of {least} or more experts has {what}" + (f" of {group}" if what == WHOLE_GROUPS else "")
    return Condition("experts in order", words, holds, wants)


EMPTY = {
    "first": (lambda call, n: any(first == 0 and length >= n for first, length in call.runs)),
    "last": (lambda call, n: any(first + length == len(call.splits) > length >= n for first, length in call.runs)),
    "in the middle": (
        lambda call, n: any(first > 0 and first + length < len(call.splits) and length >= n
                            for first, length in call.runs)),
}  # fmt: skip
"""Where a run of empty experts stands -> whether a call has one of so many."""


@sized
def empty_experts(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """A run of experts without a row, of some length, at one place of the list."""
    if RAGGED not in facts.parameters:
        return None
    where, length = dice.choice(list(EMPTY)), size(dice, 1, 64)
    test, run = EMPTY[where], [0] * length

    def wants(dice: Random) -> dict[str, list[int]]:
        some = [dice.randint(1, 20) * facts.rows for _ in range(3)]
        at = {"first": 0, "last": 3, "in the middle": dice.randint(1, 2)}[where]
        return {"splits": [*some[:at], *run, *some[at:]]}

    return Condition("empty experts", f"{length} or more empty experts {where}", lambda call: test(call, length), wants)


@sized
def tokens(dice: Random, operation: Operation, facts: Facts) -> Condition | None:
    """A number of tokens that a map points at: from one on, or more than the map has rows."""
    if "row_map" not in operation.inputs:
        return None
    least = size(dice, 2, 1 << 14)
    return Condition("tokens", f"tokens >= {least}", lambda call: call.tokens >= least, lambda _: {"tokens": least})


def makers() -> Iterator[Maker]:
    """Yield the makers of conditions over sizes."""
    yield from SIZED
