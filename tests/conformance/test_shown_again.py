"""A breach shown once more: which calls are made for each, and which of them is shown; inputs that are one array."""

import itertools
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import call_golden, run_golden
from refnum.conformance.cases.structure import cutting
from refnum.conformance.subjects.calls.call import POISONS, Called, call
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts import elsewhere, reproduce
from refnum.conformance.verdicts.tally import Tally

CASE = Case("quantize_mxfp4", "HOPPER", {"input": "float32"}, {"x": np.arange(128, dtype=np.float32).reshape(2, 64)})
DEVICE = ("side stream", "another device")


def subject(function):
    return Subject("k", {"quantize_mxfp4": function})


def right(x, profile):
    return refnum.quantize_mxfp4(x, profile)


def shown(finding, judged, case=CASE):
    return reproduce.again(finding)(judged, case, 60.0)


@pytest.mark.parametrize("storage", [one for one in elsewhere.MOVED if one.name not in DEVICE],
                         ids=lambda one: one.name)  # fmt: skip
def test_a_breach_of_storage_is_shown_by_a_call_in_that_storage(storage):
    seen = []

    def kernel(x, profile):
        seen.append((x.strides, x.ctypes.data % 128))
        return right(x, profile)

    storage.call(subject(kernel), CASE, 60.0)
    case, called = shown(storage.finding, subject(kernel))
    assert case is CASE and called.outcome is Outcome.PASS
    assert seen[0][0] == seen[-1][0] and len(seen) % 2 == 0


def test_of_calls_that_may_flip_the_first_wrong_one_is_shown():
    for wrong, calls in ((3, 3), (99, 10)):
        number = itertools.count(1)
        made = []

        def kernel(x, profile, number=number, wrong=wrong, made=made):
            made.append(next(number))
            packed, scales = right(x, profile)
            return packed ^ np.uint8(made[-1] == wrong), scales

        _, called = shown(Finding.NOT_DETERMINISTIC, subject(kernel))
        golden = call_golden(CASE)[0]
        assert np.array_equal(called.results[0] ^ np.uint8(wrong == 3), golden) and len(made) >= calls


def test_a_call_that_fails_on_the_way_is_not_what_is_shown():
    number = itertools.count(1)

    def kernel(x, profile):
        if next(number) == 1:
            raise RuntimeError("the first")
        packed, scales = right(x, profile)
        return packed ^ np.uint8(1), scales

    assert shown(Finding.NOT_DETERMINISTIC, subject(kernel))[1].outcome is Outcome.PASS


def test_a_breach_that_does_not_come_again_shows_the_first_call_of_its_kind():
    def kernel(x, profile, out=None):
        results = right(x, profile)
        if out is None:
            return results
        for one, given in zip(results, out, strict=True):
            given[...] = one
        return out

    _, called = shown(Finding.NOT_WRITTEN, subject(kernel))
    assert called.outcome is Outcome.PASS and not called.live[0].flags.owndata  # it is an `out`
    assert shown(Finding.NOT_WRITTEN, subject(right))[1].live[0].flags.owndata  # a plain call


SPOILS = {
    cutting.THE_SAME: lambda last, x: last.tobytes() == x.tobytes(),
    cutting.OTHER_DATA: lambda last, x: last.shape == x.shape and last.tobytes() != x.tobytes(),
    cutting.OTHER_COLUMNS: lambda last, x: last.shape[1] != x.shape[1] and len(last) == len(x),
    cutting.OTHER_ROWS: lambda last, x: last.shape[1] == x.shape[1] and len(last) != len(x),
    cutting.ANOTHER_SHAPE: lambda last, x: last.shape != x.shape and last.size == x.size,
    cutting.ANOTHER_VARIANT: lambda last, x: last.dtype != x.dtype and last.shape[1] > 32,
}
"""How a call is made -> whether the call before spoils one in this way."""


@pytest.mark.parametrize("calls", cutting.BEHIND)
def test_a_call_that_another_one_spoils_is_shown_behind_that_one(calls):
    last = [(threading.get_ident(), np.zeros((1, 32), np.float16))]

    def kernel(x, profile):
        packed, scales = right(x, profile)
        (thread, before), here = last.pop(), threading.get_ident()
        last.append((here, x.copy()))
        if calls == cutting.ANOTHER_THREAD:
            spoiled = thread != here
        else:
            spoiled = x.dtype == np.float32 and SPOILS[calls](before, x)
        return packed ^ np.uint8(8 * spoiled), scales

    call(subject(kernel), CASE.with_inputs({"x": np.ones((3, 32), np.float32)}))
    assert np.array_equal(call(subject(kernel), CASE).results[0], call_golden(CASE)[0])
    case, called = shown(Finding.AFTER_ANOTHER, subject(kernel))
    assert case is CASE and np.array_equal(called.results[0] ^ np.uint8(8), call_golden(CASE)[0])


def test_out_is_filled_with_the_first_poison():
    def kernel(x, profile, out=None):
        return right(x, profile) if out is None else out

    _, called = shown(Finding.NOT_WRITTEN, subject(kernel))
    assert (called.results[0] == POISONS[0]).all()


def test_a_breach_by_name_is_shown_by_the_call_that_has_it():
    number = itertools.count(1)

    def kernel(x, profile):
        results = right(x, profile)
        if next(number) == 5:
            x[0, 0] = 9
        return results

    _, called = shown(Finding.INPUT_MUTATED, subject(kernel))
    assert called.finding == Finding.INPUT_MUTATED


