"""What comes back of a comparison on a device, what is judged there, and how cases come home; on NumPy arrays."""

import contextlib
import sys
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, run_golden
from refnum.conformance.subjects.subject import Subject
from refnum.conformance.verdicts import device
from refnum.errors import UnsupportedError


def compared(*counts):
    """Compare outputs of 30 items of which so many differ, the last ones."""
    golden = {f"output {n}": np.arange(30, dtype=np.uint8).reshape(5, 6) for n in range(len(counts))}
    observed = {name: array.copy() for name, array in golden.items()}
    for array, count in zip(observed.values(), counts, strict=True):
        array.reshape(-1)[30 - count :] += 100
    return device.compare_on_device(golden, observed)


@pytest.mark.parametrize(
    ("counts", "kept"),
    [((0, 0), [0, 0]), ((1, 0), [1, 0]), ((0, 3), [0, 3]), ((10, 10), [10, 6]), ((16, 1), [16, 0]),
     ((30, 2), [16, 0]), ((5, 5, 5, 5), [5, 5, 5, 1])],
)  # fmt: skip
def test_sixteen_records_of_what_differs_come_back_and_every_count(counts, kept):
    judged = compared(*counts)
    wrong = {f"output {n}": count for n, count in enumerate(counts) if count}
    assert judged.wrong == wrong and judged.compared == 30 * len(counts)
    assert judged.outcome is (Outcome.MISMATCH if wrong else Outcome.PASS)
    assert judged.words == (", ".join(f"{n} of 30 in {name}" for name, n in wrong.items()) + " differ" if wrong else "")
    assert judged.records == [
        device.Mismatch(f"output {n}", divmod(30 - count + at, 6), 30 - count + at, 130 - count + at)
        for n, count in enumerate(counts) for at in range(kept[n])
    ]  # fmt: skip
    assert device.Judged().compared == 0


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 9, 16, 23])
def test_bytes_as_words(size):
    array = np.arange(1, size + 1, dtype=np.uint8)
    words = device.as_words(array)
    assert words.tobytes() == array.tobytes() + bytes(-size % 8) and words.dtype == np.uint64
    assert device.as_words(array.reshape(-1, 1)[:, ::-1]).tobytes() == words.tobytes()


def test_elements_of_packed_outputs_are_two_a_byte():
    outputs = {"packed": np.zeros((3, 16), np.uint8), "scales": np.zeros((3, 1), np.uint8)}
    assert device.elements_of(Case("quantize_mxfp4", "HOPPER", {}, {}), outputs) == 96 + 3
    assert device.elements_of(Case("encode_e4m3", "HOPPER", {}, {}), {"codes": np.zeros((3, 16), np.uint8)}) == 48


@pytest.mark.parametrize(
    ("more", "there"),
    [
        ({}, True), ({"arrays": "torch-cuda"}, False), ({"arrays": "numpy"}, False), ({"remote": print}, False),
        ({"inputs": "finite"}, False), ({"level": 1}, False), ({"levels": {"quantize_mxfp4": 2}}, False),
        ({"level": 1, "levels": {"quantize_mxfp4": 0}}, True), ({"arrays": "numpy", "remote": print}, False),
    ],
)  # fmt: skip
def test_what_is_judged_on_a_device(more, there):
    subject = Subject("k", {"quantize_mxfp4": refnum.quantize_mxfp4}, **({"arrays": "cupy"} | more))
    assert device.judged_on_device(subject, "quantize_mxfp4") is there


BITS = np.full((2, 32), 0x3F80, np.uint16)


@pytest.mark.parametrize(
    ("operation", "params", "name", "named"),
    [
        ("quantize_mxfp4", {"input": "bfloat16"}, "x", True),
        ("quantize_mxfp4", {"input": "bfloat16"}, "rbits", False),
        ("quantize_mxfp4", {"input": "float32"}, "rbits", False),
        ("decode_e4m3", {"dtype": "float32"}, "codes", False),
        ("swiglu_quantize", {"to": "fp8"}, "gate", True),
        ("swiglu_quantize", {"to": "fp8"}, "up", True),
        ("swiglu_backward", {}, "grad", True),
        ("unpermute", {"align": 32}, "rows", True),
        ("matmul_bf16", {"order": "chain", "out": "float32"}, "b", True),
        ("matmul_fp8", {"order": "chain", "out": "float32"}, "a", False),
    ],
)
def test_bits_of_bfloat16_come_home_by_name_and_words_as_they_are(operation, params, name, named):
    wide = np.ones((2, 32), np.float32)
    back = device.fetch(Case(operation, "HOPPER", params, {name: BITS, "other": wide})).inputs
    assert back[name].dtype == (ml_dtypes.bfloat16 if named else np.uint16) and back[name].tobytes() == BITS.tobytes()
    assert back["other"].dtype == np.float32


def test_a_call_on_a_device_has_no_time_limit(monkeypatch):
    limits, call_on = [], device.call_on
    monkeypatch.setattr(device, "call_on", lambda *given: (limits.append(given[3]), call_on(*given))[1])
    case = Case("encode_e4m3", "HOPPER", {"input": "float32"}, {"x": np.ones((1, 3), np.float32)})
    called = device.call_on_device(Subject("k", {"encode_e4m3": refnum.encode_e4m3}), case)
    assert called.outcome is Outcome.PASS and limits == [0]
    assert np.array_equal(called.results[0], run_golden(case)["codes"])


@pytest.mark.parametrize(("operation", "place"), [("quantize_mxfp4", (0, 0)), ("encode_e4m3", (1, 31))])
def test_one_changed_element_of_an_input_is_a_breach(operation, place):
    def kernel(x, **more):
        results = getattr(refnum, operation)(x, **more)
        x[place] = 5
        return results

    case = Case(operation, "HOPPER", OPERATIONS[operation].defaults(), {"x": np.zeros((2, 32), np.float32)})
    judged = device.judge_on_device(Subject("k", {operation: kernel}), case)
    assert (judged.outcome, judged.finding) == (Outcome.MISMATCH, "input-mutated")


def test_an_empty_array_of_a_device_that_there_is(monkeypatch):
    cupy, entered = ModuleType("cupy"), []
    runtime = SimpleNamespace(getDeviceCount=lambda: 2, CUDARuntimeError=RuntimeError)

    def on(number):
        entered.append(number)
        return contextlib.nullcontext()

    cupy.cuda, cupy.empty, cupy.uint8 = SimpleNamespace(runtime=runtime, Device=on), np.empty, np.uint8
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert device.device_like().shape == device.device_like(1).shape == (0,) and entered == [0, 1]
    for number in (-1, 2):
        with pytest.raises(UnsupportedError, match=f"no CUDA device {number}; this machine has 2"):
            device.device_like(number)
