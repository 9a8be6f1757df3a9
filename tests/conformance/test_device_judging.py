"""Judging where the data is: on NumPy and on a stand-in for CuPy here, on CuPy where there is a GPU."""

import ctypes
import dataclasses
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.draw.bits import float_bits
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, call_golden, run_golden
from refnum.conformance.cases.recipes import Recipe, expand
from refnum.conformance.cases.recipes.distributions import distributions_for
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.subjects.calls.call import call
from refnum.conformance.subjects.calls.float_mode import float_mode
from refnum.conformance.subjects.controls import controls
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts.compare import compare
from refnum.conformance.verdicts.device import (
    call_on_device,
    device_like,
    expand_on_device,
    fetch,
    judge_on_device,
    library_of,
    place,
)
from refnum.errors import UnsupportedError

spec = importlib.util.spec_from_file_location("stand_in", Path(__file__).parents[1] / "refnum" / "test_dispatch.py")
stand_in = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stand_in)
stand_in.FUNCTIONS |= {np.sort, np.flatnonzero}  # CuPy has both; `unpermute` uses them
stand_in.DeviceArray.itemsize = property(lambda self: self.host.itemsize)
stand_in.DeviceArray.get = lambda self: self.host
stand_in.DeviceArray.__cuda_array_interface__ = property(lambda self: {"version": 3})
stand_in.DeviceArray.nonzero = lambda self: stand_in.wrap(self.host.nonzero())


def likes():
    yield pytest.param(lambda: np.empty(0, np.uint8), id="numpy")
    yield pytest.param(lambda: stand_in.DeviceArray(np.empty(0, np.uint8)), id="stand-in")

    def cupy():
        try:
            return device_like()
        except UnsupportedError as error:
            pytest.skip(str(error))

    yield pytest.param(cupy, id="cupy")


@pytest.fixture(params=list(likes()))
def like(request):
    return request.param()


def recipe(name, number=0):
    operation, distribution = OPERATIONS[name], list(distributions_for(name).values())[number]
    params = dict(operation.defaults())
    if OPERATIONS[name].ragged:
        params["splits"] = [4, 0, 6]
    columns = 256 if name.endswith("tetrajet_v2") or name == "osci_reset" else 160
    return Recipe(
        name, "HOPPER", params, (10, columns), 77, distribution.name, dict(distribution.simple), optional=True
    )


def subject(like, name, wrap=lambda results: results):
    """The model itself, of the library of `like`, its results passed through `wrap`."""

    def function(**keywords):
        keywords.pop("profile", None)
        return wrap(golden_of(name, keywords))

    arrays = "numpy" if isinstance(like, np.ndarray) else "cupy"
    return Subject("model", {name: function}, arrays=arrays)


def golden_of(name, keywords):
    from refnum.conformance.cases.case import Case

    inputs = {k: v for k, v in keywords.items() if hasattr(v, "dtype")}
    params = {k: v for k, v in keywords.items() if not hasattr(v, "dtype") and v is not None}
    return call_golden(Case(name, "HOPPER", params, inputs))


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_model_passes_on_every_operation(like, name):
    case = expand_on_device(recipe(name, 1), like)
    judged = judge_on_device(subject(like, name), case)
    assert judged.outcome is Outcome.PASS, judged.words
    assert judged.compared == sum(array.size for array in run_golden(expand(recipe(name, 1))).values()) > 0
    assert judged.wrong == {} and judged.records == []


def test_a_wrong_byte_comes_back_as_a_record_and_a_count(like):
    def spoil(results):
        packed, scales = results
        packed[3, 7] = packed[3, 7] ^ np.uint8(5)
        packed[4, :] = packed[4, :] ^ np.uint8(1)
        scales[9, 4] = scales[9, 4] ^ np.uint8(2)
        return packed, scales

    case = expand_on_device(recipe("quantize_mxfp4", 1), like)
    want = run_golden(expand(recipe("quantize_mxfp4", 1)))
    judged = judge_on_device(subject(like, "quantize_mxfp4", spoil), case)
    assert judged.outcome is Outcome.MISMATCH and judged.wrong == {"packed": 81, "scales": 1}
    assert "81 of 800 in packed, 1 of 50 in scales differ" in judged.words
    first = judged.records[0]
    assert (first.output, first.index, first.golden) == ("packed", (3, 7), int(want["packed"][3, 7]))
    assert first.observed == first.golden ^ 5
    assert len(judged.records) == 16


