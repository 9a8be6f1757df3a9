"""A product that differs: the order whose bits were seen, and the step at which both sides part (N19)."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from refnum.errors import RefnumError
from refnum.product_steps import PRODUCTS, product_steps
from refnum.tensor_core import INSTRUCTIONS
from refnum.tiles import TILE

from ..cases import crop
from ..cases.case import Case
from ..cases.operation import run_golden
from ..cases.orders import candidates
from .diagnose import Seen

LARGEST = 1 << 16
"""Elements of the largest product whose bits are compared with those of other orders."""
MOST = 64
"""Calls at most in which the step is sought at which both sides part, and again among those of one of them."""
NEAR = 2
"""Steps, and runs, beside the one at which both sides part that a page shows one by one."""
_PLACE = re.compile(r"(?:terms|run) (\d+)(?: to |-)(\d+)")
Ask = Callable[[Case], Mapping[str, np.ndarray] | None]


def orders_given(seen: Sequence[Seen]) -> list[str]:
    """Return the named orders that give all bits of some failing products, the likely one first."""
    small = _small(seen)
    return [name for name in _named(small[0].case) if all(_gives(name, one) for one in small)] if small else []


def _small(seen: Sequence[Seen]) -> list[Seen]:
    return [one for one in seen if one.case.operation in PRODUCTS and one.case.elements <= LARGEST]


def _named(case: Case) -> list[str]:
    return [names[0] for names in candidates(crop.shape(case)[1], crop.by_block(case), PRODUCTS[case.operation])]


def _gives(order: str, seen: Seen) -> bool:
    """Whether an order gives all bits that were seen; one that a product is too short for gives those of the case's."""
    case = seen.case
    try:
        found = run_golden(case.with_inputs(params={"order": order}))
    except RefnumError:
        return False
    return np.array_equal(found["values"], seen.observed["values"])


def order_advice(seen: Sequence[Seen]) -> str:
    """Return in words the order whose bits were seen, or those of each product; empty where one has no name."""
    if names := orders_given(seen):
        return f"these are the bits of order={names[0]}, not of {seen[0].case.params['order']}"
    of_each = [orders_given([one]) for one in _small(seen)]
    if not of_each or not all(of_each):
        return ""
    counts = Counter(names[0] for names in of_each[1:])
    others = ", ".join(f"{count} of order={name}" for name, count in counts.most_common())
    asked = seen[0].case.params["order"]
    return f"these are the bits of order={of_each[0][0]}, not of {asked}; other failing products have {others}"


def product_page(case: Case, page: dict[str, Any], ask: Ask) -> dict[str, Any]:
    """Return the page of a product with the step at which both sides part and the terms of that step.

    The subject is called on the product's first steps, whose other terms are zero; where both sides differ first, they
    part. A step whose sums agree in this way is right, whatever the subject does in it.
    """
    if case.operation not in PRODUCTS or not page:
        return page
    row, column = page["index"]
    terms = INSTRUCTIONS[PRODUCTS[case.operation]].terms
    at, values = _parting(case, row, column, terms, ask)
    try:
        one, row = crop.expert_at(case, row)
        steps, _ = product_steps(case.operation, {**one.params, **one.inputs}, row, column, at)
    except (RefnumError, AssertionError) as error:  # a page without its steps is better than no page
        return {**page, "parts": f"no steps: {error}"}
    lines = [{"name": step.name, "text": step.text, "clause": step.clause} for step in steps]
    return {**page, "steps": _near(lines, at, at + terms), "parts": _words(at, terms, values)}


def _near(lines: list[dict[str, str]], start: int, stop: int) -> list[dict[str, str]]:
    """Return the lines of a product with steps and runs far from [start, stop) of K in one line for many."""
    found: list[dict[str, str]] = []
    for (far, kind), group in itertools.groupby(lines, lambda line: _far(line, start, stop)):
        many = list(group)
        if far and len(many) > 1:
            ends = [many[end]["name"].partition(" ")[2] for end in (0, -1)]
            last = many[-1]["text"].rpartition("; ")[2]
            many = [{**many[-1], "name": f"{kind}s {ends[0]} to {ends[1]}", "text": f"{len(many)} of them; {last}"}]
        found += many
    return found


def _far(line: dict[str, str], start: int, stop: int) -> tuple[bool, str]:
    """Return whether a line is a step or a run far from some terms of K, and which of both."""
    ends = _PLACE.match(line["text"] if line["name"].startswith("step ") else line["name"])
    if ends is None:
        return False, ""
    kind, wide = ("step", stop - start) if line["name"].startswith("step ") else ("run", TILE)
    first, last = int(ends[1]), int(ends[2])
    return last < start - NEAR * wide or first >= stop + NEAR * wide, kind


def _words(at: int, terms: int, values: tuple[int, int] | None) -> str:
    place = f"step {at // terms}, terms {at} to {at + terms - 1} of K"
    if values is None:
        return f"the last step is {place}"
    return f"the sides part in {place}: with the terms up to there 0x{values[0]:X} is right, and 0x{values[1]:X} came"


def _parting(case: Case, row: int, column: int, terms: int, ask: Ask) -> tuple[int, tuple[int, int] | None]:
    """Return the first term of the first step after which a result differs, with both sides' bits; else the last's."""
    starts = list(range(0, crop.shape(case)[1], terms))
    while True:
        stride = -(-len(starts) // MOST)
        for number in [*range(stride - 1, len(starts) - 1, stride), len(starts) - 1]:
            cut = _up_to(case, starts[number] + terms)
            observed = ask(cut)
            right = run_golden(cut)["values"]
            if observed is not None and observed["values"][row, column] != right[row, column]:
                break
        else:
            return starts[-1], None
        if stride == 1:
            return starts[number], (int(right[row, column]), int(observed["values"][row, column]))
        starts = starts[max(number - stride + 1, 0) : number + 1]


def _up_to(case: Case, stop: int) -> Case:
    inputs = {}
    for name in ("a", "b"):
        inputs[name] = np.array(case.inputs[name])
        inputs[name][..., stop:] = 0
    return dataclasses.replace(case, inputs={**case.inputs, **inputs}, recipe=None)
