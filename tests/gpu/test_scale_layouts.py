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

SHAPES = {"gpu": ((1, 32), (6, 96), (133, 256), (131, 1664), (300, 512)), "emulator": ((6, 96), (131, 256))}
OTHERS = LAYOUTS[1:]


@pytest.fixture(scope="module")
def machine() -> tuple[Callable[..., Any], str]:
    return launchers()


def turned(rng: np.random.Generator, m: int, n: int, layout: str) -> np.ndarray[Any, Any]:
    return scales_to_layout(samples.scale_bytes(rng, m, n), layout)


@pytest.mark.parametrize("layout", OTHERS)
def test_quantisers_write(machine: Any, layout: str) -> None:
    call, where = machine
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
    others = LAYOUTS if where == "gpu" else (LAYOUTS[LAYOUTS.index(layout) - 2],)
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
    call, _ = machine
    x = samples.floats(np.random.default_rng(8), 5, 64, np.float32)
    x[0], x[1, 3], x[2, :32] = 0, np.nan, 1e-44  # bytes 0 and 255, which N6.3 does not take back
    want = refnum.dequantize_mxfp4(*refnum.quantize_mxfp4(x))
    for layout in OTHERS:
        packed, scales = call("quantize_mxfp4", x, layout_out=layout)
        equal(want, call("dequantize_mxfp4", packed, scales, layout_in=layout), layout)
        equal(want, refnum.dequantize_mxfp4(packed, scales, layout_in=layout), layout)


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
