"""Quotients by a rounded reciprocal and one correction, on the device, against its division: every significand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refnum import gpu
from refnum.gpu.device import compile as build

USABLE, REASON = gpu.available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")
cupy = pytest.importorskip("cupy") if USABLE else None

PROOF = r"""
#include "division.cuh"
using namespace refnum;
extern "C" __global__ void proof(uint32_t step, unsigned long long* wrong) {
    const uint32_t y = FLOAT_ONE | (blockIdx.x * blockDim.x + threadIdx.x), inverse = divide_floats(FLOAT_ONE, y);
    unsigned long long found = 0;
    for (uint32_t x = FLOAT_ONE; x < FLOAT_ONE + 0x800000; x += step) {
        found += divide_by_inverse(x, y, inverse) != divide_floats(x, y);
    }
    atomicAdd(wrong, found);
}
"""


@pytest.mark.parametrize("bits", [10, pytest.param(23, marks=pytest.mark.slow)])
def test_every_divisor_of_every_significand(tmp_path: Path, bits: int) -> None:
    """Of 16-bit floats and, in a minute, of all float32: what lies in other binades differs by powers of two."""
    headers = build.read_source("quantize_nvfp4").headers
    image = build.nvrtc().compile(build.Source("proof.cu", PROOF.encode(), headers), build.options(), "cubin")
    (tmp_path / "proof.cubin").write_bytes(image)
    wrong = cupy.zeros(1, np.uint64)
    function = cupy.RawModule(path=str(tmp_path / "proof.cubin")).get_function("proof")
    function(((1 << 23) // 256,), (256,), (np.uint32(1 << (23 - bits)), wrong))
    assert int(wrong[0]) == 0
