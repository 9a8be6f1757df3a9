"""The same lines on CuPy arrays: every operation of the model gives the same bytes (N0)."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_dispatch import CALLS

import refnum
from refnum import layouts, payload, philox, softfloat, swiglu

cupy = pytest.importorskip("cupy")

try:
    DEVICES = cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError:
    DEVICES = 0
pytestmark = pytest.mark.skipif(not DEVICES, reason="no CUDA device")


def put(x: Any) -> Any:
    """A NumPy array on the device; anything else as it is."""
    return cupy.asarray(x) if isinstance(x, np.ndarray) else x


def same(operation: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
    """Run an operation on NumPy and on CuPy arrays; every output must be equal in shape, dtype and bytes."""
    host = operation(*arguments, **keywords)
    device = operation(*map(put, arguments), **{name: put(x) for name, x in keywords.items()})
    hosts, devices = (r if isinstance(r, tuple) else (r,) for r in (host, device))
    assert len(hosts) == len(devices)
    for want, got in zip(hosts, devices, strict=True):
        if want is None:
            assert got is None
            continue
        assert isinstance(got, cupy.ndarray), f"{operation.__name__} left the device"
        assert got.dtype == want.dtype and got.shape == want.shape
        assert got.get().tobytes() == want.tobytes()


@pytest.mark.parametrize("name", CALLS)
def test_every_operation(name: str) -> None:
    """The calls of test_dispatch.py: each operation, mode and profile, specials and subnormals included."""
    operation, arguments, keywords = CALLS[name]
    same(operation, *arguments, **keywords)


@pytest.mark.parametrize("function", [refnum.quantize_mxfp4, refnum.quantize_fp8_tiles], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, refnum.arrays.BFLOAT16], ids=str)
def test_bit_patterns_of_every_kind(function: Callable[..., Any], dtype: Any) -> None:
    """2,097,152 random bit patterns, so every exponent; rows of zeros, NaN and Inf among them; and tame rows."""
    wide = refnum.philox.random_words(1 << 21, 9).reshape(512, 4096)
    bits = wide if np.dtype(dtype).itemsize == 4 else wide.astype(np.uint16)
    same(function, bits.view(dtype))
    tame = ((wide & 0x8FFFFFFF) | 0x30000000).view(np.float32).astype(dtype)
    tame[::7] = 0
    same(function, tame)


RNG = np.random.default_rng(0)
WORDS = RNG.integers(0, 1 << 32, (2, 300, 257), dtype=np.uint32)
BYTES = RNG.integers(0, 256, (300, 136)).astype(np.uint8)
GATE, UP = RNG.integers(0, 1 << 16, (2, 40, 96)).astype(np.uint16)
PROB = RNG.random(40).astype(np.float32)
SPLITS = [17, 0, 64, 9]
ROW_MAP = RNG.integers(0, 28, 90)
NORMAL = RNG.integers(1, 255, (130, 5)).astype(np.uint8)


@pytest.mark.parametrize(
    ("module", "name"),
    [(softfloat, "multiply"), (softfloat, "add"), (softfloat, "subtract")],
)
def test_arithmetic(module: types.ModuleType, name: str) -> None:
    operation = getattr(module, name)
    same(operation, WORDS[0], WORDS[1])
    same(operation, WORDS[0], WORDS[1, :, :1])
    same(operation, WORDS[0], np.uint32(0x3F800000))
    near = WORDS[0] ^ (WORDS[1] & np.uint32(0x81FFFFFF))
    same(operation, WORDS[0], near)


def test_conversions() -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    same(softfloat.from_float16, every)
    same(softfloat.from_bfloat16, every)
    same(softfloat.to_bfloat16, WORDS[0])
    same(softfloat.negate, WORDS[0])


@pytest.mark.parametrize("to", ["fp8", "mxfp4"])
@pytest.mark.parametrize("prob", [None, PROB], ids=["plain", "weighted"])
def test_swiglu(to: str, prob: np.ndarray | None) -> None:
    same(swiglu.swiglu, GATE, UP, prob)
    same(swiglu.swiglu_quantize, GATE, UP, prob, to)
    same(swiglu.swiglu_backward, GATE, UP, GATE, prob)
    same(swiglu.swiglu_backward, WORDS[0, :40, :96].view(np.float32), UP, GATE, prob)
    empty = np.zeros((0, 96), np.uint16)
    same(swiglu.swiglu_quantize, empty, empty, None, to)


def test_payload() -> None:
    same(payload.pack_payload, BYTES[:, :128], BYTES[:, 128:])
    same(payload.unpack_payload, BYTES)
    same(payload.permute_pad, BYTES[:28], ROW_MAP, SPLITS)
    same(payload.permute_pad, BYTES[:28], ROW_MAP[:0], [0, 0], 16)
    rows = RNG.standard_normal((32 + 64 + 32, 31)).astype(np.float32)
    weights = RNG.random(90).astype(np.float32)
    same(payload.unpermute, rows, ROW_MAP, SPLITS, weights, 30)
    same(payload.unpermute, rows, ROW_MAP, SPLITS, None, 30)
    same(payload.unpermute, rows.view(np.uint32).astype(np.uint16), ROW_MAP, SPLITS, weights, 30)
    same(payload.unpermute, rows[:0], ROW_MAP[:0], [0], None, 3)
    same(payload.unpermute, rows[:0], ROW_MAP[:0], [0], None, 0)


def test_layouts() -> None:
    same(layouts.scales_to_float32, BYTES)
    same(layouts.scales_from_float32, layouts.scales_to_float32(NORMAL))
    same(layouts.scales_to_gemm_float32, NORMAL)
    same(layouts.scales_from_gemm_float32, layouts.scales_to_gemm_float32(NORMAL), 130)
    same(layouts.scales_to_packed_ue8m0, NORMAL)
    same(layouts.scales_from_packed_ue8m0, layouts.scales_to_packed_ue8m0(NORMAL), 130, 5)
    same(layouts.scales_to_swizzled, NORMAL)
    same(layouts.scales_from_swizzled, layouts.scales_to_swizzled(NORMAL), 130, 5)
    with pytest.raises(layouts.ScaleError, match=r"index \(1, 2\)"):
        layouts.scales_from_float32(cupy.asarray(np.where(np.arange(6).reshape(2, 3) == 5, 3, 2).astype(np.float32)))
    for order in layouts.NIBBLE_ORDERS:
        same(layouts.codes_from_packed, BYTES[:, :128], order)
        same(layouts.codes_to_packed, BYTES[:, :128] & 15, order)


def test_random_bits() -> None:
    like = cupy.zeros(1, np.uint8)
    for make, arguments in [
        (philox.random_words, (40001, 7, 1, 2, 3)),
        (philox.random_bytes, (40001, 7, 1, 2, 3)),
    ]:
        assert make(*arguments, like=like).get().tobytes() == make(*arguments).tobytes()
    for bits in (1, 8, 12, 24):
        got = philox.random_bits((33, 7), bits, seed=5, like=like)
        assert isinstance(got, cupy.ndarray)
        assert np.array_equal(got.get(), philox.random_bits((33, 7), bits, seed=5))
    counter = [WORDS[0, i] for i in range(4)]
    device = philox.philox4x32([cupy.asarray(c) for c in counter], (1, 2))
    assert [d.get().tolist() for d in device] == [h.tolist() for h in philox.philox4x32(counter, (1, 2))]
