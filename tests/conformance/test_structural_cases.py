"""One structural case judged: which cases a subject is asked, how often it is called, and what it is blamed for."""

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import FORM, Case
from refnum.conformance.cases.findings import Finding
from refnum.conformance.cases.layouts import IN
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, call_golden, run_golden
from refnum.conformance.cases.structure.illegal import illegal_cases
from refnum.conformance.cases.structure.levels import Levels
from refnum.conformance.cases.structure.plan import base_row
from refnum.conformance.subjects.calls.call import Called, call
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts import structural
from refnum.conformance.verdicts.refusals import refusal

FLOAT32 = {"input": "float32"}


def case(elements=64, **params):
    x = np.arange(elements, dtype=np.float32).reshape(-1, 32)
    return Case("quantize_mxfp4", "HOPPER", {**FLOAT32, **params}, {"x": x})


FORMED = {FORM: {"x.storage": "gaps"}}


class Kernel:
    """A right kernel that keeps what it was called with; `wrong` are the calls, by number, that it answers wrongly."""

    def __init__(self, wrong=lambda number: False):
        self.wrong, self.given = wrong, []

    def subject(self, **more):
        def quantize_mxfp4(x, profile):
            self.given.append(x.copy())
            packed, scales = refnum.quantize_mxfp4(x, profile)
            return packed ^ np.uint8(self.wrong(len(self.given))), scales

        return Subject("k", {"quantize_mxfp4": quantize_mxfp4}, **more)


def judged(subject, calls, one=None):
    one = one or case()
    return structural.judged(subject, one, run_golden(one), calls, 60.0)


# --- which cases ------------------------------------------------------------------------------------------------


def test_keywords_that_a_callable_lacks():
    every = ["out", "scale_byte", "signs", "philox", "ratio", "variant"]
    for name in every:
        namespace: dict = {}
        exec(f"def kernel(x, profile, {name}=None): ...", namespace)
        assert structural.lacking(Subject("k", {"quantize_mxfp4": namespace["kernel"]}), "quantize_mxfp4") == [
            other for other in every if other != name
        ]
    assert structural.lacking(Subject("k", {"matmul_bf16": lambda a, b: 0}), "matmul_bf16") == [*every, "splits"]


def test_only_a_callable_that_names_a_keyword_is_asked_for_it():
    subject = Kernel().subject()
    assert structural.is_asked(subject, case()) and structural.is_asked(subject, case(**FORMED))
    assert not structural.is_asked(subject, case(philox=[1, 2]))
    assert not structural.is_asked(subject, case(**{FORM: {"out": "gaps"}}))
    swapped = case(**{FORM: {"x.dtype": ">f4"}})
    assert [structural.is_asked(Kernel().subject(arrays=arrays), one)
            for arrays in ("numpy", "jax") for one in (case(), swapped)] == [True, True, True, False]  # fmt: skip


def test_a_layout_or_a_profile_that_a_subject_does_not_have_is_not_asked():
    def supports(operation, profile, params):
        return "no" if profile == "OCP" or params.get(IN, "bytes") != "bytes" else ""

    subject = Subject("k", {"dequantize_mxfp4": refnum.dequantize_mxfp4}, supports=supports)
    for row, profile, refused in (
        ({}, "HOPPER", False), ({}, "OCP", False), ({"under": "OCP"}, "OCP", False), ({IN: "bytes"}, "HOPPER", False),
        ({IN: "float32"}, "HOPPER", True), ({"under": "OCP"}, "HOPPER", True), ({"under": "EVEN"}, "OCP", False),
    ):  # fmt: skip
        assert structural.refuses_other(subject, "dequantize_mxfp4", profile, {"dtype": "float32"}, row) is refused


def levels(**more):
    return Levels("quantize_mxfp4", "HOPPER", FLOAT32, {**base_row("quantize_mxfp4"), **more}, 0)


def test_a_kernel_without_out_is_asked_the_case_in_an_array_of_its_own():
    with_out = Subject("k", {"quantize_mxfp4": lambda x, profile, out=None: 0})
    asked = [one.params.get(FORM, {}) for one in structural.cases_for(with_out, levels(out="gaps"))]
    assert "out" in asked[0] and asked[1:] == [{}]
    assert [one.params.get(FORM, {}) for one in structural.cases_for(Kernel().subject(), levels(out="gaps"))] == [{}]
    assert not list(structural.cases_for(with_out, levels(scale_byte=3)))


# --- how often, and what is blamed ------------------------------------------------------------------------------


@pytest.mark.parametrize(("calls", "made"), [("once", 1), ("twice", 2)])
def test_a_right_case_is_called_as_often_as_its_level_says(calls, made):
    kernel = Kernel()
    tally = judged(kernel.subject(), calls)
    assert len(kernel.given) == made == tally.calls and not tally.wrong


@pytest.mark.parametrize(("rows", "made"), [(1 << 12, 2), (1 << 12 | 1, 1)])
def test_a_case_of_more_than_2_17_elements_is_called_once(rows, made):
    assert judged(Kernel().subject(), "twice", case(32 * rows)).calls == made