@pytest.mark.parametrize("buffers", [1, 5])
def test_buffers_are_shown_in_place_or_by_calls_that_are_held(buffers):
    ring, number = (
        [[np.zeros((2, 32), np.uint8), np.zeros((2, 2), np.uint8)] for _ in range(buffers)],
        itertools.count(),
    )

    def kernel(x, profile):
        own = ring[next(number) % buffers]
        for buffer, part in zip(own, right(x, profile), strict=True):
            buffer[...] = part
        return tuple(own)

    _, called = shown(Finding.HELD, subject(kernel))
    assert called.finding == Finding.HELD and (next(number) > 9) == (buffers == 5)


def test_the_first_launch_of_a_graph_answers_the_case(monkeypatch):
    first = Called(call_golden(CASE), outcome=Outcome.MISMATCH, finding=Finding.INPUT_MUTATED)
    second = Called(call_golden(CASE))
    monkeypatch.setattr(reproduce, "under_graph", lambda *_: (CASE, first, second))
    only = [replace(one, applies=lambda *_, on=one.name == reproduce.GRAPH: on) for one in reproduce.PROBES]
    monkeypatch.setattr(reproduce, "PROBES", only)
    assert shown(Finding.INPUT_MUTATED, subject(right))[1] is first


# --- inputs of one array ----------------------------------------------------------------------------------------


def product(a_rows, b_rows, same=True, **params):
    dice = np.random.default_rng(3)
    a, b = (dice.integers(0, 0x7E, (rows, 128), dtype=np.uint8) for rows in (a_rows, b_rows))
    params = {"order": "chain", "out": "float32", "a_format": "E4M3", "b_format": "E4M3"} | params
    return Case("matmul_fp8", "HOPPER", params, {"a": a, "b": a[:b_rows].copy() if same else b})


class Product:
    """A right product that keeps the shapes it was given and whether both operands lie in one array, or are one."""

    def __init__(self):
        self.calls = []

    def subject(self):
        def matmul_fp8(a, b, order="promote128", out="float32", a_format="E4M3", b_format="E4M3"):
            one = "same" if a is b or a.ctypes.data == b.ctypes.data else ""
            beside = "beside" if a.strides == b.strides and a.strides[0] > a.shape[1] else ""
            beside = "in turn" if beside and a.strides[1] > 1 else beside
            self.calls.append((a.shape, b.shape, one or beside))
            return refnum.matmul_fp8(a, b, order=order, out=out, a_format=a_format, b_format=b_format)

        return Subject("k", {"matmul_fp8": matmul_fp8})


E4M3_BY_E5M2 = {"b_format": "E5M2"}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (product(4, 4), [((4, 128), (4, 128), way) for way in ("beside", "in turn", "same")]),
        (product(4, 3), [((4, 128), (4, 128), "same")]),
        (
            product(100, 100),
            [*(((100, 128), (100, 128), way) for way in ("beside", "in turn")), ((64, 128), (64, 128), "same")],
        ),
        (product(4, 3, same=False, **E4M3_BY_E5M2), []),
    ],
    ids=["as many rows", "other rows", "many rows", "other formats"],
)
def test_which_calls_are_made_on_inputs_of_one_array(case, expected):
    kernel, tally = Product(), Tally("k", case.operation, case.profile, case.params)
    elsewhere.one_array(kernel.subject(), case, run_golden(case), tally, 60.0)
    assert kernel.calls == expected and tally.calls == len(expected) and not tally.wrong


def luq(**changed):
    x = np.linspace(-4, 4, 64, dtype=np.float32).reshape(2, 32)
    words = {"r_under": np.full((2, 32), 1 << 23, np.uint32), "r_log": np.full((2, 32), 1 << 22, np.uint32)}
    params = {"divisor": 64, "step": "real", "input": "float32"}
    return Case("luq", "HOPPER", params, {"x": x, **words, **changed})


def test_words_that_are_one_array_are_those_of_fewer_bits():
    seen = []

    def kernel(x, r_under, r_log, **more):
        seen.append((r_under.max(), r_log.max()))
        return refnum.luq(x, r_under, r_log, **more)

    case, one = luq(), Tally("k", "luq", "HOPPER", luq().params)
    elsewhere.one_array(Subject("k", {"luq": kernel}), case, run_golden(case), one, 60.0)
    assert seen[-1] == (1 << 22, 1 << 22) and not one.wrong


@pytest.mark.parametrize(
    ("case", "ways"),
    [
        (product(4, 4), ["beside", "in turn", "same"]),
        (product(4, 4, same=False), ["beside", "in turn"]),
        (product(4, 3), ["", ""]),
    ],
)
def test_one_array_is_shown_again_where_the_inputs_allow_it(case, ways):
    kernel = Product()
    shown(Finding.ONE_ARRAY, kernel.subject(), case)
    assert [way for _, _, way in kernel.calls] == ways


def test_one_input_is_no_several():
    x = np.ones((2, 32), ml_dtypes.bfloat16)
    calls = []

    def kernel(x, profile):
        calls.append(1)
        return right(x, profile)

    case = Case("quantize_mxfp4", "HOPPER", {"input": "bfloat16"}, {"x": x})
    elsewhere.one_array(subject(kernel), case, run_golden(case), Tally("k", "quantize_mxfp4", "HOPPER", {}), 60.0)
    assert not calls and shown(Finding.ONE_ARRAY, subject(kernel), case)[1].outcome is Outcome.PASS and len(calls) <= 2
