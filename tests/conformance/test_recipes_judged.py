"""One recipe judged in a worker: what is seen of a call, of wrong bytes, of a breach, and of no answer."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.levels import NO_LEVEL, Outcome
from refnum.conformance.cases.operation import run_golden
from refnum.conformance.cases.recipes import Recipe, expand
from refnum.conformance.cases.recipes.distributions import distributions_for
from refnum.conformance.cases.structure.levels import Levels
from refnum.conformance.cases.structure.plan import base_row
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts import judge_worker
from refnum.conformance.verdicts.judge_worker import RecipeJudge, Seen, fingerprint, points, seen_in
from refnum.conformance.verdicts.tally import Failure, Tally

HOST = np.empty(0, np.uint8)


def recipe(rows=4, columns=64, distribution="normal"):
    table = distributions_for("quantize_mxfp4")
    return Recipe("quantize_mxfp4", "HOPPER", {"input": "float32"}, (rows, columns), 3, distribution,
                  dict(table[distribution].simple))  # fmt: skip


def judge(function=refnum.quantize_mxfp4, **more):
    return RecipeJudge(Subject("k", {"quantize_mxfp4": function}, **more), 60.0)


def right(x, profile):
    return refnum.quantize_mxfp4(x, profile)


def wrong(x, profile):
    packed, scales = right(x, profile)
    packed[0, :3] ^= 1
    return packed, scales


def writes(x, profile):
    results = right(x, profile)
    x[0, 0] = 77
    return results


def writes_and_drops(x, profile):
    return writes(x, profile)[:1]


def drops(x, profile):
    return right(x, profile)[:1]


def fails(x, profile):
    raise ValueError("no")


def refuses(x, profile):
    raise NotImplementedError("no")


CASE = expand(recipe())
MARK = fingerprint(run_golden(CASE))
ITEMS = 4 * 32 + 4 * 2
MISSING = "1 results came back; quantize_mxfp4 gives 2: packed, scales"


@pytest.mark.parametrize(
    ("function", "outcome", "level", "compared", "finding", "words", "undeclared"),
    [
        (right, "pass", 0, ITEMS, "", "", False),
        (wrong, "mismatch", NO_LEVEL, ITEMS, "", "3 of 128 in packed differ", False),
        (writes, "mismatch", 0, ITEMS, "input-mutated", "the call changed its input x", False),
        (writes_and_drops, "mismatch", NO_LEVEL, 0, "input-mutated", "the call changed its input x", False),
        (
            drops,
            "mismatch",
            NO_LEVEL,
            0,
            "wrong-shape-or-dtype",
            MISSING,
            False,
        ),
        (fails, "fault", 0, 0, "", "ValueError: no", False),
        (refuses, "unsupported", 0, 0, "", "no", True),
    ],
)
def test_what_is_seen_of_one_recipe(function, outcome, level, compared, finding, words, undeclared):
    seen = judge(function).judge(recipe())
    assert (seen.outcome, seen.level, seen.finding, seen.words) == (outcome, level, finding, words)
    assert (seen.compared, seen.print, seen.elements) == (compared, MARK, 256)
    assert (seen.dead, seen.undeclared) == (False, undeclared)
    answered = outcome in ("pass", "mismatch")
    assert seen.points == (points(CASE, run_golden(CASE)) if answered else {}) and bool(seen.points) == answered


def test_a_level_that_is_claimed_passes():
    def l1(x, profile):
        packed, scales = right(x, profile)
        return np.where(np.repeat(scales == 255, 16, axis=1), packed ^ np.uint8(1), packed), scales

    special = recipe(64, distribution="bits")
    assert (run_golden(expand(special))["scales"] == 255).any()
    for claimed, outcome in ((0, Outcome.MISMATCH), (1, Outcome.PASS), (2, Outcome.PASS)):
        seen = judge(l1, level=claimed).judge(special)
        assert (seen.outcome, seen.level) == (outcome, 1)


@pytest.mark.parametrize("rows", [1 << 12, 1 << 12 | 1])
@pytest.mark.parametrize("there", [False, True])
def test_coverpoints_of_cases_up_to_2_17_elements_are_counted(monkeypatch, rows, there):
    monkeypatch.setattr(judge_worker, "count", lambda case, golden: {"hit": 2, "missed": 0})
    monkeypatch.setattr(judge_worker, "judged_on_device", lambda *_: there)
    one = judge(right)
    one.like = HOST
    assert one.judge(recipe(rows, 32)).points == ({"hit": 2} if rows == 1 << 12 else {})


def on_device(monkeypatch, function):
    """Return a judge that takes its own arrays for a device's."""
    taken = []
    monkeypatch.setattr(judge_worker, "judged_on_device", lambda *_: True)
    monkeypatch.setattr(judge_worker, "device_like", lambda: HOST)
    monkeypatch.setattr(judge_worker, "reserve", taken.append)
    return RecipeJudge(Subject("k", {"quantize_mxfp4": function}), 60.0, 512), taken


