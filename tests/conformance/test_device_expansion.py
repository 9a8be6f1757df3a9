"""Recipes expand to the same bits on a device: on a stand-in here, on CuPy where there is a GPU."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from refnum.conformance.cases.draw.bits import float_bits
from refnum.conformance.cases.operation import OPERATIONS
from refnum.conformance.cases.recipes import Recipe, expand
from refnum.conformance.cases.recipes.distributions import distributions_for

spec = importlib.util.spec_from_file_location("stand_in", Path(__file__).parents[1] / "refnum" / "test_dispatch.py")
stand_in = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stand_in)

EDITS = ((1, 3, 0x7FC00001), (2, 40, 0x80))


def recipe(name, distribution, wide=False):
    operation = OPERATIONS[name]
    params = dict(operation.defaults())
    rows, columns = 10, 160 + -160 % (operation.unit or 1)
    if OPERATIONS[name].ragged:
        params["splits"] = [4, 0, 6]
    return Recipe(name, "STOCHASTIC" if name == "quantize_mxfp4" else "HOPPER", params, (rows, columns), 77,
                  distribution.name, dict(distribution.simple), EDITS, optional=True, wide=wide)  # fmt: skip


RECIPES = [recipe(name, distribution) for name in OPERATIONS for distribution in distributions_for(name).values()]
WIDE = [name for name, operation in OPERATIONS.items() if operation.wide_first]
RECIPES += [recipe(name, distribution, True) for name in WIDE for distribution in distributions_for(name).values()]


def same(made, get, kind):
    host, device = expand(made), expand(made, like=kind)
    assert set(host.inputs) == set(device.inputs)
    assert all(array.flags.c_contiguous and array.flags.writeable for array in host.inputs.values())
    for name, want in host.inputs.items():
        got = device.inputs[name]
        assert isinstance(got, type(kind)), f"{name} left the device"
        bits = get(got)
        assert (bits.view(float_bits(want).dtype if want.dtype.kind != "i" else want.dtype) ==
                (want if want.dtype.kind == "i" else float_bits(want))).all()  # fmt: skip


@pytest.mark.parametrize("made", RECIPES, ids=lambda r: f"{r.operation}-{r.distribution}{'-wide' * r.wide}")
def test_on_the_stand_in(made):
    same(made, lambda array: array.host, stand_in.DeviceArray(np.zeros(1, np.uint32)))


@pytest.fixture(scope="module")
def cupy():
    """Look for CuPy and a device once: each of hundreds of tests would look through all folders."""
    found = pytest.importorskip("cupy")
    try:
        if not found.cuda.runtime.getDeviceCount():
            pytest.skip("no CUDA device")
    except found.cuda.runtime.CUDARuntimeError:
        pytest.skip("no CUDA device")
    return found


@pytest.mark.parametrize("made", RECIPES, ids=lambda r: f"{r.operation}-{r.distribution}{'-wide' * r.wide}")
def test_on_cupy(made, cupy):
    same(made, lambda array: array.get(), cupy.zeros(1, cupy.uint32))


@pytest.mark.parametrize("name", ["quantize_mxfp4", "mxfp4_to_fp8", "fp8_to_mxfp4"])
def test_no_input_is_a_view_that_repeats_itself(name):
    for distribution in distributions_for(name).values():
        for rows, width in ((1, 32), (7, 32), (1, 160), (3, 4096)):
            made = recipe(name, distribution)
            made = Recipe(name, "HOPPER", made.params, (rows, width), 1, distribution.name, made.parameters)
            for array in expand(made).inputs.values():
                assert array.flags.c_contiguous and array.flags.writeable and 0 not in array.strides
