"""The emulated machine's tensor core and directed sums beside the golden model (clause N19.2) and exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from test_emulated_machine import launch

import refnum
from refnum.gpu import emulate

STEP = """
KERNEL {
    __shared__ __align__(16) uint32_t s[128];
    const uint32_t t = threadIdx.x, row = t / 4, quarter = t % 4;
    for (int i = 0; i < 4; ++i) s[32 * i + t] = a.x[32 * i + t];
    __syncwarp();
    uint32_t w[4], d[4], c[4];
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(s) + 32 * (t % 16) + 16 * (t / 16);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
    for (int i = 0; i < 4; ++i) c[i] = a.x[192 + 8 * (row + i / 2 * 8) + 2 * quarter + i % 2];
    const uint32_t low = a.x[128 + 8 * row + quarter], high = a.x[128 + 8 * row + quarter + 4];
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(low), "r"(high), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
    for (int i = 0; i < 4; ++i) a.out[8 * (row + i / 2 * 8) + 2 * quarter + i % 2] = d[i];
}
"""
LOADS = """
KERNEL {
    __shared__ __align__(16) uint32_t s[128];
    const uint32_t t = threadIdx.x;
    for (int i = 0; i < 4; ++i) s[32 * i + t] = a.x[32 * i + t];
    __syncwarp();
    uint32_t w[4];
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(s) + 16 * t;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at) : "memory");
    for (int i = 0; i < 4; ++i) a.out[32 * i + t] = w[i];
}
"""
LEAST = """
KERNEL {
    uint32_t least;
    const uint32_t t = threadIdx.x;
    asm("min.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(a.x[t]), "r"(a.x[64 + t]));
    a.out[t] = least;
}
"""
MOST = """
KERNEL {
    uint32_t most;
    const uint32_t t = threadIdx.x;
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a.x[t]), "r"(a.x[64 + t]));
    a.out[t] = most, a.out[64 + t] = __vimin3_s16x2(a.x[t], a.x[64 + t], a.x[128 + t]);
}
"""
LANES = """
KERNEL {
    const uint32_t t = threadIdx.x, x = a.x[t], y = a.x[64 + t], z = a.x[128 + t];
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(a.out[t]) : "r"(x), "r"(y), "r"(z));
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(a.out[64 + t]) : "r"(x), "r"(y), "r"(z));
    asm("{.reg .b32 s; abs.bf16x2 s, %1; mul.rn.bf16x2 %0, s, %2;}" : "=r"(a.out[128 + t]) : "r"(x), "r"(y));
    asm("set.ge.u32.bf16x2 %0, %1, %2;" : "=r"(a.out[192 + t]) : "r"(x), "r"(y));
}
"""
SUMS = """
KERNEL {
    uint32_t down, up;
    const uint32_t t = threadIdx.x;
    asm("add.rm.f32 %0, %1, %2;" : "=r"(down) : "r"(a.x[t]), "r"(a.x[64 + t]));
    asm("add.rp.f32 %0, %1, %2;" : "=r"(up) : "r"(a.x[t]), "r"(a.x[64 + t]));
    a.out[t] = down, a.out[64 + t] = up;
}
"""

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)


@pytest.mark.parametrize("binades", [1, 14, 40, 127])
def test_a_step_is_that_of_the_model(binades: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(binades)
    for _ in range(20):
        fields = np.maximum(rng.integers(127 - binades, 127 + binades // 2, 24 * 16), 0)
        codes = (rng.integers(0, 2, 384) << 15 | fields << 7 | rng.integers(0, 128, 384)).astype(np.uint16)
        codes[rng.random(384) < 0.1] &= 0x8000
        codes[rng.random(384) < (0.01 if binades == 127 else 0)] |= 0x7F80
        c = rng.integers(0, 1 << 32, 128, dtype=np.uint32) if binades == 127 else np.zeros(128, np.uint32)
        x = np.concatenate([codes.view(np.uint32), c])
        got = launch(tmp_path, STEP, n=320, threads=32, x=x, out=np.zeros(320, np.uint32))[:128]
        left, right = codes[:256].reshape(16, 16), codes[256:].reshape(8, 16)
        given = c.view(np.float32).reshape(16, 8)
        want = refnum.tensor_core_step(left, right, given, "mma_bf16", "BF16", "BF16")
        assert np.array_equal(want.view(np.uint32).ravel(), got)


def test_matrices_are_transposed_as_they_are_loaded(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).permutation(256).astype(np.uint16)
    got = launch(tmp_path, LOADS, n=128, threads=32, x=numbers.view(np.uint32), out=np.zeros(128, np.uint32))
    want = numbers.reshape(4, 8, 8).transpose(0, 2, 1)
    assert np.array_equal(want.ravel(), got.view(np.uint16))


def test_smaller_magnitudes_of_bfloat16(tmp_path: Path) -> None:
    """Their sign is the product of both signs (PTX ISA, min); NaN is left out."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 16, 256).astype(np.uint16)
    x[:4], x[128:132] = [0x8000, 0x0000, 0x7F80, 0x7FC1], [0x0001, 0x8000, 0xFF7F, 0x8001]
    got = launch(tmp_path, LEAST, n=64, x=x.view(np.uint32), out=np.zeros(128, np.uint32)).view(np.uint16)[:128]
    a, b = x[:128], x[128:]
    wanted = [min(int(p) & 0x7FFF, int(q) & 0x7FFF) | (int(p) ^ int(q)) & 0x8000 for p, q in zip(a, b, strict=True)]
    assert wanted == got.tolist()


