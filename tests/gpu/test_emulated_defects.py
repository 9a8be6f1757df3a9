"""Defects planted into copies of our own kernels: the emulator, or the golden model's bits, must see every one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest

import refnum
from refnum.gpu import emulate
from refnum.gpu.device.compile import KERNELS
from refnum.gpu.emulate import EmulationError
from refnum.gpu.emulate.arrays import POISON

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)


def fp8(m: int, k: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(m + k)
    return samples.fp8_codes(rng, m, k), samples.scale_bytes(rng, m, -(-k // 128))


def floats(m: int, k: int) -> tuple[np.ndarray, ...]:
    """One element of every tile stands out, and not among the tile's first eight."""
    x = np.random.default_rng(m + k).standard_normal((m, k)).astype(np.float32)
    x[:, 9::128] = 1000.0
    return (x,)


def at_odd_places(inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Views whose rows start three bytes behind an aligned address."""
    stores = [np.zeros((x.shape[0], x.shape[1] + 5), x.dtype) for x in inputs]
    for store, x in zip(stores, inputs, strict=True):
        store[:, 3 : 3 + x.shape[1]] = x
    return tuple(store[:, 3 : 3 + x.shape[1]] for store, x in zip(stores, inputs, strict=True))


# what is planted: (file, text, text instead, launcher, inputs, words of the error, or None for wrong bits)
DEFECTS: dict[str, tuple[str, str, str, str, Callable[[], Any], str | None]] = {
    "a tail that is not guarded": (
        "memory.cuh", "chunk.exists = step < here;", "chunk.exists = true;",
        "fp8_to_mxfp4", lambda: fp8(3, 128), "out of bounds",
    ),
    "a tail that is too short": (
        "memory.cuh", "chunk.exists = step < here;", "chunk.exists = step + 1 < here;",
        "fp8_to_mxfp4", lambda: fp8(3, 128), None,
    ),
    "vector loads whatever the address": (
        "memory.cuh", "    if (aligned) {\n#pragma unroll", "    if (true) {\n#pragma unroll",
        "fp8_to_mxfp4", lambda: at_odd_places(fp8(5, 160)), "misaligned load of 16 bytes",
    ),
    "a stride that is forgotten": (
        "memory.cuh", "row * a.x_stride + (offset_t)column * bytes", "row * a.valid * bytes + (offset_t)column * bytes",
        "fp8_to_mxfp4", lambda: at_odd_places(fp8(5, 160)), "belongs to no element",
    ),
    "a leader in every lane": (
        "memory.cuh", "return (flat ? threadIdx.x : column) % lanes == 0;", "return true;",
        "mxfp4_to_fp8", lambda: refnum.fp8_to_mxfp4(*fp8(4, 256)), "race: out_scales",
    ),
    "a barrier left out before the maximum": (
        "quantize_fp8_tiles.cu", "    __syncthreads();\n", "",
        "quantize_fp8_tiles", lambda: (np.ones((130, 160), np.float32), (128, 128)), "race|has written",
    ),
    "a barrier that half of the threads reach": (
        "quantize_fp8_tiles.cu", "    __syncthreads();\n", "    if (threadIdx.x < 128) __syncthreads();\n",
        "quantize_fp8_tiles", lambda: (np.ones((130, 160), np.float32), (128, 128)), "barrier that not all|has written",
    ),
    "a warp's maximum that is not written": (
        "quantize_fp8_tiles.cu", "if (threadIdx.x % 32 == 0) largest", "if (threadIdx.x % 64 == 0) largest",
        "quantize_fp8_tiles", lambda: (np.ones((130, 160), np.float32), (128, 128)), "no thread of the CTA has written",
    ),
    "a reduction one step short": (
        "memory.cuh", "for (int d = 1; d < lanes; d *= 2) both", "for (int d = 2; d < lanes; d *= 2) both",
        "quantize_fp8_tiles", lambda: floats(4, 256), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", list(DEFECTS))
def test_planted(defect: str, tmp_path: Path) -> None:
    file, text, instead, launcher, make, words = DEFECTS[defect]
    given = make()
    whole = emulate.subject_operations(emulate.Emulator())[launcher]
    wanted = getattr(refnum, launcher)(*given)
    assert all(np.array_equal(a, b) for a, b in zip(whole(*given), wanted, strict=True))
    folder = tmp_path / "kernels"
    shutil.copytree(KERNELS, folder)
    source = (folder / file).read_text()
    assert source.count(text) == 1, f"{file} no longer has {text!r} once: plant this defect elsewhere"
    (folder / file).write_text(source.replace(text, instead))
    broken = emulate.subject_operations(emulate.Emulator(folder))[launcher]
    if words is not None:
        with pytest.raises(EmulationError, match=words):
            broken(*given)
        return
    assert not all(np.array_equal(a, b) for a, b in zip(broken(*given), wanted, strict=True))


def test_a_grid_that_is_too_small_leaves_poison() -> None:
    class Short(emulate.Emulator):
        def fire(self, frame: Any, device: int) -> None:
            frame.config.across -= 1
            super().fire(frame, device)

    given = fp8(64, 1024)
    packed, scales = emulate.subject_operations(Short())["fp8_to_mxfp4"](*given)
    wanted = refnum.fp8_to_mxfp4(*given)
    assert not np.array_equal(packed, wanted[0])
    assert (packed.reshape(-1)[-100:] == POISON).all() and scales[-1, -1] == POISON


def test_one_emulator_does_not_run_the_plans_of_another(tmp_path: Path) -> None:
    shutil.copytree(KERNELS, tmp_path / "kernels")
    path = tmp_path / "kernels" / "memory.cuh"
    path.write_text(path.read_text().replace("for (int d = 1; d < lanes", "for (int d = 2; d < lanes"))
    given = floats(4, 256)
    wanted = refnum.quantize_fp8_tiles(*given)
    right = emulate.subject_operations(emulate.Emulator())["quantize_fp8_tiles"]
    wrong = emulate.subject_operations(emulate.Emulator(tmp_path / "kernels"))["quantize_fp8_tiles"]
    for _ in range(3):
        assert np.array_equal(right(*given)[0], wanted[0])
        assert not np.array_equal(wrong(*given)[0], wanted[0])


def test_closing_gives_the_libraries_back_and_they_load_again() -> None:
    def mapped() -> int:
        return sum("emulated-fp8_to_mxfp4_flat" in line for line in Path("/proc/self/maps").read_text().splitlines())

    before = mapped()
    emulator = emulate.Emulator()
    given = fp8(8, 128)
    run = emulate.subject_operations(emulator)["fp8_to_mxfp4"]
    for _ in range(2):
        first, again = run(*given), run(*given)
        assert np.array_equal(first[0], refnum.fp8_to_mxfp4(*given)[0]) and np.array_equal(first[0], again[0])
        emulator.close()
    assert mapped() == before
