"""Ways that launchers take by size, forced on small data on the emulated machine: right, and defects on them seen."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest

import refnum
from conformance.mutants.corpus import answer, differs
from conformance.mutants.strays import strays
from gpu import emulate, ops, permute, permute_sum
from gpu.compile import KERNELS
from gpu.emulate import EmulationError
from gpu.ways import WAYS

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

SPLITS, TOKENS = [33, 0, 37], 20
ROW_MAP = np.repeat([19, 18, 17, 16, 15], [33, 2, 32, 2, 1])[np.arange(70) * 29 % 70]


def inputs(operation: str) -> tuple[object, ...]:
    rng = np.random.default_rng(1)
    if operation == "unpermute":
        return rng.standard_normal((128, 65)).astype(np.float32), ROW_MAP, SPLITS, None, TOKENS
    return rng.integers(1, 256, (TOKENS, 119)).astype(np.uint8), ROW_MAP, SPLITS


def called(operation: str, folder: Path = KERNELS) -> tuple[np.ndarray, ...]:
    with emulate.Emulator(folder).running():
        given = [emulate.array(x) if isinstance(x, np.ndarray) else x for x in inputs(operation)]
        result = getattr(ops, operation)(*given)
    return tuple(np.asarray(part) for part in (result if isinstance(result, tuple) else (result,)))


@pytest.mark.parametrize("operation", list(WAYS))
def test_every_way_gives_the_golden_bytes_and_bounds_come_back(operation: str) -> None:
    bounds = permute.ONCE, permute_sum.TOGETHER
    want = getattr(refnum, operation)(*inputs(operation))
    for way in WAYS[operation].values():
        with way():
            assert bounds != (permute.ONCE, permute_sum.TOGETHER)
            got = called(operation)
        for x, y in zip(want if isinstance(want, tuple) else (want,), got, strict=True):
            assert x.tobytes() == y.tobytes()
    assert bounds == (permute.ONCE, permute_sum.TOGETHER)


@pytest.mark.parametrize(
    ("operation", "file", "text", "instead", "words"),
    [
        ("permute_pad", "payload_rows.cu", "BLOCK * THREADS + threadIdx.x;\n    if (token",
         "BLOCK * THREADS - threadIdx.x;\n    if (token", "nobody has written"),
        ("permute_pad", "payload_rows.cu", "lane < count ? list_of", "lane <= count ? list_of", "nobody has written"),
        ("permute_pad", "payload_rows.cu", "slot < LISTED", "slot <= LISTED", "race|nobody has written"),
        ("unpermute", "permute_sum.cu", "if (token < a.tokens) *refnum", "if (token + 1 < a.tokens) *refnum",
         "nobody has written"),
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
    called(operation, folder)  # of this size it takes another way
    for way in WAYS[operation].values():
        with way(), pytest.raises(EmulationError, match=words):
            called(operation, folder)


@pytest.mark.parametrize("operation", list(WAYS))
def test_what_the_model_refuses_is_answered_as_promised_on_every_way(operation: str) -> None:
    function = emulate.subject_operations(emulate.Emulator())[operation]
    questions = list(strays(operation))
    assert questions
    for way in (contextlib.nullcontext, *WAYS[operation].values()):
        for question in questions:
            with way():
                assert not differs(answer(function, question), question.golden), question.label
