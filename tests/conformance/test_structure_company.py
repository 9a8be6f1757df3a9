"""Parts that are called right behind another call, or at once with one: which wrong kernels are told."""

import math
import threading
import time
from dataclasses import replace

import pytest
from structure_tools import asked_parts, every_field, golden

from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, plain_like, run_golden
from refnum.conformance.cases.structure.build import build
from refnum.conformance.cases.structure.cutting import (
    ANOTHER_SHAPE,
    ANOTHER_THREAD,
    ANOTHER_VARIANT,
    BEHIND,
    OTHER_COLUMNS,
    OTHER_DATA,
    OTHER_ROWS,
    THE_SAME,
)
from refnum.conformance.cases.structure.illegal import no_input
from refnum.conformance.cases.structure.plan import base_beside
from refnum.conformance.subjects.calls import parts as quick
from refnum.conformance.subjects.subject import Subject
from refnum.errors import ArgumentError, RefnumError


def test_a_call_that_fails_only_after_a_larger_one_is_told():
    before = [0]

    def run(codes, dtype="float32"):
        larger, before[0] = before[0] > codes.size, codes.size
        if larger and codes.shape == (5, 6):
            raise RuntimeError("no")
        return golden("decode_e8m0")(codes, dtype)

    tally = asked_parts("decode_e8m0", run, of=lambda *pair: pair == (5, 6))
    assert {one.finding for one in tally.failures} == {"not-deterministic"}


BEFORE = {
    THE_SAME: lambda was, now: was == now,
    OTHER_DATA: lambda was, now: was[:1] + was[2:] == now[:1] + now[2:] and was[1] != now[1],
    OTHER_COLUMNS: lambda was, now: was[0][0] == now[0][0] and was[0][1] != now[0][1],
    OTHER_ROWS: lambda was, now: was[0] == (now[0][0] // 2, *now[0][1:]),
    ANOTHER_SHAPE: lambda was, now: was[0] != now[0] and math.prod(was[0]) == math.prod(now[0]),
    ANOTHER_VARIANT: lambda was, now: was[2] != now[2],
    ANOTHER_THREAD: lambda was, now: was[3] != now[3],
}
"""How a part is called -> whether a call (shape, data, dtype of the results, thread) is so beside the one before."""


@pytest.mark.parametrize("calls", BEHIND)
def test_a_kernel_that_is_wrong_behind_another_call_beside_one_number_of_rows_is_told(calls):
    last, right = [], golden("decode_e8m0")

    def run(codes, dtype="float32"):
        result = right(codes=codes, dtype=dtype)
        last.append((codes.shape, codes.tobytes(), dtype, threading.get_ident()))
        if len(codes) == 66 and len(last) > 1 and BEFORE[calls](*last[-2:]):
            result[-1:, -1:] = 3
        return result

    tally = asked_parts("decode_e8m0", run, of=lambda rows, columns: rows == 66 and columns < 50)
    assert tally.close() is not Outcome.PASS
    assert f"right by itself, wrong {calls}" in {failure.words for failure in tally.failures}


@pytest.mark.parametrize("calls", [OTHER_COLUMNS, ANOTHER_VARIANT])
def test_a_kernel_that_is_wrong_behind_another_call_of_another_thread_is_told(calls):
    last, right = [], golden("decode_e8m0")

    def run(codes, dtype="float32"):
        result = right(codes=codes, dtype=dtype)
        last.append((codes.shape, codes.tobytes(), dtype, threading.get_ident()))
        behind = len(last) > 1 and BEFORE[calls](*last[-2:]) and BEFORE[ANOTHER_THREAD](*last[-2:])
        if len(codes) > 60 and behind:
            result[-1:, -1:] = 3
        return result

    tally = asked_parts("decode_e8m0", run, of=lambda rows, columns: 60 < rows < 67 and columns < 50)
    assert f"right by itself, wrong {calls}" in {failure.words for failure in tally.failures}


def test_a_kernel_that_is_wrong_at_once_behind_another_variant_is_told():
    last, inside, right = [""], [], golden("decode_e8m0")

    def run(codes, dtype="float32"):
        inside.append(dtype)
        result = right(codes=codes, dtype=dtype)
        time.sleep(0.001 * (len(inside) > 1))
        if len(inside) > 1 and last[0] != dtype:
            result[-1:, -1:] = 3
        last[0] = dtype
        inside.pop()
        return result

    tally = asked_parts("decode_e8m0", run, of=lambda rows, columns: rows == 66 and columns < 50)
    assert "not-thread-safe" in {failure.finding for failure in tally.failures}


def called_at_once(run, seconds, turn=0):
    """Return what came of one part of `decode_e8m0` that is called at once with its like."""
    field = every_field()[0]
    part = replace(next(one for one in field.parts if one.calls == "at once"), turn=turn)
    run_golden(field.case)  # which tells what its outputs are like
    like = plain_like(field.case)
    subject = Subject("k", {"decode_e8m0": run})
    (called,) = quick.call_parts(subject, field.case, field.cutting, (part.without(list(part.form)),), like, seconds)
    return called


def test_two_calls_that_wait_for_each_other_for_ever_are_told():
    both = threading.Barrier(2)

    def run(codes, dtype="float32"):
        try:
            both.wait(0.2)
        except threading.BrokenBarrierError:
            both.reset()
            return golden("decode_e8m0")(codes, dtype)
        threading.Event().wait()

    assert called_at_once(run, 1).outcome is Outcome.TIMEOUT


def test_two_calls_meet_though_the_other_one_begins_late(monkeypatch):
    inside, met, begin = [0], [], quick.in_a_thread
    monkeypatch.setattr(quick, "in_a_thread", lambda job: begin(lambda: (time.sleep(0.1), job())))

    def run(codes, dtype="float32"):
        inside[0] += 1
        time.sleep(0.02)
        met.append(inside[0] > 1)
        inside[0] -= 1
        return golden("decode_e8m0")(codes, dtype)

    assert called_at_once(run, 5).outcome is Outcome.PASS and any(met)


@pytest.mark.parametrize("error", [RuntimeError, ArgumentError, None])
def test_what_the_other_one_of_two_calls_at_once_gives_is_looked_at_too(error):
    """The one that begins first ends first, and takes with it what a refused call left behind."""
    right = golden("decode_e8m0")

    def run(codes, dtype="float32"):
        result = right(codes, dtype)
        if threading.current_thread() is threading.main_thread():
            return result
        if error:
            raise error("no")
        return -result

    called = called_at_once(run, 2)
    assert called.outcome is Outcome.MISMATCH and called.finding == "not-thread-safe"


@pytest.mark.parametrize("turn", [0, 1])
def test_of_three_calls_at_once_one_comes_behind_a_refused_one(turn):
    shapes, right = [], golden("decode_e8m0")

    def run(codes, dtype="float32"):
        shapes.append(codes.shape)
        return right(codes, dtype)

    assert not called_at_once(run, 60.0, turn).words
    assert [shape == (2, 2, 2) for shape in shapes] == [True] * turn + [False, False]


def test_a_call_that_ends_its_own_thread_is_waited_for():
    def run(codes, dtype="float32"):
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit
        return golden("decode_e8m0")(codes, dtype)

    assert called_at_once(run, 2).outcome is Outcome.PASS


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_call_that_must_be_refused_is_refused(operation):
    variant = next(iter(OPERATIONS[operation].variants()))
    case = build(operation, "HOPPER", variant, base_beside(operation, variant), 1)
    name = OPERATIONS[operation].inputs[0]
    with pytest.raises(RefnumError):
        run_golden(case.with_inputs({name: no_input(operation, case.inputs[name])}))
