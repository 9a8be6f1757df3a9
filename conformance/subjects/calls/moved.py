"""Calls on the same data in other storage: gaps between elements, rows apart, an odd address."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...cases.case import Case
from ...cases.layouts import stored_inputs
from ..arrays import at_offset, with_gaps, with_rows_apart
from ..subject import Subject
from .call import POISONS, Called, call_on, where_it_lives


@where_it_lives
def call_with_gaps(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with views that have a poisoned gap after every element of the last axis."""
    return call_on(
        subject,
        case,
        lambda: {name: with_gaps(array, subject.arrays, POISONS[0]) for name, array in stored_inputs(case).items()},
        seconds,
    )


@where_it_lives
def call_with_padded_rows(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with views whose rows begin at multiples of 16 bytes, with at least 16 bytes of poison behind each."""
    return _call_with_rows_apart(
        subject, case, seconds, lambda array: (16 + -array.shape[-1] * array.itemsize % 16) // array.itemsize
    )


@where_it_lives
def call_with_odd_rows(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with views that have one element of poison behind every row: rows lie at all alignments."""
    return _call_with_rows_apart(subject, case, seconds, lambda array: 1)


def _call_with_rows_apart(subject: Subject, case: Case, seconds: float, gap: Callable[[np.ndarray], int]) -> Called:
    return call_on(
        subject,
        case,
        lambda: {
            name: with_rows_apart(array, subject.arrays, POISONS[0], gap(array))
            for name, array in stored_inputs(case).items()
        },
        seconds,
    )


@where_it_lives
def call_at_offset(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with views that begin one element into a larger allocation, whose other bytes are poison."""
    return call_on(
        subject,
        case,
        lambda: {name: at_offset(array, subject.arrays, POISONS[0]) for name, array in stored_inputs(case).items()},
        seconds,
    )
