"""What a report and a certificate say of the kernels: the digests of all that an operation's launchers compile."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refnum.conformance.cases.draw.words import Draw
from refnum.conformance.cases.layouts import stored_inputs
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cases.recipes import Recipe, expand, sampled_recipes
from refnum.conformance.cases.recipes.distributions import distributions_for
from refnum.conformance.subjects.layout_variants import special_params
from refnum.conformance.subjects.subject import Subject, arguments_for
from refnum.gpu import emulate, silu
from refnum.gpu.device import compile as build
from refnum.gpu.interface.nvfp4 import LAYOUTS, VARIANTS
from refnum.gpu.operations import LAUNCHED
from refnum.gpu.ops import compiled as units
from refnum.gpu.subjects import FURTHER, subjects, trace_emulated, trace_gpu


class Recorder(emulate.Emulator):
    """A device that launches nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[units.Unit] = set()
        self.constants: set[str] = set()

    def function(self, kernel: str, name: str, device: int, defines: tuple[str, ...] = ()) -> int:
        self.asked.add(units.Unit(kernel, defines))
        return 0

    def constant(self, name: str, x: Any, device: int) -> int:
        self.constants.add(hashlib.sha256(x.astype("<u4").tobytes()).hexdigest())
        return super().constant(name, x, device)

    def fire(self, frame: Any, device: int) -> None:
        pass


def any_words(draw: Draw, *shape: int) -> np.ndarray[Any, Any]:
    """Words in place of Philox's, which take ten times as long: no launch reads them."""
    x = np.arange(int(np.prod(shape)), dtype=np.uint32) * np.uint32(0x9E3779B1)
    x += np.uint32((draw.seed + draw.stream + 77 * draw._take(1).step) & 0xFFFFFFFF)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x2C1B3C6D)
    return (x ^ x >> np.uint32(12)).reshape(shape)


def with_long_rows(recipe: Recipe) -> Recipe:
    """The same call with rows of 4096 zeros: millions of elements, whose values no launch reads either."""
    simplest = distributions_for(recipe.operation)["zero"].simple
    return replace(recipe, shape=(recipe.shape[0], 4096), distribution="zero", parameters=simplest)


@pytest.mark.parametrize("operation", LAUNCHED)
def test_what_the_launchers_compile_is_traced(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draw, "words", any_words)
    recorder, entry = Recorder(), OPERATIONS[operation]
    subject = Subject("recorder", emulate.subject_operations(recorder), "host", ("HOPPER",))
    for profile in ("HOPPER", *FURTHER.get(operation, ())):
        special = list(special_params("exhaustive", entry, profile == "STOCHASTIC"))
        for params in (*entry.variants(), *special):
            drawn = sampled_recipes(operation, profile, params, seed=3, examples=2 if params in special else 12)
            wide = [with_long_rows(one) for one in drawn[-4:]]  # rows of samples are short
            for case in map(expand, (*drawn, *wide)):
                subject.operations[operation](**arguments_for(subject, case, stored_inputs(case)))
    if operation in ("mxfp4_to_fp8_columns", "mxfp4_to_fp8_rows_columns", "fp8_columns"):
        codes, scales = np.zeros((64, 32 if operation == "fp8_columns" else 16), np.uint8), np.zeros((64, 1), np.uint8)
        for mode in ("rne", "te") if operation == "fp8_columns" else ("max", "amax"):
            subject.operations[operation](codes, scales, [32, 32], mode)  # samples seldom have multiples of 32 alone
    if operation == "quantize_tetrajet":
        for axis in (1, 0):
            subject.operations[operation](np.zeros((64, 32), np.float32), axis, philox=(1, 2, 3))  # samples have none
    if operation == "hadamard_quantize_nvfp4":  # samples have one variant, and no random bytes
        x, options = np.zeros((32, 32), np.float32), [{"variant": name} for name in VARIANTS]
        for option, layout, axis in itertools.product((*options, {"philox": (1, 2, 3)}), LAYOUTS, (-1, 0)):
            subject.operations[operation](x, axis=axis, **option, layout_out=layout)
    assert recorder.asked == set(units.units(operation))
    assert (
        recorder.constants == {units.CONSTANTS[operation]} if operation in units.CONSTANTS else not recorder.constants
    )


def test_the_tables_name_what_exists() -> None:
    kernels = build.kernel_names()
    assert set(units.OPERATIONS) | set(units.LAID) <= set(kernels)
    assert {name for kernel in kernels for name in units.operations(kernel)} == set(LAUNCHED)
    assert set(units.CONSTANTS.values()) == {silu.SHA256}
    assert units.units("nothing") == [] and trace_gpu("nothing") == {}


@pytest.mark.parametrize("operation", LAUNCHED)
def test_every_unit_is_in_the_digest(operation: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With images that are made up: to compile all takes more than a minute."""
    try:
        build.nvrtc()
    except Exception as error:  # whatever the loader says: there is no compiler here
        pytest.skip(str(error))
    changed: list[units.Unit] = []

    def image(name: str, arch: str, defines: tuple[str, ...]) -> Path:
        path = tmp_path / "image"
        path.write_text(f"{name} {defines} {(name, defines) in changed}")
        return path

    source = build.read_source("quantize_mxfp4")
    monkeypatch.setattr(build, "read_source", lambda name: source)  # which reads all headers
    monkeypatch.setattr(build, "compiled", image)
    trace, compiled = trace_gpu(operation), units.units(operation)
    assert trace["kernel"].split() == sorted({unit.kernel for unit in compiled})
    assert trace["units"] == str(len(compiled))
    assert len(trace["source"]) == len(trace["machine_code"]) == 64
    found = {trace["machine_code"]}
    for unit in compiled:
        changed[:] = [unit]
        found.add(trace_gpu(operation)["machine_code"])
    if operation in units.CONSTANTS:
        changed.clear()
        monkeypatch.setitem(units.CONSTANTS, operation, "00" * 32)
        found.add(trace_gpu(operation)["machine_code"])
    assert len(found) == 1 + len(compiled) + (operation in units.CONSTANTS)


def test_the_digest_is_of_machine_code() -> None:
    try:
        build.nvrtc()
    except Exception as error:
        pytest.skip(str(error))
    (image,) = [build.compiled(*units.units("encode_e2m1")[0][:1], defines=units.units("encode_e2m1")[0].defines)]
    wanted = hashlib.sha256(hashlib.sha256(image.read_bytes()).digest()).hexdigest()
    assert trace_gpu("encode_e2m1")["machine_code"] == wanted


def test_a_proof_of_the_emulated_machine_is_bound_to_the_kernels_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    before, other = trace_emulated("mxfp4_columns"), build.read_source("fp8_columns")
    assert len(before["source"]) == len(before["launchers"]) == 64
    assert before == trace_emulated("mxfp4_columns") != trace_emulated("fp8_columns")
    monkeypatch.setattr(build, "read_source", lambda name: other)  # as if its text were another
    assert trace_emulated("mxfp4_columns")["source"] != before["source"]
    assert trace_emulated("decode_e2m1") == {}
    assert next(entry for entry in subjects() if entry["name"] == "emulated")["trace"] is trace_emulated
