"""Kernels in JAX, Numba and torch.compile come in by the same door: the guides' examples, and wrong ones."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

import refnum
from refnum.conformance.cases.case import Case
from refnum.conformance.cases.corners import corner_cases
from refnum.conformance.cases.operation import select
from refnum.conformance.commands.check.plan import Plan
from refnum.conformance.commands.check.run import run
from refnum.conformance.reports.report import Report, header
from refnum.conformance.subjects.arrays import IMMUTABLE, share_memory, to_library, to_numpy
from refnum.conformance.subjects.choose import choose
from refnum.conformance.subjects.loading.discover import from_file
from refnum.conformance.subjects.subject import from_dict

EXAMPLES = Path(__file__).parents[2] / "docs" / "guides" / "examples"


def few(operation, profile, params):
    """The corner cases of five shapes: each shape is compiled anew."""
    shapes = []
    for case in corner_cases(operation, profile, params):
        shape = case.inputs["x"].shape
        if case.elements <= 1 << 14 and (shape in shapes or len(shapes) < 5):
            shapes.append(shape)
            yield case


def judged(subjects, **plan):
    done = run(
        Plan(subjects, select(["quantize_mxfp4"]), None, "smoke", cases=few, save=False, **plan),
        Report(header("smoke", 0, [], [], [])),
    )
    return done.results


def example(name):
    (subject,) = from_file(str(EXAMPLES / f"mxfp4_{name}.py"))
    return subject


@pytest.mark.parametrize("name", ["jax", "numba"])
def test_the_example_passes(name):
    pytest.importorskip(name)
    (row,) = judged([example(name)])
    assert row["outcome"] == "pass" and row["compared"] > 1000 and row["corners"] >= 5, row["words"]
    placed = "new data in place" in row["probes"]
    assert placed == (name not in IMMUTABLE)


def test_the_example_in_triton_passes_in_its_interpreter(monkeypatch):
    """As `refnum check` does it: in a process of its own, which reads TRITON_INTERPRET when it starts."""
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: the Triton example of the guides is NOT judged here")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    chosen = choose([str(EXAMPLES / "mxfp4_triton.py")], isolate=True)
    assert [subject.name for subject in chosen.usable] == ["mxfp4_triton"], (chosen.unusable, chosen.broken)
    (row,) = judged(chosen.usable)
    assert row["outcome"] == "pass" and row["compared"] > 1000 and row["corners"] >= 5, row["words"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_the_example_under_torch_compile_passes():
    pytest.importorskip("torch")
    (row,) = judged([example("compile")])
    assert row["outcome"] == "pass" and row["corners"] >= 5, row["words"]


def test_a_wrong_kernel_in_jax_is_a_mismatch():
    pytest.importorskip("jax")
    kernel = example("jax").operations["quantize_mxfp4"]

    def wrong(x):
        packed, scales = kernel(x)
        return packed.at[..., :1].set(packed[..., :1] ^ 1), scales

    entry = {"name": "wrong", "operations": {"quantize_mxfp4": wrong}, "arrays": "jax", "profiles": ["HOPPER"]}
    (row,) = judged([from_dict(entry, "test")], shown=0)
    assert row["outcome"] == "mismatch" and row["failing"] and not row["faults"]


def test_a_numba_function_itself_is_a_subject(little_structure):
    """A dispatcher is no Python function: its arguments are still seen by name."""
    numba = pytest.importorskip("numba")
    types = numba.types
    arguments = [types.Array(types.uint8, n, "A" if n else "C", readonly=True) for n in range(4)]

    @numba.njit([types.Array(types.float32, one.ndim, "C")(one) for one in arguments])
    def decode_e2m1(codes):
        values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
        result = np.empty(codes.shape, np.float32)
        for place, code in np.ndenumerate(codes):
            if code > 15:
                raise ValueError("a code has more than four bits")
            result[place] = values[code]
        return result

    subject = from_dict({"name": "n", "operations": {"decode_e2m1": decode_e2m1}}, "test")
    assert "takes no 'dtype'" in subject.refuses("decode_e2m1", "HOPPER", {"dtype": "bfloat16"})
    plan = Plan([subject], select(["decode_e2m1"]), None, "standard", 0, 3, save=False)
    rows = {row["params"]["dtype"]: row for row in run(plan, Report(header("standard", 0, [], [], []))).results}
    assert rows["float32"]["outcome"] == "pass" and rows["float32"]["domains"][0]["verdict"] == "proved"
    assert rows["bfloat16"]["outcome"] == "unsupported"


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "bfloat16", "float16"])
def test_arrays_of_jax_there_and_back(dtype):
    jax = pytest.importorskip("jax")
    import ml_dtypes

    data = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, dtype, dtype)).reshape(2, -1)
    array = to_library(data, "jax")
    assert isinstance(array, jax.Array) and array.dtype == data.dtype
    data_bits = data.view(np.uint8).copy()
    data.view(np.uint8)[:] = 0  # the array is a copy
    assert np.array_equal(to_numpy(array).view(np.uint8), data_bits)
    assert not share_memory(array, array[:1])


def test_a_scale_layout_in_jax():
    pytest.importorskip("jax")

    def decode(packed, scales, dtype="float32", *, layout_in="bytes"):
        arrays = (np.asarray(packed), np.asarray(scales))
        return to_library(refnum.dequantize_mxfp4(*arrays, dtype, layout_in=layout_in), "jax")

    entry = {"name": "d", "operations": {"dequantize_mxfp4": decode}, "arrays": "jax"}

    def cases(operation, profile, params):
        packed = np.arange(256, dtype=np.uint8).reshape(4, 64)
        yield Case(
            operation, profile, params, {"packed": packed, "scales": np.arange(16, dtype=np.uint8).reshape(4, 4)}
        )

    plan = Plan([from_dict(entry, "t")], select(["dequantize_mxfp4"]), special=True, cases=cases, save=False)
    rows = run(plan, Report(header("standard", 0, [], [], []))).results
    assert len(rows) == 10 and {row["outcome"] for row in rows} == {"pass"}