@pytest.mark.parametrize(
    ("wrap", "finding"),
    [
        (lambda results: results[:1], "wrong-shape-or-dtype"),
        (lambda results: (results[0][:, 1:], results[1]), "wrong-shape-or-dtype"),
        (lambda results: (results[0].astype(np.int8), results[1]), "wrong-shape-or-dtype"),
    ],
    ids=["count", "shape", "dtype"],
)
def test_results_that_cannot_be_compared(like, wrap, finding):
    judged = judge_on_device(subject(like, "quantize_mxfp4", wrap), expand_on_device(recipe("quantize_mxfp4"), like))
    assert judged.outcome is Outcome.MISMATCH and judged.finding == finding and judged.words


def test_a_changed_input_is_a_breach(like):
    def quantize_mxfp4(x, profile=None):
        result = refnum.quantize_mxfp4(x)
        float_bits(x)[2, 3] = 1
        return result

    arrays = "numpy" if isinstance(like, np.ndarray) else "cupy"
    judged = judge_on_device(
        Subject("writer", {"quantize_mxfp4": quantize_mxfp4}, arrays=arrays),
        expand_on_device(recipe("quantize_mxfp4", 1), like),
    )
    assert judged.finding == "input-mutated" and judged.outcome is Outcome.MISMATCH


def test_what_a_subject_raises_becomes_an_outcome(like):
    arrays = "numpy" if isinstance(like, np.ndarray) else "cupy"

    def judged_by(error):
        def quantize_mxfp4(x, profile=None):
            raise error

        return judge_on_device(
            Subject("s", {"quantize_mxfp4": quantize_mxfp4}, arrays=arrays),
            expand_on_device(recipe("quantize_mxfp4"), like),
        )

    assert judged_by(RuntimeError("illegal address\nmore")).outcome is Outcome.FAULT
    assert judged_by(RuntimeError("illegal address\nmore")).words == "RuntimeError: illegal address"
    assert judged_by(UnsupportedError("no")).outcome is Outcome.UNSUPPORTED
    assert judged_by(type("CompileError", (Exception,), {})("x")).outcome is Outcome.COMPILE_ERROR


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit("no"), type("Own", (BaseException,), {})("no")])
def test_no_error_of_a_subject_ends_the_run(like, error):
    def quantize_mxfp4(x, profile=None):
        raise error

    judged = judge_on_device(
        Subject("s", {"quantize_mxfp4": quantize_mxfp4}, arrays=library_of(like)),
        expand_on_device(recipe("quantize_mxfp4"), like),
    )
    assert judged.outcome is Outcome.FAULT and type(error).__name__ in judged.words


def test_a_call_leaves_the_settings_of_the_process_as_they_were(like):
    def quantize_mxfp4(x, profile=None):
        np.seterr(all="raise")
        sys.setrecursionlimit(5_000)
        return refnum.quantize_mxfp4(x)

    before = np.geterr(), sys.getrecursionlimit(), float_mode()
    subject = Subject("s", {"quantize_mxfp4": quantize_mxfp4}, arrays=library_of(like))
    judged = judge_on_device(subject, expand_on_device(recipe("quantize_mxfp4", 1), like))
    assert judged.outcome is Outcome.PASS
    assert (np.geterr(), sys.getrecursionlimit(), float_mode()) == before


def test_a_changed_float_mode_is_a_breach_and_does_not_stay(like):
    def quantize_mxfp4(x, profile=None):
        ctypes.CDLL("libm.so.6").fesetround(0x800)
        return refnum.quantize_mxfp4(x)

    mode = float_mode()
    subject = Subject("s", {"quantize_mxfp4": quantize_mxfp4}, arrays=library_of(like))
    judged = judge_on_device(subject, expand_on_device(recipe("quantize_mxfp4", 1), like))
    assert judged.finding == "float-mode-changed" and judged.outcome is Outcome.MISMATCH
    assert float_mode() == mode


