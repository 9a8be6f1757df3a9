"""Whole kernels, mutated: judged on the emulated machine with a check's probes; code compared, not its notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.mutants import whole
from conformance.mutants.operators import Mutant
from conformance.mutants.verdict import EQUIVALENT, KILLED, REFUSED

room = pytest.importorskip("gpu.mutable_whole")
emulate = pytest.importorskip("gpu.emulate")
BARRIER = "largest[threadIdx.x / 32] = part;\n    __syncthreads();\n"


def change(shop: whole.Shop, file: str, old: str, new: str) -> Mutant:
    text = shop.text(file)
    assert text.count(old) == 1
    return Mutant(file, 1, "test", 1, text.index(old), text.index(old) + len(old), old, new)


@pytest.mark.skipif(not emulate.available()[0], reason=emulate.available()[1])
def test_a_barrier_that_is_missing_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = whole.Shop.open(room.EmulatedWorkshop())
    verdict = whole.judge(shop, change(shop, "fp8_columns.cu", BARRIER, BARRIER.partition("\n")[0] + "\n"))
    assert verdict.status == KILLED and verdict.operation == "fp8_columns" and "EmulationError" in verdict.how


def nvrtc() -> bool:
    from gpu.compile import nvrtc as load
    from refnum.errors import UnsupportedError

    try:
        return bool(load())
    except UnsupportedError:
        return False


@pytest.mark.skipif(not nvrtc(), reason="NVRTC is not installed")
def test_code_is_compared_and_refused_sources_are_told() -> None:
    shop = whole.Shop.open(room.DeviceWorkshop())
    (here,) = [line for line in shop.text("fp8_to_mxfp4.cu").splitlines() if "tile[u] = 0;" in line]
    same = change(shop, "fp8_to_mxfp4.cu", here, here.replace("= 0", "= (0)"))
    assert whole.judge(shop, same).status == EQUIVALENT
    assert whole.judge(shop, change(shop, "fp8_to_mxfp4.cu", here, here.replace("= 0", "= no"))).status == REFUSED
    flag = next(m for m in shop.mutants() if m.operator == "fma on" and m.file == "fp8_to_mxfp4.cu")
    assert flag.line == 0 and whole.judge(shop, flag).status == EQUIVALENT


def test_units_are_found_by_what_they_include() -> None:
    workshop = room.DeviceWorkshop()
    names = {part.name.split()[0] for part in workshop.parts("philox.cuh")}
    assert names == {"quantize_mxfp4_stochastic"}
    everything = {part.name.split()[0] for part in workshop.parts("words.cuh")}
    assert everything == {Path(file).stem for file in workshop.files if file.endswith(".cu")}
    assert {part.operations for part in workshop.parts("layouts.cuh")} >= {("scale layouts",)}