def test_on_a_device_every_fourth_case_is_counted_and_bytes_alone_differ(monkeypatch):
    one, taken = on_device(monkeypatch, right)
    seen = [one.judge(recipe()), *(one.judge(recipe(), number) for number in range(9))]
    assert [bool(each.points) for each in seen] == [True] + [number % 4 == 0 for number in range(9)]
    assert taken == [512] and {each.print for each in seen} == {MARK}
    assert RecipeJudge(one.subject, 60.0).elements == 0
    seen = on_device(monkeypatch, wrong)[0].judge(recipe())
    assert (seen.outcome, seen.level, seen.words) == (Outcome.MISMATCH, 1, "3 of 128 in packed differ")
    assert (seen.compared, seen.elements) == (ITEMS, 256)
    assert on_device(monkeypatch, refuses)[0].judge(recipe()) == Seen(
        Outcome.UNSUPPORTED, words="no", print=MARK, elements=256, undeclared=True
    )


@pytest.mark.parametrize("there", [False, True])
def test_a_case_that_the_model_refuses_is_no_fault_of_the_subject(monkeypatch, there):
    def refused(_case):
        raise ValueError("x" * 400)

    one = on_device(monkeypatch, fails)[0] if there else judge(fails)
    monkeypatch.setattr(judge_worker, "run_golden", refused)
    words = "ValueError: " + "x" * 288
    assert one.judge(recipe()) == Seen(Outcome.NOT_RUN, finding="golden", words=words, elements=0 if there else 256)


def test_a_device_that_stopped_answering_is_dead_unless_it_is_another_process_s(monkeypatch):
    monkeypatch.setattr(judge_worker, "alive", lambda arrays: False)
    assert judge(fails).judge(recipe()).dead and not judge(wrong).judge(recipe()).dead

    def remote(name, *_arguments, **_keywords):
        return judge_worker.called_with_room(Subject("k", {"quantize_mxfp4": fails}), CASE, 60.0)

    assert not judge(fails, remote=remote).judge(recipe()).dead


def test_memory_is_taken_beforehand_for_the_largest_case_and_two_fifths_at_most(monkeypatch):
    cupy, taken = ModuleType("cupy"), []
    cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(memGetInfo=lambda: (10007, 77)))
    cupy.empty, cupy.uint8 = lambda size, dtype: taken.append(size), np.uint8
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    judge_worker.reserve.cache_clear()
    assert [judge_worker.reserve(elements) for elements in (3, 1 << 20)] == taken == [3 * judge_worker.RESERVED, 4002]
    judge_worker.reserve.cache_clear()


# --- structure --------------------------------------------------------------------------------------------------


def levels(**more):
    return Levels("quantize_mxfp4", "HOPPER", {"input": "float32"}, {**base_row("quantize_mxfp4"), **more}, 0)


