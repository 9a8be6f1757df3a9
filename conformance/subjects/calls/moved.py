"""Calls on the same data in other storage: gaps between elements, rows apart, an odd address, one array for several."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refnum.errors import UnsupportedError

from ...cases.case import Case
from ...cases.layouts import stored_inputs
from ..arrays import at_end, at_offset, to_library, with_gaps, with_rows_apart, with_rows_far_apart
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
            name: with_rows_apart(array, subject.arrays, POISONS[0], gap(array) if array.ndim > 1 else 0)
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


@where_it_lives
def call_at_end(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with arrays behind whose last byte no memory may be read; to read there ends the process."""
    return call_on(
        subject,
        case,
        lambda: {name: at_end(array, subject.arrays) for name, array in stored_inputs(case).items()},
        seconds,
    )


@where_it_lives
def call_with_rows_far_apart(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with views whose rows span more elements than 32 bits count."""

    def laid() -> dict[str, Any]:
        try:
            return {name: with_rows_far_apart(array) for name, array in stored_inputs(case).items()}
        except OSError as error:
            raise UnsupportedError(f"this process cannot have so many addresses: {error}") from None

    return call_on(subject, case, laid, seconds)


def beside_each_other(case: Case) -> list[str]:
    """Return the inputs that a caller may keep as columns of one array: matrices of a dtype, and of as many rows."""
    arrays = stored_inputs(case)
    first = next(iter(arrays.values()))
    if first.ndim != 2:
        return []
    kind = first.dtype, len(first)
    return [
        name for name, array in arrays.items() if array.ndim == 2 and array.size and (array.dtype, len(array)) == kind
    ]


def alike(case: Case) -> list[str]:
    """Return the inputs of one shape and dtype, most of them: one array can be given for all of these."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, array in stored_inputs(case).items():
        groups.setdefault((array.shape, array.dtype.name), []).append(name)
    return max(groups.values(), key=len)


@where_it_lives
def call_on_one_array(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with matrices that are columns of one array, one behind the other, as `gate` and `up` of one product are."""
    names, arrays = beside_each_other(case), stored_inputs(case)
    ends = [0, *itertools.accumulate(arrays[name].shape[1] for name in names)]
    return _call_on_columns(subject, case, seconds, dict(zip(names, map(slice, ends, ends[1:]), strict=False)))


def _call_on_columns(subject: Subject, case: Case, seconds: float, columns: Mapping[str, slice]) -> Called:
    """Call with matrices that are some columns of one array, together all of them."""

    def laid() -> dict[str, Any]:
        arrays = stored_inputs(case)
        given = {name: to_library(np.array(array, order="C"), subject.arrays) for name, array in arrays.items()}
        every = np.concatenate([arrays[name] for name in columns], axis=1)
        for name, place in columns.items():
            every[:, place] = arrays[name]
        whole = to_library(every, subject.arrays)
        return {**given, **{name: whole[:, place] for name, place in columns.items()}}

    return call_on(subject, case, laid, seconds)


def in_turn_with_each_other(case: Case) -> list[str]:
    """Return the inputs that a caller may keep as every other column of one array: `alike` ones among those beside."""
    beside = beside_each_other(case)
    return [name for name in alike(case) if name in beside and case.inputs[name].shape[-1] > 1]


@where_it_lives
def call_on_columns_in_turn(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with matrices whose columns stand in one array in turn, as `gate` and `up` of some models do."""
    names = in_turn_with_each_other(case)
    columns = {name: slice(place, None, len(names)) for place, name in enumerate(names)}
    return _call_on_columns(subject, case, seconds, columns)


@where_it_lives
def call_on_same_array(subject: Subject, case: Case, seconds: float = 60.0) -> Called:
    """Call with one array in the place of all inputs that are `alike`; their data must be the same."""
    names = alike(case)

    def laid() -> dict[str, Any]:
        arrays = stored_inputs(case)
        given = {name: to_library(np.array(array, order="C"), subject.arrays) for name, array in arrays.items()}
        return {**given, **dict.fromkeys(names, given[names[0]])}

    return call_on(subject, case, laid, seconds)