def test_a_case_that_is_not_right_is_not_called_more_often():
    def fails(x, profile):
        raise ValueError("no")

    tally = judged(Subject("k", {"quantize_mxfp4": fails}), "twice")
    assert len(tally.faults) == 1 and not tally.calls
    assert judged(Kernel(lambda number: True).subject(), "twice").failing == 1


def test_a_form_that_is_refused_is_told_and_no_undeclared_refusal():
    def refuses(x, profile):
        raise NotImplementedError("no")

    subject = Subject("k", {"quantize_mxfp4": refuses})
    for one, undeclared in ((case(**FORMED), {}), (case(), {"no": 1})):
        tally = judged(subject, "once", one)
        assert tally.unsupported == (undeclared or {"no": 1}) and tally.undeclared == undeclared
    assert judged(Kernel().subject(), "once", case(**FORMED)).calls == 1


def test_a_result_that_is_wrong_the_second_time_is_told():
    tally = judged(Kernel(lambda number: number == 2).subject(), "twice")
    assert [one.finding for one in tally.failures] == [Finding.NOT_DETERMINISTIC]


ILLEGAL = [one for one in illegal_cases("quantize_mxfp4", "HOPPER", FLOAT32) if "out" not in one.params.get(FORM, {})]


def test_only_what_is_probed_is_plain_small_and_not_empty(monkeypatch):
    probed = []
    monkeypatch.setattr(structural, "probe", lambda subject, one, *_: probed.append(one.elements))
    for one in (case(1 << 14), case((1 << 14) + 32), case(**FORMED), case(0), case(32)):
        assert not judged(Kernel().subject(), "probed", one).wrong
    assert probed == [1 << 14, 32]


def after(what):
    """Return a kernel that is wrong after a call that `what` describes: refused, or every third time."""
    kernel = Kernel()

    def quantize_mxfp4(x, profile):
        kernel.given.append(x)
        try:
            packed, scales = refnum.quantize_mxfp4(x, profile)
        except Exception:
            kernel.refused = True
            raise
        wrong, kernel.refused = what(kernel.refused, len(kernel.given)), False
        return packed ^ np.uint8(wrong), scales

    kernel.refused = False
    return kernel, Subject("k", {"quantize_mxfp4": quantize_mxfp4})


@pytest.mark.parametrize(
    ("what", "findings", "flips"),
    [
        (lambda refused, number: False, [], 0),
        (lambda refused, number: refused, [Finding.AFTER_REFUSAL], 0),
        (lambda refused, number: number == 4, [Finding.NOT_DETERMINISTIC], 1),
    ],
)
def test_a_call_after_a_refusal(what, findings, flips):
    kernel, subject = after(what)
    tally = judged(subject, "after a refusal")
    assert [one.finding for one in tally.failures] == findings and tally.flips == flips
    if not findings:
        assert len(kernel.given) == 4 and tally.calls == 2  # plain, other data, illegal, plain again


def test_every_illegal_call_that_is_asked_and_refused_is_followed_by_one_on_the_case():
    def lenient(x, profile):
        if x.dtype == np.float64:
            x = x.astype(np.float32)
        return refnum.quantize_mxfp4(x, profile)

    subject = Subject("k", {"quantize_mxfp4": lenient})
    expected = [one for one in ILLEGAL if structural.is_asked(subject, one) and refusal(call(subject, one))]
    found = list(structural.after_refusals(subject, case(), 60.0))
    assert 0 < len(found) == len(expected) < len(ILLEGAL)
    assert all(called.outcome is Outcome.PASS for called in found)


def test_illegal_calls_beside_a_case_have_its_parameters():
    seen = set()

    def kernel(x, profile):
        seen.add(x.dtype.name)
        return refnum.quantize_mxfp4(x, profile)

    half = case().with_inputs({"x": np.ones((2, 32), np.float16)}, {"input": "float16"})
    list(structural.after_refusals(Subject("k", {"quantize_mxfp4": kernel}), half, 60.0))
    assert "float16" in seen and "float32" not in seen


@pytest.mark.parametrize("wrong", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("again", [True, False])
def test_threads_are_blamed_for_wrong_bytes_that_come_again(monkeypatch, wrong, again):
    one, rounds = case(), []

    def twice(subject, case, seconds):
        rounds.append(1)
        results = call_golden(case)
        bad = Called((results[0] ^ np.uint8(1), results[1]))
        now = wrong if again or len(rounds) == 1 else ()
        return case, *(bad if place in now else Called(results) for place in range(2))

    monkeypatch.setattr(structural, "call_twice_at_once", twice)
    tally = judged(Kernel().subject(), "at once", one)
    if again:
        assert [one.finding for one in tally.failures] == [Finding.NOT_THREAD_SAFE] * len(wrong)
        assert len(rounds) == 1 + 3 * len(wrong)
    else:
        assert tally.flips == len(wrong) and {one.finding for one in tally.failures} <= {Finding.NOT_DETERMINISTIC}


def test_levels_of_every_operation_without_keywords_are_asked():
    for operation in OPERATIONS:
        given = Levels(operation, "HOPPER", OPERATIONS[operation].defaults(), base_row(operation), 0)
        assert len(list(structural.cases_for(Subject("k", {operation: getattr(refnum, operation)}), given))) >= 1
