"""What a report counts of structure, level by level, and what the first call of an adapter says is to be changed."""

from dataclasses import replace

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.coverage import Coverage
from refnum.conformance.verdicts.outside import Outside
from refnum.conformance.verdicts.smoke import smoke
from refnum.conformance.verdicts.tally import Tally


def case(*shape, operation="quantize_mxfp4", name="x", dtype=np.float32, **params):
    return Case(operation, "HOPPER", {"input": "float32"} | params, {name: np.zeros(shape, dtype)}, label=str(shape))


EMPTY = {"cases": 0, "refused": 0, "illegal": 0, "rows": [], "columns": [], "forms": {}, "factors": []}


def test_nothing_asked_is_nothing_counted():
    assert Coverage().serializable() == EMPTY and Coverage().never() == []


def test_every_level_is_counted_as_answered_refused_or_never_asked():
    counted = Coverage()
    counted.expect([{"rows": 1, "splits": "list"}, {"rows": 2, "splits": "list"}, {"rows": 3}])
    assert counted.never() == ["rows 1", "rows 2", "rows 3", "splits list"]
    counted.add_row({"rows": 1, "splits": "list"}, True)
    counted.add_row({"rows": 1, "splits": "list"}, False)
    counted.add_row({"rows": 2, "splits": "tuple"}, False)
    counted.add_row({"rows": 2, "align": 16}, False)
    counted.add_row({"align": 16}, True)
    assert counted.never() == ["rows 3"]
    assert counted.factors == {
        "rows": {1: [1, 1], 2: [0, 2], 3: [0, 0]}, "splits": {"list": [1, 1], "tuple": [0, 1]}, "align": {16: [1, 1]}
    }  # fmt: skip
    assert counted.serializable() == EMPTY | {
        "cases": 2,
        "refused": 3,
        "factors": [
            {"factor": "rows", "levels": 3, "answered": 1, "refused": ["2"], "never": ["3"]},
            {"factor": "splits", "levels": 2, "answered": 1, "refused": ["tuple"], "never": []},
            {"factor": "align", "levels": 1, "answered": 1, "refused": [], "never": []},
        ],
    }


def test_twelve_levels_are_named():
    counted = Coverage()
    counted.expect({"rows": rows} for rows in range(20))
    for rows in range(20, 40):
        counted.add_row({"rows": rows}, False)
    (line,) = counted.serializable()["factors"]
    assert line["never"] == [str(rows) for rows in range(12)]
    assert line["refused"] == [str(rows) for rows in range(20, 32)]


def test_rows_and_columns_are_those_of_the_first_matrix_of_cases_that_were_answered():
    counted = Coverage()
    for one, answered in ((case(5, 64), True), (case(0, 32), True), (case(7), True), (case(2, 3, 4), True),
                          (case(900, 32), False), (case(9, 32), True), (case(6, 96), True)):  # fmt: skip
        counted.add({}, one, answered)
    assert (counted.rows, counted.columns) == ((5, 9), (32, 96))
    assert (counted.cases, counted.refused) == (6, 1)
    counted.add({}, case(4, 80, operation="dequantize_mxfp4", name="packed", dtype=np.uint8), True)
    assert counted.serializable()["rows"] == [4, 9] and counted.serializable()["columns"] == [32, 160]
    both = case(3, 64).with_inputs({"y": np.zeros((99, 99), np.float32)})
    counted.add({}, both.with_inputs({}), True)
    assert (counted.rows, counted.columns) == ((3, 9), (32, 160))


# --- the first call of an adapter -------------------------------------------------------------------------------


def tried(function, *cases, operation="quantize_mxfp4", **more):
    """Return whether a subject was called, the tally, the shapes it saw and the numbers that were noted."""
    seen, notes = [], []

    def kernel(**given):
        seen.append(next(iter(given.values())).shape)
        return function(**given)

    one = Tally("k", operation, "HOPPER", {"input": "float32"}, **more)
    called = smoke(Subject("k", {operation: kernel}), one, list(cases), 60.0, notes.append)
    return called, one, seen, notes


def right(x, profile):
    return refnum.quantize_mxfp4(x, profile)


def wrong(x, profile):
    packed, scales = right(x, profile)
    return packed ^ np.uint8(1), scales


CASES = (case(0, 32), case(4, 32), case(1, 32), case(2, 32))


@pytest.mark.parametrize(
    ("function", "contract", "calls", "flips"),
    [(right, (), 1, 0), (wrong, (), 2, 0), (wrong, ("nonzero",), 1, 0)],
)
def test_the_smallest_case_with_elements_is_called_and_wrong_bytes_once_more(function, contract, calls, flips):
    called, one, seen, notes = tried(function, *CASES, outside=Outside(contract))
    assert called and seen == [(1, 32)] * calls and notes == [2]
    assert not one.out and not one.faults and (one.compared, one.flips) == (0, flips)


def test_what_is_unsupported_is_passed_over():
    def two_rows(x, profile):
        if len(x) != 2:
            raise NotImplementedError("two rows")
        return right(x, profile)

    called, one, seen, notes = tried(two_rows, *CASES)
    assert called and [shape[0] for shape in seen][-1] == 2 and notes == [2, 3] and not one.out

    def never(x, profile):
        raise NotImplementedError("no")

    called, one, _, notes = tried(never, *CASES)
    assert not called and notes == [2, 3, 1]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (TypeError("got an unexpected keyword argument 'x'"), "name the function's arguments as the operation does"),
        (TypeError("no such parameter"), "name the function's arguments as the operation does"),
        (
            TypeError("abs(): argument 'input' (position 1) must be Tensor, not numpy.ndarray"),
            'it was given NumPy arrays; a kernel on torch\'s is declared by @implements("quantize_mxfp4", ',
        ),
        (RuntimeError("no"), "a legal call must not fail: mend it, or declare what it does not support"),
    ],
)
def test_a_call_that_fails_ends_it_with_advice(error, advice):
    def fails(**_given):
        raise error

    called, one, _, _ = tried(fails, *CASES)
    assert called and one.out and not one.failures
    ((outcome, words, failed),) = one.faults
    assert outcome is Outcome.FAULT and failed is CASES[2] and words.partition("; ")[2].startswith(advice)
    assert words.startswith("the first call, quantize_mxfp4(x float32[1, 32]), does not fit: ")


@pytest.mark.parametrize(
    ("operation", "name", "wanted", "items"),
    [
        ("quantize_mxfp4", "x", "return a tuple of packed uint8[1, 16], scales uint8[1, 1], in this order", 17),
        ("encode_e2m1", "x", "return codes uint8[1, 32], in this order", 32),
    ],
)
def test_results_of_another_shape_end_it_with_what_is_wanted(operation, name, wanted, items):
    one = replace(case(1, 32, operation=operation), label="")
    called, found, _, _ = tried(lambda **_: np.zeros((3, 3), np.uint8), one, operation=operation)
    assert called and found.out and found.compared == items
    assert [failure.finding for failure in found.failures] == [Finding.SHAPE]
    assert found.failures[0].words.endswith(wanted)
