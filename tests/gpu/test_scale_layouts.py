"""Kernels that read and write scales in every layout of N6.5 equal the model, padding included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest
from variant_machine import equal, launchers, refused

import refnum
from refnum.errors import ArgumentError, ScaleError, ShapeError
from refnum.layouts import LAYOUTS, scales_to_layout

SHAPES = {"gpu": ((1, 32), (6, 96), (133, 256), (131, 1664), (300, 512)), "emulator": ((6, 96), (9, 256))}
OTHERS = LAYOUTS[1:]
EMULATED = {"write": ("packed_ue8m0",), "read": ("gemm_float32",), "both": ("swizzled", "packed_ue8m0")}
"""The emulator compiles each function of each layout for a second: a few of them; the host build has them all."""


@pytest.fixture(scope="module")
def machine() -> tuple[Callable[..., Any], str]:
    return launchers()


def turned(rng: np.random.Generator, m: int, n: int, layout: str) -> np.ndarray[Any, Any]:
    return scales_to_layout(samples.scale_bytes(rng, m, n), layout)


@pytest.mark.parametrize("layout", OTHERS)
def test_quantisers_write(machine: Any, layout: str) -> None:
    call, where = machine
    if where == "emulator" and layout not in EMULATED["write"]:
        pytest.skip("on the GPU only")
    for m, k in SHAPES[where]:
        rng = np.random.default_rng(k)
        dtypes = (np.float32, samples.BFLOAT16, np.float16) if where == "gpu" else (samples.BFLOAT16,)
        for x in (samples.floats(rng, m, k, dtype) for dtype in dtypes):
            for name, options in (
                ("quantize_mxfp4", {}), ("quantize_mxfp4", {"profile": "OCP"}),
                ("quantize_mxfp4", {"profile": "STOCHASTIC", "philox": (5, 6, 7)}),
                ("quantize_fp8_tiles", {}), ("quantize_fp8_tiles", {"tile": (128, 128)}),
            ):  # fmt: skip
                want = getattr(refnum, name)(x, **options, layout_out=layout)
                equal(want, call(name, x, **options, layout_out=layout), (name, m, k, options))


@pytest.mark.parametrize("layout", OTHERS)
def test_dequantisers_read(machine: Any, layout: str) -> None:
    call, where = machine
    if where == "emulator" and layout not in EMULATED["read"]:
        pytest.skip("on the GPU only")
    for m, k in SHAPES[where]:
        rng = np.random.default_rng(m)
        packed, codes, tall = samples.fp4_codes(rng, m, k), samples.fp8_codes(rng, m, k), -(-m // 128)
        given: list[tuple[str, Any, Any, dict[str, Any]]] = [
            ("dequantize_mxfp4", packed, turned(rng, m, k // 32, layout), {"dtype": "bfloat16"}),
            ("dequantize_fp8_tiles", codes, turned(rng, m, -(-k // 128), layout), {"dtype": "float32"}),
            ("dequantize_fp8_tiles", codes, turned(rng, tall, -(-k // 128), layout), {"tile": (128, 128)}),
        ]
        for name, x, scales, options in given:
            want = getattr(refnum, name)(x, scales, **options, layout_in=layout)
            equal(want, call(name, x, scales, **options, layout_in=layout), (name, m, k, options))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_converters_read_and_write(machine: Any, layout: str) -> None:
    call, where = machine
    if where == "emulator" and layout not in EMULATED["both"][:1]:
        pytest.skip("on the GPU only")
    others = LAYOUTS if where == "gpu" else EMULATED["both"][1:]
    for m, k in SHAPES[where]:
        rng = np.random.default_rng(m + k)
        for other in others:
            both = {"layout_in": layout, "layout_out": other}
            codes, scales = samples.fp8_codes(rng, m, k), turned(rng, m, -(-k // 128), layout)
            want = refnum.fp8_to_mxfp4(codes, scales, **both)
            equal(want, call("fp8_to_mxfp4", codes, scales, **both), ("fp8_to_mxfp4", m, k, both))
            packed, scales = samples.fp4_codes(rng, m, k), turned(rng, m, k // 32, layout)
            want = refnum.mxfp4_to_fp8(packed, scales, **both)
            equal(want, call("mxfp4_to_fp8", packed, scales, **both), ("mxfp4_to_fp8", m, k, both))


def test_what_was_written_can_be_read(machine: Any) -> None:
    call, where = machine
    x = samples.floats(np.random.default_rng(8), 5, 64, np.float32)
    x[0], x[1, 3], x[2, :32] = 0, np.nan, 1e-44  # bytes 0 and 255, which N6.3 does not take back
    want = refnum.dequantize_mxfp4(*refnum.quantize_mxfp4(x))
    for layout in OTHERS if where == "gpu" else ("float32",):
        packed, scales = call("quantize_mxfp4", x, layout_out=layout)
        equal(want, call("dequantize_mxfp4", packed, scales, layout_in=layout), layout)
        equal(want, refnum.dequantize_mxfp4(packed, scales, layout_in=layout), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_host_build_lays_and_reads_as_the_model(host: Any, layout: str) -> None:
    rng = np.random.default_rng(2)
    for m, k in ((0, 64), (1, 32), (6, 96), (133, 256), (131, 1664)):
        x = samples.floats(rng, m, k, np.float32)
        codes, packed = samples.fp8_codes(rng, m, k), samples.fp4_codes(rng, m, k)
        wide = turned(rng, m, -(-k // 128), layout)
        near, square = turned(rng, m, k // 32, layout), turned(rng, -(-m // 128), -(-k // 128), layout)
        other = LAYOUTS[LAYOUTS.index(layout) - 1]
        for name, given, options in (
            ("quantize_mxfp4", (x,), {"layout_out": layout}),
            ("quantize_mxfp4", (x,), {"profile": "STOCHASTIC", "philox": (9, 8, 7, 32 << 33), "layout_out": layout}),
            ("quantize_fp8_tiles", (x, (128, 128)), {"layout_out": layout}),
            ("dequantize_mxfp4", (packed, near), {"layout_in": layout}),
            ("dequantize_fp8_tiles", (codes, square, (128, 128)), {"layout_in": layout}),
            ("fp8_to_mxfp4", (codes, wide), {"layout_in": layout, "layout_out": other}),
            ("mxfp4_to_fp8", (packed, near), {"layout_in": layout, "layout_out": other}),
        ):
            want = getattr(refnum, name)(*given, **options)
            equal(want, getattr(host, name)(*given, **options), (name, m, k, options))
            out = tuple(np.full_like(w, 99) for w in (want if isinstance(want, tuple) else (want,)))
            equal(want, getattr(host, name)(*given, **options, out=out), (name, "out"))
            assert (out[0] == (want[0] if isinstance(want, tuple) else want)).all() or np.isnan(out[0]).any()


def test_every_scale_byte_and_every_high_half_of_a_float(host: Any) -> None:
    every = np.arange(256, dtype=np.uint8).reshape(16, 16)
    packed = np.tile(np.arange(16, dtype=np.uint8) * 17, (16, 16)).reshape(16, 256)
    laid = scales_to_layout(every, "float32")
    equal(refnum.dequantize_mxfp4(packed, every), host.dequantize_mxfp4(packed, laid, layout_in="float32"), "bytes")
    bits = (np.arange(1 << 16, dtype=np.uint32) << 16).reshape(-1, 16)
    low = np.concatenate([bits, bits | 1])  # nothing with a low bit is a power of two
    powers = (low & 0x7FFFFF == 0) & (low >> 23 > 0) & (low >> 23 < 255)
    want = np.where(powers, low >> 23, np.where(low == 0x400000, 0, 255)).astype(np.uint8)
    codes = np.full((low.shape[0], 256), 0x22, np.uint8)
    got = host.dequantize_mxfp4(codes, low.view(np.float32), layout_in="float32")
    equal(refnum.dequantize_mxfp4(codes, want), got, "values")


def test_a_value_that_is_no_scale_is_refused_or_nan(machine: Any) -> None:
    call, _ = machine
    packed = np.full((1, 16), 0x22, np.uint8)
    for value in (0.0, -1.0, 3.0, np.inf, 1e-40, -np.inf):
        scales = np.full((1, 1), value, np.float32)
        refused(ScaleError, lambda scales=scales: refnum.dequantize_mxfp4(packed, scales, layout_in="float32"))
        assert np.isnan(call("dequantize_mxfp4", packed, scales, layout_in="float32")).all()


def test_named_errors(machine: Any) -> None:
    call, _ = machine
    packed, x = np.zeros((8, 32), np.uint8), np.zeros((8, 64), np.float32)
    refused(ArgumentError, lambda: call("quantize_mxfp4", x, layout_out="tiled"), "layout_out")
    refused(ArgumentError, lambda: refnum.quantize_mxfp4(x, layout_out="tiled"), "layout_out")
    refused(ArgumentError, lambda: call("dequantize_mxfp4", packed, x, layout_in="tiled"), "layout_in")
    refused(ScaleError, lambda: call("dequantize_mxfp4", packed, packed[:, :2], layout_in="float32"), "float32")
    refused(ShapeError, lambda: call("dequantize_mxfp4", packed, x, layout_in="gemm_float32"), "need")