def test_larger_magnitudes_of_bfloat16(tmp_path: Path) -> None:
    """Their sign is the product of both signs (PTX ISA, max); NaN if one is. And the least of three signed halves."""
    x = np.random.default_rng(0).integers(0, 1 << 16, 384).astype(np.uint16)
    x[:5], x[128:133] = [0x8000, 0x0000, 0x7F80, 0x7FC1, 1], [0x0001, 0x8000, 0xFF7F, 0x8001, 0xFFFF]
    got = launch(tmp_path, MOST, n=192, threads=64, x=x.view(np.uint32), out=np.zeros(128, np.uint32)).view(np.uint16)
    pairs = [(p & 0x7FFF, q & 0x7FFF, (p ^ q) & 0x8000) for p, q in x[:256].reshape(2, 128).T.tolist()]
    assert [0x7FFF if max(p, q) > 0x7F80 else max(p, q) | sign for p, q, sign in pairs] == got[:128].tolist()
    assert np.array_equal(x.view(np.int16).reshape(3, 128).min(0), got[128:].view(np.int16))


def test_lanes_of_halves(tmp_path: Path) -> None:
    """Products and sums are rounded once, comparisons with NaN are false."""
    rng = np.random.default_rng(0)
    signs, digits = rng.integers(0, 2, (3, 128)) << 15, rng.integers(0, 1 << 7, (3, 128))
    for dtype, at, field, part in ((np.float16, 10, 15, 0), (ml_dtypes.bfloat16, 7, 127, 1)):
        x = (signs | (field + rng.integers(-3, 4, (3, 128))) << at | digits).astype(np.uint16)
        got = launch(tmp_path, LANES, n=64, x=x.view(np.uint32), out=np.zeros(256, np.uint32)).view(np.uint16)
        a, b, c = x.view(dtype).astype(np.float64)
        wanted = [
            (a * b + c).astype(dtype),
            (np.abs(a) * b).astype(dtype),
            np.where(a >= b, 0xFFFF, 0).astype(np.uint16),
        ]
        assert np.array_equal(wanted[0].view(np.uint16), got.reshape(4, 128)[part])
        if part:
            assert np.array_equal(wanted[1].view(np.uint16), got.reshape(4, 128)[2])
            assert np.array_equal(wanted[2], got.reshape(4, 128)[3])
    x = np.array([[0x7FC0, 0x3F80, 0x8000, 0x7F80], [0x3F80, 0x7FC0, 0, 0x7F80], [0] * 4], np.uint16).repeat(32, 1)
    got = launch(tmp_path, LANES, n=64, x=x.view(np.uint32), out=np.zeros(256, np.uint32)).view(np.uint16)
    assert np.array_equal(got.reshape(4, 128)[3], np.repeat([0, 0, 0xFFFF, 0xFFFF], 32))


def test_directed_sums(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(128) * np.exp2(rng.integers(-20, 20, 128))).astype(np.float32)
    x[:4], x[64:68] = [1, -1, 0, 3], [-1, 1, 0, 2.0**-30]
    got = launch(tmp_path, SUMS, n=128, x=x.view(np.uint32), out=np.zeros(128, np.uint32)).view(np.float32)
    for a, b, down, up in zip(x[:64], x[64:], got[:64], got[64:], strict=True):
        exact = Fraction(float(a)) + Fraction(float(b))
        assert Fraction(float(down)) <= exact <= Fraction(float(up))
        assert down == up if Fraction(float(np.float32(a + b))) == exact else np.nextafter(down, np.float32(9e9)) == up
    assert math.copysign(1, got[0]) == -1 and math.copysign(1, got[64]) == 1
