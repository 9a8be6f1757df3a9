"""Every launcher and every kernel file on the emulated device, against the golden model: all bits, no GPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from refnum.conformance.cases.case import Case
from refnum.conformance.cases.operation import OPERATIONS, as_bits, call_golden
from refnum.conformance.cases.recipes import expand, sampled_recipes
from refnum.conformance.subjects.subject import Subject, arguments_for, takes_out
from refnum.errors import ArgumentError, ShapeError, UnsupportedError
from refnum.gpu import emulate, ops

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

EMULATOR = emulate.Emulator()
SUBJECT = Subject("emulated", emulate.subject_operations(EMULATOR), "host", ("HOPPER", "OCP"))
LAUNCHERS = [name for name in ops.__all__ if name in OPERATIONS]
CASES = 2
"""Sampled cases a variant."""
MOST = 2000
"""Elements that a case has about."""


def cases(operation: str) -> Iterator[Case]:
    """Small cases of every variant that the launcher takes, under both profiles."""
    entry = OPERATIONS[operation]
    for params in entry.variants():
        for number, profile in enumerate(("HOPPER", "OCP") if entry.profiled else ("HOPPER",)):
            if SUBJECT.refuses(operation, profile, params):
                continue
            drawn = sampled_recipes(operation, profile, params, seed=7 + number, examples=12)
            sized = sorted(drawn, key=lambda recipe: abs(MOST - recipe.shape[0] * recipe.shape[1]))
            yield from (expand(recipe) for recipe in sized[:CASES])


def as_is(x: np.ndarray) -> np.ndarray:
    return np.array(x, copy=True)


def misaligned(x: np.ndarray) -> np.ndarray:
    """Rows with a gap of poison between, three items past an aligned address; one axis: contiguous."""
    if x.ndim != 2:
        store = np.zeros(x.size + 3, x.dtype)
        store[3:] = x.reshape(-1)
        return store[3:].reshape(x.shape)
    store = np.full((x.shape[0], x.shape[1] + 8), 77, np.uint8).astype(x.dtype)
    store[:, 3 : 3 + x.shape[1]] = x
    return store[:, 3 : 3 + x.shape[1]]


def upside_down(x: np.ndarray) -> np.ndarray:
    """Rows with a negative stride."""
    return np.ascontiguousarray(x[::-1])[::-1]


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as is": as_is, "misaligned": misaligned, "upside down": upside_down,
}  # fmt: skip


def call(case: Case, layout: Callable[[np.ndarray], np.ndarray], **extra: Any) -> tuple[np.ndarray, ...]:
    """Call with arrays in their places, as users do: these calls are planned, and repeated from their plan."""
    values = arguments_for(SUBJECT, case, {name: layout(x) for name, x in case.inputs.items()}) | extra
    function = SUBJECT.operations[case.operation]
    places = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    given = []
    while places and places[0] in case.inputs and places[0] in values:
        given.append(values.pop(places.pop(0)))
    result = function(*given, **values)
    return tuple(x for x in (result if isinstance(result, tuple) else (result,)) if x is not None)


def equal(case: Case, got: tuple[np.ndarray, ...], wanted: tuple[np.ndarray, ...]) -> None:
    assert len(got) >= len(wanted)
    for ours, theirs in zip(got, wanted, strict=False):
        assert ours.shape == theirs.shape, str(case)
        assert np.array_equal(as_bits(ours), as_bits(theirs)), str(case)


def layouts(operation: str, number: int) -> list[str]:
    """Return the layouts that are asked of a case, by its number; each is asked twice where all are."""
    if OPERATIONS[operation].dear == 1 or number < CASES:
        return list(LAYOUTS)
    return [list(LAYOUTS)[number % 2]]


@pytest.mark.parametrize("operation", LAUNCHERS)
def test_launcher(operation: str) -> None:
    """Every variant on aligned and on misaligned operands, in every layout and from its plan.

    A tile of a product is emulated for a tenth of a second: the plan and the third layout, which are the launcher's,
    are asked of its first variant alone.
    """
    judged = 0
    for number, case in enumerate(cases(operation)):
        wanted, asked = call_golden(case), layouts(operation, number)
        for name in asked:
            layout = LAYOUTS[name]
            try:
                got = call(case, layout)
            except UnsupportedError:  # a variant that the kernels lack
                break
            except (ShapeError, ArgumentError) as error:  # some launchers take contiguous or aligned arrays only
                assert layout is not as_is, f"{case}: {error}"
                continue
            equal(case, got, wanted)
            if asked == list(LAYOUTS):
                equal(case, call(case, layout), wanted)  # the second call takes the plan
            judged += 1
    assert judged > 0


@pytest.mark.parametrize("operation", LAUNCHERS)
def test_outputs_of_the_caller(operation: str) -> None:
    if not takes_out(SUBJECT.operations[operation], operation):
        pytest.skip("takes no out")
    for case in list(cases(operation))[:2]:
        wanted = call_golden(case)
        try:
            fresh = call(case, as_is)
        except UnsupportedError:
            continue
        stores = [np.full(x.nbytes + 512, 0xA5, np.uint8) for x in fresh]
        starts = [256 - int(store.ctypes.data) % 256 for store in stores]
        outs = tuple(
            store[at : at + x.nbytes].view(x.dtype).reshape(x.shape)
            for store, at, x in zip(stores, starts, fresh, strict=True)
        )
        for _ in range(2):
            got = call(case, as_is, out=outs if len(outs) > 1 else outs[0])
            equal(case, got, wanted)
            assert got[0] is outs[0]
        for store, at, x in zip(stores, starts, fresh, strict=True):
            assert (store[:at] == 0xA5).all() and (store[at + x.nbytes :] == 0xA5).all()


@pytest.mark.parametrize("seed", [0, 2])
def test_order_of_threads_does_not_matter(seed: int) -> None:
    other = emulate.subject_operations(emulate.Emulator(seed=seed))
    for operation in ("fp8_columns", "mxfp4_to_fp8_columns", "quantize_fp8_tiles", "fp8_to_mxfp4"):
        case = next(cases(operation))
        result = other[operation](**arguments_for(SUBJECT, case, case.inputs))
        equal(case, result, call_golden(case))


def test_no_rows() -> None:
    x, scales = np.zeros((0, 128), np.uint8), np.zeros((0, 1), np.uint8)
    assert [y.shape for y in SUBJECT.operations["fp8_to_mxfp4"](x, scales)] == [(0, 64), (0, 4)]
    assert [y.shape for y in SUBJECT.operations["fp8_columns"](x, scales, splits=[0, 0])] == [(128, 0), (0, 128)]


def test_many_blocks_of_rows_take_several_launches() -> None:
    rows = 1920 + 7  # ragged experts of one row each: a block of rows each, 1920 a launch
    x, scales = (
        np.arange(rows * 32, dtype=np.uint32).astype(np.uint8).reshape(rows, 32),
        np.full((rows, 1), 120, np.uint8),
    )
    case = Case(
        "fp8_columns", "HOPPER", {"underflow": "rne", "splits": [1] * rows}, {"codes": x & 0x7B, "scales": scales}
    )
    equal(case, call(case, as_is), call_golden(case))


def test_a_short_tile_behind_several_whole_ones() -> None:
    """Tile 5 of a row has 12 of 16 chunks: how many there are is counted from its own start, and no other's."""
    x = (np.random.default_rng(3).standard_normal((128, 608)) * 8).astype(ml_dtypes.bfloat16)
    case = Case("quantize_fp8_tiles", "HOPPER", {"tile": (128, 128)}, {"x": x})
    equal(case, call(case, as_is), call_golden(case))


def test_the_device_is_put_back() -> None:
    from refnum.gpu.device import driver

    assert driver.stand_in.driver is None
    with pytest.raises(ShapeError):
        SUBJECT.operations["quantize_mxfp4"](np.zeros((2, 33), np.float32))
    assert driver.stand_in.driver is None


def test_an_empty_view_with_other_strides_is_contiguous():
    from refnum.gpu.device.arrays import OWN, View

    view = View("x", 4, (0, 64), (0, 0), np.dtype(np.float32), 0, OWN, None)
    assert view.contiguous and not View("x", 4, (2, 64), (0, 0), np.dtype(np.float32), 0, OWN, None).contiguous
