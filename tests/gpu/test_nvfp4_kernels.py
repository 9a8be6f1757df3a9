"""NVFP4 in every variant, block and rounding: host twin, and launchers on the GPU or the emulated device, against the
model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest
from variant_machine import dtypes_and_layouts, equal, host_or_launched, refused

import refnum
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.layouts import scales_to_layout
from refnum.nvfp4_scales import VARIANTS

DTYPES = (np.float32, samples.BFLOAT16, np.float16)
SHAPES = ((1, 32), (17, 96), (16, 64), (130, 160))
TILES = ((1, 16), (16, 16))
ROUNDINGS = ("nearest", "drawn", "keyed")
KEY = (3 << 40 | 5, 2, 9, 64)
MAXIMA = (None, 7.5, 42.0, 0.0, np.inf, np.nan, 1e-42, 3e38)
"""Of a tensor; 42 leads to factors whose products have ties."""


@pytest.fixture(scope="module", params=["host", "launched"])
def machine(request: pytest.FixtureRequest) -> tuple[Callable[..., Any], str]:
    return host_or_launched(request.param)


@pytest.fixture(scope="module")
def call(machine: tuple[Callable[..., Any], str]) -> Callable[..., Any]:
    return machine[0]


def random_of(rounding: str, rng: np.random.Generator, shape: tuple[int, int]) -> dict[str, Any]:
    drawn = rng.integers(0, 256, shape).astype(np.uint8)
    return {"nearest": {}, "drawn": {"rbits": drawn}, "keyed": {"philox": KEY}}[rounding]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_quantise(machine: tuple[Callable[..., Any], str], variant: str, tile: tuple[int, int], rounding: str) -> None:
    call, name = machine
    rng, turns = np.random.default_rng(7), itertools.cycle(MAXIMA)
    for (dtype, layout), shape in itertools.product(
        dtypes_and_layouts(name, DTYPES, list(VARIANTS).index(variant)), SHAPES
    ):
        x, most = samples.floats(rng, *shape, dtype), next(turns)
        amax = None if most is None else np.array([most], np.float32)
        more = {"layout_out": layout, **random_of(rounding, rng, shape)}
        want = refnum.quantize_nvfp4(x, variant, amax, tile, **more)
        equal(want, call("quantize_nvfp4", x, variant, amax, tile, **more), (dtype, shape, layout, most))


def test_the_second_scale_is_taken_where_its_error_is_less() -> None:
    """The samples take the first scale and the second one, each in many blocks, and the two errors disagree."""
    x = np.random.default_rng(8).standard_normal((130, 160)).astype(np.float32)
    codes = {name: refnum.quantize_nvfp4(x, name)[1] for name in ("FOUR_OVER_SIX", "FOUR_OVER_SIX_MSE")}
    assert (codes["FOUR_OVER_SIX"] != codes["FOUR_OVER_SIX_MSE"]).sum() > 10
    rows = refnum.quantize_nvfp4(x, "FOUR_OVER_SIX", tile=(16, 16))[1].repeat(16, 0)[:130]
    assert (rows != codes["FOUR_OVER_SIX"]).any()


@pytest.mark.parametrize("variant", ["FOUR_OVER_SIX", "FOUR_OVER_SIX_MSE"])
def test_both_scales_give_the_maximum_the_same_number(call: Callable[..., Any], variant: str) -> None:
    """Six times one scale is four times the other, so the errors are equal to the bit and the first one is taken: a
    number that is wrong in its last place takes the second."""
    rng, x = np.random.default_rng(11), np.zeros((16, 256), np.float32)
    x[:, ::16] = np.exp2(rng.uniform(0, 1, (16, 16)))
    for most in rng.uniform(8, 16, 30):
        amax = np.array([most], np.float32)
        equal(refnum.quantize_nvfp4(x, variant, amax), call("quantize_nvfp4", x, variant, amax), most)


@pytest.mark.parametrize("order", ["te", "product", "four_over_six"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dequantise_squares(call: Callable[..., Any], dtype: str, order: str) -> None:
    rng, turns = np.random.default_rng(9), itertools.cycle(MAXIMA[1:])
    for (m, k), layout in itertools.product(SHAPES, ("bytes", "swizzled")):
        packed = rng.integers(0, 256, (m, k // 2)).astype(np.uint8)
        scales = rng.integers(0, 256, (-(-m // 16), k // 16)).astype(np.uint8)
        stored = scales_to_layout(scales, layout)
        given = packed, stored, np.array([next(turns)], np.float32), order, (16, 16), dtype
        want = refnum.dequantize_nvfp4(*given, layout_in=layout)
        equal(want, call("dequantize_nvfp4", *given, layout_in=layout), (m, k, layout))


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_rows_and_random_bytes_that_do_not_lie_at_multiples_of_16(
    call: Callable[..., Any], tile: tuple[int, int]
) -> None:
    rng = np.random.default_rng(10)
    wide = samples.floats(rng, 33, 128, np.float32)
    bits = rng.integers(0, 256, (33, 101)).astype(np.uint8)
    x, rbits = wide[:, 3:99], bits[:, 5:101]
    want = refnum.quantize_nvfp4(np.ascontiguousarray(x), "FOUR_OVER_SIX", tile=tile, rbits=np.ascontiguousarray(rbits))
    equal(want, call("quantize_nvfp4", x, "FOUR_OVER_SIX", tile=tile, rbits=rbits), tile)


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_nothing_to_quantise_still_gives_the_maximum(call: Callable[..., Any], tile: tuple[int, int]) -> None:
    for shape, amax in itertools.product(((0, 32), (3, 0)), (None, np.array([-5], np.float32))):
        x = np.zeros(shape, np.float32)
        want = refnum.quantize_nvfp4(x, "MODELOPT", amax, tile)
        equal(want, call("quantize_nvfp4", x, "MODELOPT", amax, tile), (shape, amax))


def test_refusals(call: Callable[..., Any]) -> None:
    x, bits = np.ones((2, 32), np.float32), np.zeros((2, 32), np.uint8)
    refused(ArgumentError, lambda: call("quantize_nvfp4", x, rbits=bits, philox=KEY), "both given")
    refused(ArgumentError, lambda: call("quantize_nvfp4", x, tile=(16, 1)), r"\(16, 16\)")
    refused(ArgumentError, lambda: call("quantize_nvfp4", x, "NVFP4"), "FOUR_OVER_SIX_MSE")
    refused(ShapeError, lambda: call("quantize_nvfp4", x, rbits=bits[:, :16]), "rbits")
    refused(DtypeError, lambda: call("quantize_nvfp4", x, rbits=bits.astype(np.float32)), "rbits")
    codes, amax = np.zeros((17, 16), np.uint8), np.ones(1, np.float32)
    refused(
        ShapeError, lambda: call("dequantize_nvfp4", codes, np.zeros((17, 2), np.uint8), amax, tile=(16, 16)), "scales"
    )
