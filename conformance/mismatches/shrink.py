"""Make a failing case small: the recipe first, then rows, blocks, lanes, and bits.

`Search` holds the smallest failing case so far; `consider` is the only way to replace it. Each shrinker is one
idea and only proposes. All of them together are run until none of them helps, or the budget is spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from refnum.errors import RefnumError

from ..cases import crop
from ..cases.case import Case
from ..cases.draw.bits import input_format
from ..cases.recipes import expand, simpler

ELEMENTS = (*crop.ELEMENTS, "prob", "weights", "payload", "rows")
"""Inputs whose single elements may be changed."""


class Search:
    """The smallest case that still fails, and the calls that are left to find a smaller one.

    fails: tells whether a case shows the same failure. It is asked at most once for any case.
    """

    def __init__(self, case: Case, fails: Callable[[Case], bool], calls: int = 400, seconds: float = 10.0) -> None:
        self.best = case
        self.fails = fails
        self.calls = calls
        self.deadline = time.monotonic() + seconds
        self.seen = {case.digest()}

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return self.calls <= 0 or time.monotonic() > self.deadline

    def consider(self, case: Case) -> bool:
        """Take a case if it is smaller than the best one and fails the same way; return whether it was taken."""
        if self.spent or weight(case) >= weight(self.best):
            return False
        digest = case.digest()
        if digest in self.seen:
            return False
        self.seen.add(digest)
        self.calls -= 1
        try:
            failed = self.fails(case)
        except RefnumError:
            failed = False
        if failed:
            self.best = case
        return failed


def weight(case: Case) -> tuple[int, int, int, int]:
    """Return what makes a case large: elements, elements not zero, distance of its scale from 2^0, bits set."""
    total = nonzero = distance = ones = 0
    for name in case.inputs:
        flat = crop.patterns(case, name)
        total += flat.size
        if name == "scales" and case.inputs[name].dtype == np.uint8:
            distance += int(np.abs(flat.astype(np.int64) - 127).sum())
        else:
            nonzero += int(np.count_nonzero(flat))
            ones += int(np.bitwise_count(flat).sum())
    return total, nonzero, distance + _off_centre(case), ones


def _off_centre(case: Case) -> int:
    """Return how far the largest finite exponent of `x` is from 2, where an MXFP4 scale is near 2^0."""
    if "x" not in case.inputs:
        return 0
    fmt = input_format(case.inputs["x"].dtype.name)
    exponent = (crop.patterns(case, "x").astype(np.int64) & (fmt.sign_mask - 1)) >> fmt.mantissa_bits
    finite = exponent[(exponent > 0) & (exponent < ((1 << fmt.exponent_bits) - 1))]
    return abs(int(finite.max()) - fmt.bias - 2) if finite.size else 0


class Shrinker:
    """One idea for smaller cases. `propose` yields candidates made from the current best one."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield candidates; the best case may change between two of them."""
        raise NotImplementedError

    def run(self, search: Search) -> bool:
        """Propose until the ideas run out; return whether any was taken."""
        taken = [search.consider(case) for case in self.propose(search)]  # every idea, not only the first that helps
        return any(taken)


class Recipe(Shrinker):
    """Expand simpler recipes. Guarantees that what remains still comes from a recipe, when that suffices."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield the expansions of the recipe's own simpler versions, starting again from each one that is taken."""
        while (recipe := search.best.recipe) is not None:
            for smaller in simpler(recipe):
                yield expand(smaller)
                if search.best.recipe is not recipe:
                    break
            else:
                return


class Rows(Shrinker):
    """Keep half of the rows, or the other half, down to one; then drop single rows at both ends."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield row ranges of half, a quarter, ... of the rows."""
        if crop.croppable(search.best):
            rows = lambda: crop.shape(search.best)[0]  # noqa: E731
            yield from _halves(search, rows, lambda a, b: crop.take_rows(search.best, a, b), 1)


class Others(Shrinker):
    """Keep half of the rows of the other operand of a product, or the other half, down to one."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield row ranges of half, a quarter, ... of the rows of `b`."""
        if "b" in search.best.inputs:
            rows = lambda: search.best.inputs["b"].shape[-2]  # noqa: E731
            yield from _halves(search, rows, lambda a, b: crop.take_others(search.best, a, b), 1)


class Experts(Shrinker):
    """Drop experts of a product that have no rows, one at a time from the last."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield products without one of the experts."""
        if crop.of_experts(search.best):
            empty = [expert for expert, count in enumerate(search.best.params["splits"]) if not count]
            for expert in reversed(empty):
                count = len(search.best.params["splits"])
                yield crop.take_experts(search.best, [*range(expert), *range(expert + 1, count)])


class Terms(Shrinker):
    """Drop the scales of a product, and the terms that are zero: those behind the last other one, all, runs of them."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield products without scales and with fewer terms."""
        for name in [name for name in search.best.inputs if name in ("a_scales", "b_scales")]:
            case = search.best
            yield replace(case, inputs={key: x for key, x in case.inputs.items() if key != name}, recipe=None)
        if "b" not in search.best.inputs:
            return
        yield crop.take_columns(search.best, 0, int(np.flatnonzero(_used(search.best)).max(initial=0)) + 1)
        run = 0 if crop.by_block(search.best) else crop.shape(search.best)[1]
        while run and not search.spent:
            for start in range(0, crop.shape(search.best)[1], run):
                kept = _used(search.best)
                kept[:start] = kept[start + run :] = True
                if kept.any():
                    yield crop.take_terms(search.best, kept)
            run //= 2