def test_a_forked_child_never_gets_to_judge(like):
    children = []

    def quantize_mxfp4(x, profile=None):
        children.append(os.fork())
        if not children[-1]:
            raise ValueError("the child")
        return refnum.quantize_mxfp4(x)

    process = os.getpid()
    subject = Subject("s", {"quantize_mxfp4": quantize_mxfp4}, arrays=library_of(like))
    assert judge_on_device(subject, expand_on_device(recipe("quantize_mxfp4", 1), like)).outcome is Outcome.PASS
    assert os.getpid() == process and children
    assert all(os.waitpid(child, 0)[1] >> 8 == 1 for child in children)


def test_an_array_that_lies_about_equality_is_compared_by_its_bytes(like):
    class Lies(type(like)):
        def __ne__(self, other):
            return np.zeros_like(other)

    def lying(results):
        wrong = results[0] ^ np.uint8(1)
        return wrong.view(Lies) if isinstance(like, np.ndarray) else Lies(getattr(wrong, "host", wrong)), results[1]

    if type(like).__module__.startswith("cupy"):
        pytest.skip("a class that CuPy itself allocates")
    judged = judge_on_device(
        subject(like, "quantize_mxfp4", lying), expand_on_device(recipe("quantize_mxfp4", 1), like)
    )
    assert judged.outcome in (Outcome.MISMATCH, Outcome.FAULT)


def controls_judged_by_a_plain_call():
    """Controls whose first call on a case shows what is wrong with them, and the right ones."""
    for control in controls():
        subject = control.subject
        if control.outcome is not Outcome.TIMEOUT and subject.name not in ("model", "sometimes", "reused_buffer"):
            yield pytest.param(control, id=subject.name)


@pytest.mark.parametrize("control", list(controls_judged_by_a_plain_call()))
def test_a_control_is_judged_alike_on_both_paths(control):
    subject = control.subject
    for operation in subject.operations:
        for params in OPERATIONS[operation].variants():
            (case,) = control_cases(operation, "HOPPER", params)
            if subject.refuses(operation, "HOPPER", params):
                continue
            golden = run_golden(case)
            host = call(subject, case)
            wrong = host.outcome is Outcome.PASS and compare(case, golden, host.results).level > 0
            there = judge_on_device(subject, case, golden)  # after the comparison: a buffer may be used again
            assert there.outcome is (Outcome.MISMATCH if wrong else host.outcome), there.words
            if not wrong:
                assert (there.words, there.finding) == (host.words, host.finding)


def test_want_of_memory_on_a_large_case_says_nothing_of_the_kernel():
    def quantize_mxfp4(x, profile=None):
        raise MemoryError

    def judged_on(rows):
        case = expand_on_device(
            dataclasses.replace(recipe("quantize_mxfp4"), shape=(rows, 4096)), np.empty(0, np.uint8)
        )
        return judge_on_device(Subject("s", {"quantize_mxfp4": quantize_mxfp4}), case)

    assert judged_on(1).outcome is Outcome.FAULT  # 64 MiB are free, as for every call
    large = judged_on(512)
    assert large.outcome is Outcome.UNSUPPORTED and large.no_room


def test_a_case_travels_there_and_back(like):
    for name in OPERATIONS:
        host = expand(recipe(name, 1))
        for there in (place(host, like), expand_on_device(recipe(name, 1), like)):
            back = fetch(there)
            for key, array in host.inputs.items():
                assert isinstance(back.inputs[key], np.ndarray) and back.inputs[key].dtype == array.dtype, (name, key)
                assert back.inputs[key].tobytes() == array.tobytes()


def test_another_librarys_subject_is_refused():
    case = expand(recipe("quantize_mxfp4"))
    torch = Subject("t", {"quantize_mxfp4": refnum.quantize_mxfp4}, arrays="torch")
    assert "takes torch arrays; the case holds numpy" in call_on_device(torch, case).words


def test_no_device_is_said(monkeypatch):
    if importlib.util.find_spec("cupy") is None:
        with pytest.raises(UnsupportedError, match="needs CuPy"):
            device_like()
    else:
        with pytest.raises(UnsupportedError, match="no CUDA device"):
            device_like(99)
