"""TetraJet and Q-EMA: host twin and emulated launchers against the model, where a kernel chooses another path."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError, UnsupportedError
from refnum.gpu import emulate, host

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = (np.dtype(np.float32), BF16, np.dtype(np.float16))
RULES = (("truncation_free", "bfloat16"), ("truncation_free", "float32"), ("exact", "bfloat16"),
         ("microscaling", "bfloat16"))  # fmt: skip
SHAPES = ((1, 32), (33, 96), (64, 96), (5, 1056))


@pytest.fixture(scope="module", params=["host", "emulated"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return (name, *arguments, **options) -> results of a back end."""
    usable, reason = (host if request.param == "host" else emulate).available()
    if not usable:
        pytest.skip(reason)
    found = emulate.subject_operations(emulate.Emulator()) if request.param == "emulated" else {}
    return lambda name, *given, **options: found.get(name, getattr(host, name))(*given, **options)


def floats(rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
    """Normal numbers of many sizes, block by block; few special ones."""
    size = np.exp2(rng.integers(-30, 14, (-(-shape[0] // 32), shape[1] // 32))).repeat(32, 0).repeat(32, 1)
    x = (rng.standard_normal(shape) * size[: shape[0]]).astype(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-44], np.float32)
    x = np.where(rng.random(shape) < 0.004, rng.choice(special, shape), x)
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def equal(want: Any, got: Any) -> None:
    """Compare results by shape, dtype and bytes."""
    for w, g in zip(want, got, strict=True):
        assert (w.shape, w.dtype) == (g.shape, g.dtype)
        assert np.array_equal(w, g), (np.argwhere(w != g)[:4].tolist(), w[w != g][:4], g[w != g][:4])


@pytest.mark.parametrize("axis", [1, 0])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_to_nearest(call: Callable[..., Any], dtype: np.dtype[Any], axis: int) -> None:
    rng = np.random.default_rng(1)
    for shape, (rule, ratio), ties in itertools.product(SHAPES, RULES, ("even", "away")):
        given = floats(rng, shape, dtype), axis, rule, ties, ratio
        equal(refnum.quantize_tetrajet(*given), call("quantize_tetrajet", *given))


@pytest.mark.parametrize("axis", [1, 0])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_by_random_bytes(call: Callable[..., Any], dtype: np.dtype[Any], axis: int) -> None:
    """Bytes that are given, and those of keys whose counter carries."""
    rng = np.random.default_rng(2)
    for number, shape in enumerate(SHAPES):
        rule, ratio = RULES[number]
        given = floats(rng, shape, dtype), axis, rule, "even", ratio
        rbits = rng.integers(0, 256, shape, dtype=np.uint8)
        want = refnum.quantize_tetrajet(*given, rbits=rbits)
        equal(want, call("quantize_tetrajet", *given, rbits=rbits))
        for key in ((7 << 40 | 5, 3, 9), (1, 2, 3, (1 << 36) - 32)):
            want = refnum.quantize_tetrajet(*given, philox=key)
            equal(want, call("quantize_tetrajet", *given, philox=key))


@pytest.mark.parametrize("axis", [1, 0])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_averages(call: Callable[..., Any], dtype: np.dtype[Any], axis: int) -> None:
    """Averages near their weights, far from them, of the other sign; in the dtype of the weights and in float32."""
    rng = np.random.default_rng(3)
    for number, shape in enumerate(SHAPES):
        w = floats(rng, shape, dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            near = w.astype(np.float32) * (1 + rng.standard_normal(shape) * 0.3).astype(np.float32)
            far = np.where(rng.random(shape) < 0.1, floats(rng, shape, np.dtype(np.float32)), near)
            for ema in (far.astype(np.float32), far.astype(dtype), w):
                given = w, ema, axis, *RULES[number]
                equal(refnum.q_ema(*given), call("q_ema", *given))


def test_the_bytes_of_maxima_about_every_step_of_every_rule() -> None:
    """Float32 maxima beside the steps of all exponents, and all near those whose ratio is subnormal."""
    if not host.available()[0]:
        pytest.skip(host.available()[1])
    steps = np.array([0x40800000, 0x40C00000, 0x40C0C000, 0x41000000], np.int64)[:, None] - (np.arange(254) << 23)
    steps = steps[(steps > 0) & (steps < 0x7F800000)]
    steps = np.concatenate([steps, [1, 0x00800000, 0x01400001, 0x01418001, 0x01420000, 0x7F7FFFFF]])
    near = np.clip(steps[:, None] + np.arange(-40, 41), 1, 0x7F7FFFFF).astype(np.uint32).reshape(-1)
    around = np.arange(0x01300000, 0x01500000, 7, dtype=np.uint32)
    x = np.zeros((near.size + around.size, 32), np.uint32)
    x[np.arange(len(x)), np.arange(len(x)) % 32] = np.concatenate([near, around])
    for rule, ratio in RULES:
        given = x.view(np.float32), 1, rule, "even", ratio
        equal(refnum.quantize_tetrajet(*given), host.quantize_tetrajet(*given))


def test_rows_that_lie_apart(call: Callable[..., Any]) -> None:
    """Rows with gaps, aligned and not."""
    rng = np.random.default_rng(5)
    for gap, axis in itertools.product((16, 3), (1, 0)):
        x, ema = (floats(rng, (70, 96), BF16) for _ in range(2))
        wide, beside = (np.concatenate([x[:, :gap], part], axis=1)[:, gap:] for part in (x, ema))
        rbits = rng.integers(0, 256, (70, 96 + gap), dtype=np.uint8)[:, gap:]
        equal(refnum.quantize_tetrajet(x, axis), call("quantize_tetrajet", wide, axis))
        want = refnum.quantize_tetrajet(x, axis, rbits=rbits)
        equal(want, call("quantize_tetrajet", wide, axis, rbits=rbits))
        equal(refnum.q_ema(x, ema, axis), call("q_ema", wide, beside, axis))


def test_what_the_kernels_lack_is_named() -> None:
    x = np.ones((2, 32), np.float32)
    with pytest.raises(UnsupportedError, match="ema has dtype float16; the kernels have float32 and the dtype of w"):
        host.q_ema(x, x.astype(np.float16))
    with pytest.raises(ArgumentError, match="both given"):
        host.quantize_tetrajet(x, rbits=np.zeros((2, 32), np.uint8), philox=(1, 2, 3))
    with pytest.raises(ArgumentError, match="axis is 2"):
        host.quantize_tetrajet(x, 2)
