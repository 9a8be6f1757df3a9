"""Rotated NVFP4 in every variant and rounding: host twin, and launchers on the GPU or the emulated device, against the
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
from refnum.errors import ArgumentError, ShapeError
from refnum.nvfp4_scales import VARIANTS

DTYPES = (np.float32, samples.BFLOAT16)
KEY = (3 << 40 | 5, 2, 9, 64)
SHAPES = ((1, 32), (33, 96), (16, 16), (40, 592), (1040, 24))
"""The last one for columns alone: more groups than a CTA has, and a width that rows do not take; the one before for
tiles of a whole warp."""
MAXIMA = (None, 7.5, 0.0, np.inf, 1e-42, 3e38)


@pytest.fixture(scope="module", params=["host", "launched"])
def machine(request: pytest.FixtureRequest) -> tuple[Callable[..., Any], str]:
    return host_or_launched(request.param)


@pytest.fixture(scope="module")
def call(machine: tuple[Callable[..., Any], str]) -> Callable[..., Any]:
    return machine[0]


def inputs(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> np.ndarray[Any, Any]:
    """Samples of all sizes, some rows and columns of which are small, or zeros."""
    x = samples.floats(rng, shape[0], 32 * -(-shape[1] // 32), np.float32)[:, : shape[1]].copy()
    x[:, ::5] = 0
    with np.errstate(invalid="ignore"):  # NaN stays one
        x[::7] = np.ldexp(x[::7], -20)
        return x.astype(dtype)


@pytest.mark.parametrize("rounding", ["nearest", "drawn", "keyed"])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_and_rounding(
    machine: tuple[Callable[..., Any], str], variant: str, axis: int, rounding: str
) -> None:
    call, name = machine
    if rounding == "nearest" and variant in list(VARIANTS)[:3]:
        pytest.skip("the kernels of tests/gpu/test_ops.py")
    rng, turns = np.random.default_rng(17), itertools.cycle(MAXIMA)
    orders = itertools.cycle(("exact", "sequential"))
    for (dtype, layout), shape in itertools.product(
        dtypes_and_layouts(name, DTYPES, list(VARIANTS).index(variant)), SHAPES[: 4 if axis else 5]
    ):
        x, most = inputs(rng, shape, dtype), next(turns)
        codes = shape if axis else (shape[1], -(-shape[0] // 16) * 16)
        drawn = rng.integers(0, 256, codes).astype(np.uint8)
        bits = {"nearest": {}, "drawn": {"rbits": drawn}, "keyed": {"philox": KEY}}
        amax = None if most is None else np.array([most], np.float32)
        given = x, 0xD7E8, axis, next(orders), variant, amax
        more = {"layout_out": layout, **bits[rounding]}
        want = refnum.hadamard_quantize_nvfp4(*given, **more)
        equal(want, call("hadamard_quantize_nvfp4", *given, **more), (dtype, shape, layout, most))


@pytest.mark.parametrize("axis", [-1, 0])
def test_random_bytes_that_do_not_lie_at_multiples_of_16(call: Callable[..., Any], axis: int) -> None:
    rng = np.random.default_rng(18)
    x = samples.floats(rng, 48, 64, np.float32)
    codes = (48, 64) if axis else (64, 48)
    rbits = rng.integers(0, 256, (codes[0], codes[1] + 5)).astype(np.uint8)[:, 5:]
    given = x, 0xD7E8, axis, "exact", "TE", None
    want = refnum.hadamard_quantize_nvfp4(*given, rbits=np.ascontiguousarray(rbits))
    equal(want, call("hadamard_quantize_nvfp4", *given, rbits=rbits), axis)


def test_refusals(call: Callable[..., Any]) -> None:
    x, bits = np.ones((33, 32), np.float32), np.zeros((33, 32), np.uint8)
    refused(ArgumentError, lambda: call("hadamard_quantize_nvfp4", x, rbits=bits, philox=KEY), "both given")
    refused(ArgumentError, lambda: call("hadamard_quantize_nvfp4", x, variant="NVFP4"), "FOUR_OVER_SIX_MSE")
    refused(
        ShapeError, lambda: call("hadamard_quantize_nvfp4", x, axis=0, rbits=bits), r"that of the codes, \(32, 48\)"
    )
