"""Ways that launchers take by size, forced on small data on the emulated machine: right, and defects on them seen."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.levels import Outcome
from refnum.conformance.cases.operation import OPERATIONS, call_golden
from refnum.conformance.commands.check.control_cases import control_cases
from refnum.conformance.commands.check.engine import PROBES
from refnum.conformance.commands.mutate.corpus import answer, differs
from refnum.conformance.commands.mutate.out_of_range import questions as out_of_range
from refnum.conformance.subjects.calls.forced_paths import call_with_array_splits, with_empty_experts
from refnum.conformance.subjects.subject import Subject
from refnum.gpu import emulate, ops
from refnum.gpu.device.compile import KERNELS
from refnum.gpu.emulate import EmulationError
from refnum.gpu.ops import payload_permute, payload_sum, swiglu
from refnum.gpu.ops.forced_paths import FORCED_PATHS

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

SPLITS, TOKENS = [33, 0, 37], 20
ROW_MAP = np.repeat([19, 18, 17, 16, 15], [33, 2, 32, 2, 1])[np.arange(70) * 29 % 70]


def inputs(operation: str) -> tuple[object, ...]:
    rng = np.random.default_rng(1)
    if operation == "unpermute":
        return rng.standard_normal((128, 65)).astype(np.float32), ROW_MAP, SPLITS, None, TOKENS
    if operation.startswith("swiglu"):  # more chunks than one CTA takes at a time, fewer than all take
        floats = [rng.standard_normal((8, 896)).astype(ml_dtypes.bfloat16) for _ in range(3)]
        return (*floats[operation == "swiglu_quantize" :], rng.random(8).astype(np.float32))
    return rng.integers(1, 256, (TOKENS, 119)).astype(np.uint8), ROW_MAP, SPLITS


def bounds() -> tuple[int, ...]:
    return payload_permute.ONCE, payload_sum.TOGETHER, swiglu.STAYING


def called(operation: str, folder: Path = KERNELS) -> tuple[np.ndarray, ...]:
    with emulate.Emulator(folder).running():
        given = [emulate.array(x) if isinstance(x, np.ndarray) else x for x in inputs(operation)]
        result = getattr(ops, operation)(*given)
    return tuple(np.asarray(part) for part in (result if isinstance(result, tuple) else (result,)))


def told(operation: str, folder: Path = KERNELS) -> str:
    """What is wrong with an operation's result; nothing if it is the golden one."""
    try:
        got = called(operation, folder)
    except EmulationError as error:
        return str(error)
    want = getattr(refnum, operation)(*inputs(operation))
    pairs = zip(want if isinstance(want, tuple) else (want,), got, strict=True)
    return "" if all(x.tobytes() == y.tobytes() for x, y in pairs) else "other bytes"


@pytest.mark.parametrize("operation", list(FORCED_PATHS))
def test_every_way_gives_the_golden_bytes_and_bounds_come_back(operation: str) -> None:
    before = bounds()
    for way in FORCED_PATHS[operation].values():
        with way():
            assert before != bounds()
            assert not told(operation)
    assert before == bounds()


@pytest.mark.parametrize(
    ("operation", "file", "text", "instead", "words"),
    [
        ("permute_pad", "payload_rows.cu", "BLOCK * THREADS + threadIdx.x;\n    if (token",
         "BLOCK * THREADS - threadIdx.x;\n    if (token", "nobody has written"),
        ("permute_pad", "payload_rows.cu", "lane < count ? list_of", "lane <= count ? list_of", "nobody has written"),
        ("permute_pad", "payload_rows.cu", "slot < LISTED", "slot <= LISTED", "race|nobody has written"),
        ("unpermute", "permute_sum.cu", "if (token < a.tokens) *refnum", "if (token + 1 < a.tokens) *refnum",
         "nobody has written"),
        ("swiglu_quantize", "swiglu_quantize.cu", "row + a.step_rows + over", "row + a.step_rows - over", "race"),
        ("swiglu_backward", "swiglu_backward.cu", "if (AHEAD) in = ahead;", "", "other bytes"),
    ],
)  # fmt: skip
def test_a_defect_on_a_way_is_seen(
    operation: str, file: str, text: str, instead: str, words: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(KERNELS, tmp_path / "kernels")
    source = (folder / file).read_text()
    text, instead = (part.replace("BLOCK", "(unsigned long long)blockIdx.x") for part in (text, instead))
    assert source.count(text) == 1
    (folder / file).write_text(source.replace(text, instead))
    assert not told(operation, folder)  # of this size it takes another way
    for way in FORCED_PATHS[operation].values():
        with way():
            assert re.search(words, told(operation, folder))


@pytest.mark.parametrize(("to", "group"), [("fp8", 128), ("mxfp4", 32)])
def test_ways_are_asked_for_a_corner_in_which_one_cta_walks_over_ends_of_rows(to: str, group: int) -> None:
    threads = swiglu.TUNING["swiglu_quantize"].threads

    def walks_on(rows: int, columns: int) -> bool:
        """Whether a thread's second chunk is the first of a row: one at which across is the chunks a row, no more."""
        chunks = -(-columns // group) * (group // swiglu.CHUNK)
        second = range(threads, rows * chunks)
        return any(chunk % chunks == 0 and (chunk - threads) % chunks for chunk in second)

    cases = (case for case in corner_cases("swiglu_quantize", "HOPPER", {"to": to}) if case.elements)
    assert any(walks_on(*case.inputs["gate"].shape) for case in itertools.islice(cases, PROBES))


@pytest.mark.parametrize("operation", [name for name in FORCED_PATHS if OPERATIONS[name].routed])
def test_splits_in_an_array_are_taken_as_those_of_the_device(operation: str) -> None:
    subject = Subject("emulated", emulate.subject_operations(emulate.Emulator()))
    (case,) = control_cases(operation, "HOPPER", {"align": 16})
    for one in (case, with_empty_experts(case)):
        called = call_with_array_splits(subject, one)
        assert called.outcome is Outcome.PASS, called.words
        assert [x.tobytes() for x in called.results] == [x.tobytes() for x in call_golden(one)]


@pytest.mark.parametrize("operation", [name for name in FORCED_PATHS if list(out_of_range(name))])
def test_what_the_model_refuses_is_answered_as_promised_on_every_way(operation: str) -> None:
    function = emulate.subject_operations(emulate.Emulator())[operation]
    questions = list(out_of_range(operation))
    for way in (contextlib.nullcontext, *FORCED_PATHS[operation].values()):
        for question in questions:
            with way():
                assert not differs(answer(function, question), question.golden), question.label
