"""LUQ and radix 4: host twin and emulated launchers against the model, where a kernel chooses another path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.gpu import emulate, host
from refnum.gpu.device import compile as build
from refnum.gpu.ops import logarithmic

BF16 = np.dtype(ml_dtypes.bfloat16)
SHAPES = ((1, 2), (3, 46), (2, 2048), (1, 4110), (5, 64))


@pytest.fixture(scope="module", params=["host", "emulated"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return (name, *arguments, **options) -> results of a back end."""
    usable, reason = (host if request.param == "host" else emulate).available()
    if not usable:
        pytest.skip(reason)
    found = emulate.subject_operations(emulate.Emulator()) if request.param == "emulated" else {}
    return lambda name, *given, **options: found.get(name, getattr(host, name))(*given, **options)


def floats(rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any], spread: int = 9) -> Any:
    """Normal numbers of many sizes, zeros, subnormals, infinities and NaN of both signs among them."""
    x = rng.standard_normal(shape).astype(np.float32) * np.exp2(rng.integers(-spread, spread, shape)).astype(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-40, 3e38], np.float32)
    x = np.where(rng.random(shape) < 0.05, rng.choice(special, shape), x)
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def words(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Both words of every element: any, and those at the ends."""
    under, log = (rng.integers(0, 1 << bits, shape, dtype=np.uint32) for bits in (24, 23))
    under[rng.random(shape) < 0.1], log[rng.random(shape) < 0.1] = 0, (1 << 23) - 1
    return under, log


def equal(want: Any, got: Any) -> None:
    """Compare results by shape, dtype and bytes."""
    wants, gots = (x if isinstance(x, tuple) else (x,) for x in (want, got))
    for w, g in zip(wants, gots, strict=True):
        assert (w.shape, w.dtype) == (g.shape, g.dtype)
        a, b = (np.ascontiguousarray(x).view(np.uint8) for x in (w, g))
        assert np.array_equal(a, b), np.argwhere(a != b)[:4].tolist()


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BF16, np.dtype(np.float16)], ids=str)
def test_luq(call: Callable[..., Any], dtype: np.dtype[Any]) -> None:
    """Steps that are plain or not: ordinary ones, of 2**-78 and 2**100 and beside them, subnormal, 0 and Inf."""
    rng = np.random.default_rng(1)
    maxima = [0x43A2F391, 0x1B800000, 0x1B7FFFFF, 0x74FFFFFF, 0x75000000, 0x00000700, 0x00000013, 0, 0x7F800000]
    for number, bits in enumerate((*maxima, 0x4E123456, 0x5C000001)):
        amax = np.array([bits], np.uint32).view(np.float32)
        for shape in SHAPES[number % 5 : number % 5 + 2]:
            given = (floats(rng, shape, dtype), *words(rng, shape), (64, 128, 16)[number % 3])
            for step in ("real", "power_of_two"):
                equal(refnum.luq(*given, amax, step), call("luq", *given, amax, step))
            equal(refnum.luq(*given), call("luq", *given))


def test_luq_where_the_quotient_of_a_large_step_vanishes(call: Callable[..., Any]) -> None:
    """A subnormal number under steps about which its quotient rounds to 0: not even the word 0 keeps it."""
    near = np.array([0, 1, 2, 3, 4, 5, 255, 256, 257, 511, 512, 513], np.uint32)
    for field in (127, 128, 129, 135, 136, 150, 151, 152, 175, 220):
        for fraction in (0, 1, 0x2AAAAB, 0x7FFFFF):
            step = field << 23 | fraction
            half = max(step - (150 << 23), 0) if field > 150 else (fraction | 1 << 23) >> min(151 - field, 31)
            x = np.concatenate([near, half + near[:6], half - near[:6]]).astype(np.uint32) & np.uint32(0x7FFFFFFF)
            amax = np.array([step + (6 << 23)], np.uint32).view(np.float32)
            given = x.view(np.float32)[None], np.zeros((1, x.size), np.uint32), np.zeros((1, x.size), np.uint32)
            equal(refnum.luq(*given, 64, amax), call("luq", *given, 64, amax))


def test_luq_quotients_are_rounded_once(call: Callable[..., Any]) -> None:
    """Random significands: a quotient that is one unit off moves a code, since the words stand at its own step."""
    rng = np.random.default_rng(2)
    for _ in range(4):
        step = rng.integers(0x3F800000, 0x40000000, 1, dtype=np.uint32)
        x = rng.integers(0x3F000000, 0x42800000, (1, 4096), dtype=np.uint32)
        alpha, value = step.view(np.float32), x.view(np.float32)
        quotient = (value / alpha).view(np.uint32)
        below = (value / alpha) < 1
        up = np.uint32(1 << 23) - (quotient & np.uint32(0x7FFFFF))
        log = np.minimum(np.where(rng.random(x.shape) < 0.5, up, up - 1), (1 << 23) - 1).astype(np.uint32)
        kept = np.where(below, (value / alpha) * np.float32(1 << 24), 0).astype(np.uint32)
        under = np.maximum(kept.astype(np.int64) - (rng.random(x.shape) < 0.5), 0).astype(np.uint32)
        given = value, under, log, 64, alpha * np.float32(64)
        equal(refnum.luq(*given), call("luq", *given))


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BF16, np.dtype(np.float16)], ids=str)
def test_radix4(call: Callable[..., Any], dtype: np.dtype[Any]) -> None:
    """All levels that a bound is subnormal for, and ordinary ones."""
    rng = np.random.default_rng(3)
    for number, n0 in enumerate((-63, -62, -5, 0, 57)):
        x = floats(rng, SHAPES[number], dtype, 70 if n0 == -63 else 20)
        if n0 < -60 and dtype != np.float16:
            x = (x.astype(np.float32) * np.float32(2.0**-60)).astype(dtype)
        for phase in ("even", "odd"):
            for threshold in ("midpoint", "0.4", "log"):
                equal(refnum.radix4(x, n0, phase, threshold), call("radix4", x, n0, phase, threshold))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_back(call: Callable[..., Any], dtype: str) -> None:
    """Rows of any length, some of them apart; every kind of step."""
    rng = np.random.default_rng(4)
    for number, shape in enumerate(SHAPES):
        store = rng.integers(0, 256, (shape[0], shape[1] // 2 + 3), dtype=np.uint8)
        for packed in (np.ascontiguousarray(store[:, 3:]), store[:, 3:]):
            for bits in (0x3F000001 + number, 0xBEAAAAAB, 0x00000003, 0x7F000001, 0x7F800000, 0xFFC00001):
                alpha = np.array([bits], np.uint32).view(np.float32)
                equal(refnum.dequantize_luq(packed, alpha, dtype), call("dequantize_luq", packed, alpha, dtype))
            for n0, phase in ((-63, "even"), (57, "odd"), (-7 + number, "odd")):
                want = refnum.dequantize_radix4(packed, n0, phase, dtype)
                equal(want, call("dequantize_radix4", packed, n0, phase, dtype))


def test_rows_that_lie_apart(call: Callable[..., Any]) -> None:
    """Rows with gaps, of whole chunks and not, at any address."""
    rng = np.random.default_rng(5)
    for shape, gap in (((9, 64), 16), ((9, 64), 3), ((7, 46), 2), ((130, 512), 8)):
        wide = shape[0], shape[1] + gap
        x, under, log = (part[:, gap:] for part in (floats(rng, wide, BF16), *words(rng, wide)))
        equal(refnum.luq(x, under, log), call("luq", x, under, log))
        equal(refnum.radix4(x, -4), call("radix4", x, -4))


def test_words_that_no_random_number_has_are_refused() -> None:
    x, word = np.ones((2, 4), np.float32), np.zeros((2, 4), np.uint32)
    with pytest.raises(ArgumentError, match="r_log holds 8388608; allowed are 23 bits"):
        host.luq(x, word, word + np.uint32(1 << 23))
    with pytest.raises(DtypeError, match="r_under has dtype int64"):
        host.luq(x, word.astype(np.int64), word)
    with pytest.raises(ShapeError, match="r_under has shape"):
        host.luq(x, word[:1], word)
    with pytest.raises(DtypeError, match="r_log has dtype uint8; the kernels take 23 bits an element as uint32"):
        emulate.subject_operations(emulate.Emulator())["luq"](x, word, word.astype(np.uint8))
    with pytest.raises(ArgumentError, match="divisor is 32"):
        host.luq(x, word, word, 32)


def test_the_hot_paths_divide_nothing_and_have_no_local_memory() -> None:
    """Of the kernels for contiguous tensors: machine code of whole chunks has no stack."""
    try:
        build.nvrtc()
    except Exception as error:
        pytest.skip(str(error))
    for kernel, grid in logarithmic.TUNING.items():
        text = build.compiled(kernel.partition(" ")[0], output="ptx", defines=grid.defines).read_text()
        assert "__local_depot" not in text and ".approx" not in text
