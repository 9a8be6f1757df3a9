"""Reduce a large mismatch on its device, by halves that still differ, before the host judges it."""

from __future__ import annotations

from collections.abc import Callable

from refnum.arrays import Array

from ...cases import crop
from ...cases.case import Case
from ...cases.levels import Outcome
from ...cases.recipes.recipe import Recipe
from ...subjects.subject import Subject
from ...verdicts.device import expand_on_device, fetch, judge_on_device

ENOUGH = 1 << 17
"""Elements that the host judges in no time."""


def piece(subject: Subject, recipe: Recipe, like: Array, seconds: float) -> Case | None:
    """Return the part of a case that halving its rows and columns leaves, on the host, or None when none differs.

    like: an array where the subject's arrays live; the case is made and judged there. The piece is a case of its own:
    whether it fails is for the host's model to say. What fails as a whole only has no piece.
    """
    whole = expand_on_device(recipe, like)
    if not crop.croppable(whole):
        return None

    def differs(case: Case) -> bool:
        judged = judge_on_device(subject, case, seconds=seconds)
        return judged.outcome is Outcome.MISMATCH and not judged.finding

    best = _halved(whole, lambda case: crop.shape(case)[0], crop.take_rows, crop.row_unit(whole), differs)
    best = _halved(best, lambda case: crop.shape(case)[1], crop.take_columns, crop.column_unit(whole), differs)
    return None if best is whole else fetch(best)


def _halved(
    case: Case,
    size: Callable[[Case], int],
    take: Callable[[Case, int, int], Case],
    unit: int,
    differs: Callable[[Case], bool],
) -> Case:
    """Keep a half of an axis, cut at a multiple of `unit`, as long as one differs and the case is large."""
    while case.elements > ENOUGH and size(case) > unit:
        middle = -(-(size(case) // 2) // unit) * unit
        halves = (take(case, 0, middle), take(case, middle, size(case)))
        kept = next((half for half in halves if half.elements < case.elements and differs(half)), None)
        if kept is None:
            return case
        case = kept
    return case
