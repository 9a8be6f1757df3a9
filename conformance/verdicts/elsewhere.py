"""The same data in other storage, in one array, or on another stream: calls that must give the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..cases.case import Case
from ..cases.entry import WORDS
from ..cases.findings import Finding
from ..cases.levels import Outcome
from ..cases.operation import OPERATIONS, run_golden
from ..subjects.calls.call import Called
from ..subjects.calls.moved import (
    alike,
    beside_each_other,
    call_at_end,
    call_at_offset,
    call_on_columns_in_turn,
    call_on_one_array,
    call_on_same_array,
    call_with_gaps,
    call_with_odd_rows,
    call_with_padded_rows,
    call_with_rows_far_apart,
    in_turn_with_each_other,
)
from ..subjects.calls.streams import on_another_device, on_side_stream, with_late_splits
from ..subjects.subject import Subject
from .blame import Golden, breach, compared, mostly, right, to_blame, wrong
from .refusals import refused
from .tally import Tally

MOST_ROWS = 64
"""Rows of a matrix that is multiplied with itself."""
Judging = Callable[[Subject, Case, Golden, Tally, float], None]


@dataclass(frozen=True)
class Elsewhere:
    """The same data in other storage or on another stream: how to call, and what a wrong result is called.

    streams: whether two streams race there: nobody may refuse a stream, and what is wrong mostly is its fault.
    """

    name: str
    call: Callable[[Subject, Case, float], Called]
    finding: str
    words: str
    streams: bool = False


def elsewhere(storage: Elsewhere) -> Judging:
    """Return the probe of a call on the same data elsewhere; where a plain call is right, that place is to blame."""

    def run(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
        called = storage.call(subject, case, seconds)
        if not storage.streams and refused(called, tally.probes, storage.name):
            return
        if called.outcome in (Outcome.FAULT, Outcome.TIMEOUT):
            called = replace(called, words=f"{called.words} ({storage.name}; to say no, raise an error)")

        def again(other: Case) -> Called:
            return storage.call(subject, other, seconds)

        seen = compared(called, case, golden, tally, again, storage.name)
        if not wrong(called, seen, tally):
            return
        if storage.streams:
            blamed = mostly(subject, case, golden, tally, seconds, lambda: not right(again(case), case, golden, tally))
        else:
            blamed = to_blame(subject, case, golden, tally, seconds, lambda: again(case))
        if blamed:
            breach(tally, case, storage.finding, storage.words, seen)

    return run


def one_array(subject: Subject, case: Case, golden: Golden, tally: Tally, seconds: float) -> None:
    """Judge inputs that are columns of one array, side by side or in turn, and one array given for several inputs."""
    if len(beside_each_other(case)) > 1:
        elsewhere(COLUMNS_OF_ONE)(subject, case, golden, tally, seconds)
    if len(in_turn_with_each_other(case)) > 1:
        elsewhere(COLUMNS_IN_TURN)(subject, case, golden, tally, seconds)
    case = _with_itself(case)
    names = alike(case)
    if len(names) > 1:
        narrow = min(names, key=lambda name: WORDS.get(name, 0))  # random words of fewer bits are legal as others
        same = case.with_inputs(dict.fromkeys(names, case.inputs[narrow]), label=SAME_ARRAY.name)
        elsewhere(SAME_ARRAY)(subject, same, run_golden(same), tally, seconds)


def _with_itself(case: Case) -> Case:
    """Return a product of one format as that of the first rows of `a` with themselves; any other case as it is."""
    product = OPERATIONS[case.operation].family == "product" and case.params.get("splits") is None
    if not product or case.params.get("a_format") != case.params.get("b_format"):
        return case
    rows = case.inputs["a"][:MOST_ROWS].copy()
    return replace(case, inputs={"a": rows, "b": rows.copy()})


GAPS, PADDED, ODD, FAR, OFFSET, END, SIDE_STREAM, ANOTHER_DEVICE = (
    Elsewhere(
        "views with gaps",
        call_with_gaps,
        "strides-ignored",
        "right on contiguous inputs, wrong on the same inputs with gaps between the elements: strides are ignored",
    ),
    Elsewhere(
        "padded rows",
        call_with_padded_rows,
        "row-stride-ignored",
        "right on contiguous inputs, wrong where padding lies behind every row: a row's stride is taken for its length",
    ),
    Elsewhere(
        "rows one element apart",
        call_with_odd_rows,
        "row-alignment-assumed",
        "right on contiguous inputs, wrong where one element lies behind every row: the alignment of rows is assumed",
    ),
    Elsewhere(
        "rows far apart",
        call_with_rows_far_apart,
        Finding.ROW_OFFSET,
        "right on contiguous inputs, wrong where the rows span more elements than 32 bits count: the offset of a row "
        "overflows",
    ),
    Elsewhere(
        "views at an odd address",
        call_at_offset,
        "alignment-assumed",
        "right on inputs at the start of an allocation, wrong on the same inputs one element further: the alignment of "
        "the address is assumed",
    ),
    Elsewhere(
        "inputs at the end of memory",
        call_at_end,
        Finding.ALIGNMENT,
        "right on inputs at the start of an allocation, wrong where no memory lies behind the same inputs",
    ),
    Elsewhere(
        "side stream",
        on_side_stream,
        "stream-ignored",
        "wrong when the caller's current stream is not the default one: it launches on another stream",
        streams=True,
    ),
    Elsewhere(
        "another device",
        on_another_device,
        Finding.DEVICE,
        "right on the first device, wrong where another one is current and holds the inputs: the device is assumed",
    ),
)
LATE_SPLITS = Elsewhere(
    "splits written late",
    with_late_splits,
    Finding.STREAM,
    "right by splits in an array, wrong when they are written late on the caller's stream: another one reads them",
    streams=True,
)
COLUMNS_OF_ONE, COLUMNS_IN_TURN, SAME_ARRAY = (
    Elsewhere(
        "inputs that are columns of one array",
        call_on_one_array,
        Finding.ONE_ARRAY,
        "right on inputs in arrays of their own, wrong on the same inputs side by side in one array",
    ),
    Elsewhere(
        "inputs whose columns stand in one array in turn",
        call_on_columns_in_turn,
        Finding.ONE_ARRAY,
        "right on inputs in arrays of their own, wrong on the same inputs whose columns stand in one array in turn",
    ),
    Elsewhere(
        "one array for several inputs",
        call_on_same_array,
        Finding.ONE_ARRAY,
        "right on inputs of the same data in arrays of their own, wrong where they are one array",
    ),
)

MOVED = (GAPS, PADDED, ODD, FAR, OFFSET, END, SIDE_STREAM, ANOTHER_DEVICE)
"""Calls on the same data elsewhere."""