def test_levels_that_no_keyword_takes_are_unsupported():
    seen = judge(right).judge(levels(scale_byte=3))
    assert (seen.outcome, seen.words) == (Outcome.UNSUPPORTED, "it names no keyword for this case")
    assert (seen.level, seen.compared, seen.print, seen.elements, seen.points, seen.classes) == (0, 0, 0, 0, {}, {})


@pytest.mark.parametrize("function", [right, wrong, refuses, fails])
def test_a_form_that_is_refused_is_judged_in_a_plain_call(function):
    def dense(x, profile):
        if x.strides[-1] != x.itemsize:
            raise NotImplementedError("gaps")
        return function(x, profile)

    seen = judge(dense).judge(levels(**{"x.storage": "gaps"}))
    outcome = {"right": "pass", "wrong": "mismatch", "refuses": "unsupported", "fails": "fault"}[function.__name__]
    assert seen.outcome == outcome and seen.undeclared == (outcome == "unsupported")
    assert bool(seen.compared) == (outcome in ("pass", "mismatch")) and seen.print and seen.elements


def tally(*failures, **more):
    one = Tally("k", "quantize_mxfp4", "HOPPER", {"input": "float32"}, **more)
    for level, finding, words in failures:
        one.fail(Failure(CASE, level, words, finding))
    return one


@pytest.mark.parametrize(
    ("failures", "claimed", "found"),
    [
        ([], 0, ("pass", 0, "", "")),
        ([(1, "", "")], 1, ("pass", 0, "", "")),
        ([(1, "", "")], 0, ("mismatch", 1, "", "bytes differ")),
        ([(1, "", "low"), (6, "", "none")], 1, ("mismatch", 6, "", "none")),
        ([(6, "", "first"), (2, "", "second")], 0, ("mismatch", 6, "", "first")),
        ([(6, "input-mutated", "it wrote")], 5, ("mismatch", 6, "input-mutated", "it wrote")),
    ],
)
def test_the_first_failure_of_a_tally_is_what_is_seen(failures, claimed, found):
    seen = seen_in(tally(*failures, claimed=claimed, calls=1, compared=9), CASE, 5)
    assert (seen.outcome, seen.level, seen.finding, seen.words) == found
    assert (seen.compared, seen.elements, seen.print) == (9, 256, 5)


def test_of_a_tally_without_a_failure_a_fault_is_seen_or_why_nothing_was_compared():
    faults = [(Outcome.TIMEOUT, "late", CASE), (Outcome.FAULT, "later", CASE)]
    seen = seen_in(tally(faults=faults, calls=1), CASE, 0)
    assert (seen.outcome, seen.words) == (Outcome.TIMEOUT, "late")
    one = tally()
    assert seen_in(one, CASE, 0).words == "it was not compared"
    one.unsupported["odd"] += 1
    seen = seen_in(one, CASE, 0)
    assert (seen.outcome, seen.words, seen.undeclared) == (Outcome.UNSUPPORTED, "odd", False)
    one.undeclared["odd"] += 1
    assert seen_in(one, CASE, 0).undeclared


# --- the fingerprint --------------------------------------------------------------------------------------------


def test_a_fingerprint_is_a_sum_weighted_by_odd_numbers_over_all_arrays():
    dice = np.random.default_rng(5)
    arrays = {name: dice.integers(0, 1 << 8 * np.dtype(dtype).itemsize, shape, dtype=dtype)
              for name, dtype, shape in (("a", "u1", (3, 5)), ("b", "u4", (40,)), ("c", "u2", (2, 3, 4)),
                                         ("d", "u1", (1,)), ("e", "u4", (7, 2)), ("f", "u1", (0, 3)))}  # fmt: skip
    total = 0
    for count, array in enumerate(arrays.values(), 1):
        items = enumerate(array.reshape(-1).tolist())
        total = total * 1_000_003 + sum(item * (2 * place + 1) % 2**32 for place, item in items)
        assert fingerprint(dict(list(arrays.items())[:count])) == total % 2**64
    assert total > 2**90