def _used(case: Case) -> np.ndarray:
    """Return which terms of a product have a code that is not +0 in both operands."""
    used = [(array != 0).reshape(-1, array.shape[-1]).any(axis=0) for array in (case.inputs["a"], case.inputs["b"])]
    return np.asarray(used[0] & used[1])


class Blocks(Shrinker):
    """Keep half of the blocks along the last axis, down to one block or tile, then to one block of a tile."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield column ranges that keep blocks whole."""
        if not crop.croppable(search.best):
            return
        unit = crop.column_unit(search.best)
        columns = lambda: crop.shape(search.best)[1]  # noqa: E731
        yield from _halves(search, columns, lambda a, b: crop.take_columns(search.best, a, b), unit)
        if unit == 128 and columns() > 32:
            yield crop.take_columns(search.best, 0, 32)


def _halves(search: Search, size: Callable[[], int], cut: Callable[[int, int], Case], unit: int) -> Iterator[Case]:
    step = size()
    while step > unit:
        step = -(-(step // 2) // unit) * unit
        for start in range(0, size(), step):
            before = search.best
            yield cut(start, min(start + step, size()))
            if search.best is not before:
                break
    dropped = True
    while dropped and size() > unit:  # what needs a neighbour, say the last of two rows, survives no halving
        before = search.best
        yield cut(0, size() - unit)
        if search.best is before:
            yield cut(unit, size())
        dropped = search.best is not before


class Lanes(Shrinker):
    """Set elements to zero: large runs first, then smaller ones, each kept if the failure stays."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield cases with a run of elements zeroed."""
        for name in [name for name in search.best.inputs if name in ELEMENTS]:
            run = crop.patterns(search.best, name).size
            while run and not search.spent:
                for start in np.unique(np.flatnonzero(crop.patterns(search.best, name)) // run) * run:
                    flat = crop.patterns(search.best, name)
                    flat[start : start + run] = 0
                    yield crop.with_patterns(search.best, name, flat)
                run //= 2


class Scales(Shrinker):
    """Move scale bytes to 127: all of them, all by the same step, then one at a time."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield cases with plainer scale bytes."""
        scales = search.best.inputs.get("scales")
        if scales is None or scales.dtype != np.uint8 or not crop.croppable(search.best):
            return
        flat = crop.patterns(search.best, "scales")
        finite = flat[flat != 255]
        yield crop.with_patterns(search.best, "scales", np.full_like(flat, 127))
        if finite.size:
            moved = flat.astype(np.int64) - (int(finite.max()) - 127)
            yield crop.with_patterns(
                search.best, "scales", np.where(flat == 255, 255, np.clip(moved, 0, 254)).astype(np.uint8)
            )
        for index in range(min(flat.size, 64)):
            flat = crop.patterns(search.best, "scales")
            flat[index] = 127
            yield crop.with_patterns(search.best, "scales", flat)


class Centre(Shrinker):
    """Shift the exponents of all finite floats by one amount, so that the largest lies in [4, 8).

    Blocks scaled by a power of two behave alike but at the ends of the range, so a failure that is not about
    those ends is shown with a scale near 2^0.
    """

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield the case shifted, if every element that is not zero stays a normal number."""
        case = search.best
        if "x" not in case.inputs:
            return
        fmt = input_format(case.inputs["x"].dtype.name)
        flat = crop.patterns(case, "x")
        magnitude = flat.astype(np.int64) & (fmt.sign_mask - 1)
        exponent = magnitude >> fmt.mantissa_bits
        top = (1 << fmt.exponent_bits) - 1
        finite = (exponent > 0) & (exponent < top)
        if not finite.any():
            return
        step = fmt.bias + 2 - int(exponent[finite].max())
        fits = finite & (exponent + step > 0) & (exponent + step < top)
        if step and (fits == finite).all():
            shifted = np.where(fits, flat.astype(np.int64) + (step << fmt.mantissa_bits), flat)
            yield crop.with_patterns(case, "x", shifted.astype(flat.dtype))


class Bits(Shrinker):
    """Clear bits of single elements: the sign, runs of low mantissa bits, then any one bit."""

    def propose(self, search: Search) -> Iterator[Case]:
        """Yield cases with one element simplified; only the first 12 elements that are not zero are tried."""
        for name in [name for name in search.best.inputs if name in ELEMENTS]:
            width = 4 if name == "packed" else crop.patterns(search.best, name).itemsize * 8
            for index in np.flatnonzero(crop.patterns(search.best, name))[:12]:
                for keep in _masks(width):
                    flat = crop.patterns(search.best, name)
                    if flat[index] & ~flat.dtype.type(keep):
                        flat[index] &= flat.dtype.type(keep)
                        yield crop.with_patterns(search.best, name, flat)


def _masks(width: int) -> Iterator[int]:
    every = (1 << width) - 1
    yield every >> 1
    for low in range(width - 2, 0, -1):
        yield every & ~((1 << low) - 1)
    for bit in range(width):
        yield every & ~(1 << bit)


SHRINKERS: tuple[Shrinker, ...] = (
    Recipe(), Rows(), Experts(), Others(), Blocks(), Lanes(), Terms(), Scales(), Centre(), Bits(),
)  # fmt: skip


def shrink(case: Case, fails: Callable[[Case], bool], calls: int = 400, seconds: float = 10.0) -> Case:
    """Return a case that fails the same way and that no shrinker makes smaller within the budget.

    fails must be true of the case given. The result's weight is never larger than the case's.
    """
    search = Search(case, fails, calls, seconds)
    improved = True
    while improved and not search.spent:
        improved = sum(shrinker.run(search) for shrinker in SHRINKERS) > 0
    return search.best
