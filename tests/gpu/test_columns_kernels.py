"""Column kernels on the device: tails, experts, gaps, poison, repeats, for what test_ops.py does not launch."""

from __future__ import annotations

from typing import Any

import kernel_samples as samples
import numpy as np
import pytest

import refnum
from refnum import gpu

USABLE, REASON = gpu.available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"NO KERNEL WAS RUN: {REASON}")
cupy = pytest.importorskip("cupy") if USABLE else None

NAMES = ("mxfp4_columns", "mxfp4_to_fp8_rows_columns", "mxfp4_to_fp8_columns")
SHAPES = ((2, 32), (34, 96), (130, 128), (128, 256), (258, 992), (66, 7168), (1024, 512))
SPLITS = (
    (0, 128, 0, 2, 126, 130, 0), (16, 48, 256, 80), (4, 12, 100), (2,) * 300, (32,) * 300, (640, 0, 512), (2,) * 2000,
)  # fmt: skip


def wide(rng: np.random.Generator, m: int, k: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Any bytes, NaN among them: every block takes the general form."""
    return samples.fp4_codes(rng, m, k), samples.scale_bytes(rng, m, k // 32)


def near(rng: np.random.Generator, m: int, k: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Bytes within twelve binades: every block goes by binary16."""
    return samples.fp4_codes(rng, m, k), (120 + rng.integers(0, 12, (m, k // 32))).astype(np.uint8)


def check(name: str, given: tuple[Any, ...], pad: int = 0, **options: Any) -> None:
    """Compare with the golden twin; outputs are poisoned, inputs lie `pad` bytes into wider rows."""
    wants = getattr(refnum, name)(*given, **options)
    views = []
    for x in given:
        store = cupy.full((x.shape[0], x.shape[1] + 2 * pad), 77, np.uint8)
        store[:, pad : pad + x.shape[1]] = cupy.asarray(x)
        views.append(store[:, pad : pad + x.shape[1]])
    for _ in range(2):  # the second call takes the plan
        outs = tuple(cupy.full(want.shape, 0xA5, np.uint8) for want in wants)
        for number, (want, got) in enumerate(zip(wants, getattr(gpu, name)(*views, **options, out=outs), strict=True)):
            wrong = np.argwhere(got.get() != want)
            assert not len(wrong), f"output {number}: {len(wrong)} of {want.size} bytes differ, first at {wrong[0]}"


@pytest.mark.parametrize("make", [wide, near])
@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_gaps(name: str, make: Any) -> None:
    for mode in ("max", "amax"):
        for m, k in SHAPES:
            check(name, make(np.random.default_rng(m + k), m, k), scale=mode)
        for pad in (1, 3, 4, 16):  # addresses and strides that no vector load can take, and some that can
            check(name, make(np.random.default_rng(pad), 132, 416), pad, scale=mode)


@pytest.mark.parametrize("splits", SPLITS, ids=lambda s: f"{len(s)}of{sum(s)}")
@pytest.mark.parametrize("name", NAMES)
def test_experts(name: str, splits: tuple[int, ...]) -> None:
    for k in (96, 416):
        for mode in ("max", "amax"):
            for make in (wide, near):
                check(name, make(np.random.default_rng(k), sum(splits), k), scale=mode, splits=list(splits))


def test_repeats_are_equal() -> None:
    given = [cupy.asarray(x) for x in near(np.random.default_rng(8), 640, 1280)]
    for name in NAMES:
        first = getattr(gpu, name)(*given, scale="amax")
        for _ in range(10):
            assert all(
                bool((a == b).all()) for a, b in zip(first, getattr(gpu, name)(*given, scale="amax"), strict=True)
            )
