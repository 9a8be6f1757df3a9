"""Stochastic rounding in the kernel equals the model: bits given, bits by key, every random byte, any row offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernel_samples as samples
import numpy as np
import pytest
from variant_machine import equal, launchers, refused

import refnum
from refnum import philox
from refnum.errors import ArgumentError, DtypeError, ShapeError

STOCHASTIC = refnum.get_profile("STOCHASTIC")
FLOATS = (np.float32, samples.BFLOAT16, np.float16)
SHAPES = {"gpu": ((1, 32), (7, 160), (129, 256), (64, 1408), (3, 7168), (257, 992)), "emulator": ((1, 32), (7, 160))}
KEYS = ((0, 0, 0), (0xFEDCBA9876543210, 0xFFFFFFFF, 3, 32), (1, 2, 0xFFFFFFFF, 32 * ((1 << 33) - 1)))
RULES = [STOCHASTIC.replace(name=f"STOCHASTIC/{rule}", scale_rule=rule) for rule in ("floor", "ceil", "even")]


@pytest.fixture(scope="module")
def machine() -> tuple[Callable[..., Any], str]:
    return launchers()


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "bfloat16", "float16"])
def test_bits_given_and_bits_by_key(machine: Any, dtype: Any) -> None:
    call, where = machine
    for shape in SHAPES[where]:
        rng = np.random.default_rng(shape)
        x = samples.floats(rng, *shape, dtype)
        rbits = rng.integers(0, 256, shape, dtype=np.uint8)
        for profile in (STOCHASTIC, *RULES, STOCHASTIC.replace(name="S/sat", nonfinite="satfinite", zero_scale=94)):
            want = refnum.quantize_mxfp4(x, profile, rbits=rbits)
            equal(want, call("quantize_mxfp4", x, profile, rbits=rbits), (shape, profile.name))
        for key in KEYS:
            want = refnum.quantize_mxfp4(x, STOCHASTIC, philox=key)
            equal(want, call("quantize_mxfp4", x, "STOCHASTIC", philox=key), (shape, key))


def test_every_bfloat16_with_every_random_byte(machine: Any) -> None:
    call, where = machine
    if where == "gpu":
        every = np.arange(1 << 15, dtype=np.uint16)
    else:  # magnitudes that end up between 0 and 6 under a maximum of 4, the rest by steps
        every = np.concatenate([np.arange(0x3A00, 0x40C8, 3), np.arange(0, 1 << 15, 1201)]).astype(np.uint16)
    draws = np.arange(256, dtype=np.uint8) if where == "gpu" else np.arange(1, 256, 23, dtype=np.uint8)
    x = np.zeros((every.size, 32), np.uint16)
    x[:, 5], x[:, 20] = every, 0xC080  # -4 beside it: the scale is one unless the pattern is larger
    for start in range(0, draws.size, 8):
        part = draws[start : start + 8]
        wide = np.repeat(x, part.size, axis=0)
        rbits = np.tile(part[:, None], (every.size, 32))
        want = refnum.quantize_mxfp4(wide, STOCHASTIC, rbits=rbits)
        equal(want, call("quantize_mxfp4", wide, STOCHASTIC, rbits=rbits), part)


def test_rows_alone_have_the_bits_of_the_whole(machine: Any) -> None:
    call, _ = machine
    x = samples.floats(np.random.default_rng(3), 37, 96, np.float32)
    seed, stream, step, first = 99, 5, 6, 32 << 32
    whole = call("quantize_mxfp4", x, "STOCHASTIC", philox=(seed, stream, step, first))
    drawn = philox.random_bytes(x.size, seed, stream, step, first).reshape(x.shape)
    equal(refnum.quantize_mxfp4(x, STOCHASTIC, rbits=drawn), whole, "whole")
    for row in (1, 2, 17, 36):
        alone = call("quantize_mxfp4", x[row:], "STOCHASTIC", philox=(seed, stream, step, first + row * 96))
        equal(tuple(each[row:] for each in whole), alone, row)


def test_a_new_key_each_step_takes_the_kept_plan(machine: Any) -> None:
    from refnum.gpu.device import plans

    call, _ = machine
    x = samples.floats(np.random.default_rng(4), 5, 64, np.float32)
    before = None
    for step in range(4):
        key = (1 << 40, 3, step, 64 * step)
        equal(refnum.quantize_mxfp4(x, STOCHASTIC, philox=key), call("quantize_mxfp4", x, STOCHASTIC, philox=key), key)
        assert before in (None, len(plans._plans))
        before = len(plans._plans)
    for bad in ((1, 2), (1, 2, -1), (1, 2, 3, 5)):
        refused(ArgumentError, lambda bad=bad: call("quantize_mxfp4", x, STOCHASTIC, philox=bad))


def test_named_errors(machine: Any) -> None:
    call, _ = machine
    x = np.zeros((4, 64), np.float32)
    bits = np.zeros((4, 64), np.uint8)
    refused(ArgumentError, lambda: call("quantize_mxfp4", x, STOCHASTIC), "is missing")
    refused(ArgumentError, lambda: call("quantize_mxfp4", x, rbits=bits), "was given")
    refused(ArgumentError, lambda: call("quantize_mxfp4", x, philox=(1, 2, 3)), "was given")
    refused(ArgumentError, lambda: call("quantize_mxfp4", x, STOCHASTIC, rbits=bits, philox=(1, 2, 3)), "both")
    refused(ShapeError, lambda: call("quantize_mxfp4", x, STOCHASTIC, rbits=bits[:3]))
    refused(DtypeError, lambda: call("quantize_mxfp4", x, STOCHASTIC, rbits=bits.astype(np.uint16)), "8 bits")
    for wrong in (1, (1, 2), (1, 2, 3, 4), (1 << 64, 0, 0), (0, 1 << 32, 0), (0, 0, 0.5), (True, 0, 0)):
        refused(ArgumentError, lambda wrong=wrong: refnum.quantize_mxfp4(x, STOCHASTIC, philox=wrong))
        refused(ArgumentError, lambda wrong=wrong: call("quantize_mxfp4", x, STOCHASTIC, philox=wrong))
