"""Inputs that reach every path of a row-wise kernel: random, spread, tied, tiny, huge, empty and special blocks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
WORD = {4: np.uint32, 2: np.uint16}
HALVES = np.array([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 7.5], np.float64)


def floats(rng: np.random.Generator, m: int, k: int, dtype: Any) -> Array:
    """Return [m, k] of a float dtype; each block of 32 is of one kind, drawn at random."""
    dtype = np.dtype(dtype)
    word = WORD[dtype.itemsize]
    blocks = m * k // 32
    normal = rng.standard_normal((blocks, 32))
    spread = normal * np.exp2(rng.integers(-20, 20, (blocks, 32)))
    ties = rng.choice(HALVES, (blocks, 32)) * rng.choice([-1.0, 1.0], (blocks, 32))
    half = dtype == np.float16
    low, high = (-24, 16) if half else (-149, 128)
    scale = np.exp2(rng.integers(low, high, (blocks, 1)).astype(np.float64))
    kind = rng.choice(10, (blocks, 1), p=[0.16, 0.16, 0.16, 0.14, 0.14, 0.02, 0.12, 0.02, 0.02, 0.06])
    values = np.where(kind < 3, normal, np.where(kind < 5, spread, ties * scale))
    top = 65504.0 if half else 3.38e38
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        x = np.clip(values, -top, top).astype(np.float32).astype(dtype)
    bits = x.view(word)
    noise = rng.integers(0, 1 << (8 * dtype.itemsize), (blocks, 32), dtype=np.uint64).astype(word)
    neighbours = bits + rng.integers(-1, 2, (blocks, 32)).astype(word)  # one place around every tie
    special = word({4: 0x7F800000, 2: 0x7C00 if half else 0x7F80}[dtype.itemsize])
    sign = word(1 << (8 * dtype.itemsize - 1))
    hit = np.where(rng.integers(0, 32, (blocks, 32)) == 0, special, bits & ~sign) | (bits & sign)
    nan = np.where(rng.integers(0, 32, (blocks, 32)) == 0, special + word(1), bits & ~sign) | (bits & sign)
    bits = np.select([kind == 5, kind == 6, kind == 7, kind == 8], [noise, neighbours, hit, nan], bits)
    bits = np.where((kind == 9) & (rng.integers(0, 2, (blocks, 1)) == 0), bits & sign, bits)  # signed zeros
    return np.ascontiguousarray(bits.astype(word).reshape(m, k)).view(dtype)


def scale_bytes(rng: np.random.Generator, m: int, n: int) -> Array:
    """Return u8 [m, n] E8M0 bytes: runs of near bytes, all bytes, both ends, some NaN."""
    centre = rng.integers(0, 256, (m, 1)) + rng.integers(-9, 10, (m, n)) * rng.integers(0, 3, (m, n))
    kind = rng.integers(0, 12, (m, n))
    edges = rng.choice([0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 245, 246, 247, 252, 253, 254], (m, n))
    drawn = np.select(
        [kind < 8, kind == 8, kind == 9],
        [np.clip(centre, 0, 254), edges, rng.integers(0, 256, (m, n))],
        np.clip(centre, 0, 254),
    )
    return np.where(rng.integers(0, 40, (m, n)) == 0, 255, drawn).astype(np.uint8)


def fp8_codes(rng: np.random.Generator, m: int, k: int) -> Array:
    """Return u8 [m, k] E4M3 codes; blocks of 32 are random, small, zero, or hold a NaN now and then."""
    kind = rng.integers(0, 8, (m, k // 32)).repeat(32, axis=1)
    code = rng.integers(0, 256, (m, k))
    code = np.where(code & 0x7F == 0x7F, code ^ 1, code)
    code = np.select([kind == 0, kind == 1, kind == 2], [code & 0x8F, code & 0x80, code & 0xBF], code)
    return np.where((kind == 3) & (rng.integers(0, 64, (m, k)) == 0), code | 0x7F, code).astype(np.uint8)


def fp4_codes(rng: np.random.Generator, m: int, k: int) -> Array:
    """Return packed u8 [m, k/2] E2M1 codes; some blocks are empty (signed zeros), some hold one small number."""
    kind = rng.integers(0, 6, (m, k // 32)).repeat(16, axis=1)
    code = rng.integers(0, 256, (m, k // 2))
    return np.select([kind == 0, kind == 1, kind == 2], [code & 0x88, code & 0x99, code & 0xBB], code).astype(np.uint8)
