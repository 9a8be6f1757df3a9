"""Column kernels in orders that sweeps try and TUNING may take one day, on the emulated device, races among them.

Blocks of rows are whole and short, where a warp turns several groups of columns; a cluster's CTAs do not all get one.
Rows of 288 columns have scales that no vector load can take, rows of 512 are read by vectors alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import refnum
from refnum.gpu import emulate
from refnum.gpu.ops import columns
from refnum.gpu.ops.columns import Order

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

SPLITS = [0, 160, 0, 2, 62, 158, 32, 128, 30]
WHOLE = [160, 96, 32, 224, 60]
"""Eight blocks of 32 rows, of several experts and all whole, twice; then short ones."""
ORDERS = {
    "mxfp4_to_fp8_columns": (
        Order(2, 4, 256),
        Order(1, 8, 128, 1),
        Order(4, 3, 256),
        Order(2, 8, turns=2),
    ),
    "mxfp4_to_fp8_rows_columns": (Order(0, 4, 256, 1, 2), Order(1, 8, 128, 0, 4)),
    "mxfp4_columns": (Order(0, 3, 256, 1), Order(1, 5)),
}
STRIPS = {
    "mxfp4_to_fp8_columns_amax": (Order(2, 5, strip=2, ahead=1), Order(0, 6, strip=3), Order(1, 7, strip=2, line=64)),
    "mxfp4_to_fp8_rows_columns_amax": (
        Order(0, 5, strip=2, ahead=1, line=64),
        Order(0, 5, strip=3),
        Order(0, 7, strip=2, line=64),
    ),
    "mxfp4_columns_amax": (Order(2, 4, strip=4), Order(1, 4, strip=3, line=64)),
}
"""Function -> orders in which CTAs walk several windows where experts begin anywhere."""
LONG = [301, 3, 257, 641, 33, 29, 0, 5, 125]
"""Rows of several strips, which meet within sixteen bytes of a column."""


def compare(name: str, k: int, lowest: int, above: int, all_splits: Sequence[list[int] | None], seed: int) -> None:
    """Every mode against the model, scale bytes from `lowest` on."""
    call = emulate.subject_operations(emulate.Emulator())[name]
    rng = np.random.default_rng(seed)
    for mode in ("max", "amax"):
        for splits in all_splits:
            m = sum(splits or SPLITS)
            codes = rng.integers(0, 256, (m, k // 2)).astype(np.uint8)
            given = codes, rng.integers(lowest, lowest + above, (m, k // 32)).astype(np.uint8)
            wanted = getattr(refnum, name)(*given, splits, mode)
            got = call(*given, scale=mode, **({"splits": splits} if splits else {}))
            for number, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
                assert np.array_equal(ours, theirs), f"{mode}, {splits}: output {number}"


@pytest.mark.parametrize(("name", "order"), [(name, order) for name, orders in ORDERS.items() for order in orders])
def test_orders(name: str, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in columns.TUNING:
        if function.rpartition("_")[0] == name:
            monkeypatch.setitem(columns.TUNING, function, order)
            if name != "mxfp4_columns":  # its strips take more memory, its windows are of four of the host's
                monkeypatch.setitem(columns.RAGGED, function, order._replace(ragged=1))
    for lowest, above in ((0, 256), (120, 12), (60, 60)):
        compare(name, 288, lowest, above, (None, SPLITS), order.wide)


@pytest.mark.parametrize(("function", "order"), [(name, order) for name, orders in STRIPS.items() for order in orders])
def test_strips(function: str, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(columns.RAGGED, function, order._replace(ragged=1))
    for lowest, above in ((0, 256), (120, 12)):
        name = function.rpartition("_")[0]
        rows = [n + n % 2 for n in LONG] if name == "mxfp4_columns" else LONG
        compare(name, 96, lowest, above, (rows, rows[::-1]), 2)


@pytest.mark.parametrize(("function", "order"), [(name, order) for name, orders in STRIPS.items() for order in orders])
def test_rows_that_decide_for_the_window_beside(function: str, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a window lie near each other: those of every other one far above, or one of them has no value."""
    monkeypatch.setitem(columns.RAGGED, function, order._replace(ragged=1))
    name = function.rpartition("_")[0]
    rows = [n + n % 2 for n in LONG]
    rng, m, k = np.random.default_rng(7), sum(rows), 256
    codes = rng.integers(0, 256, (m, k // 2)).astype(np.uint8)
    codes[:, :4] &= 0x88  # columns of zeros
    near = rng.integers(117, 121, (m, k // 32))
    far = near + np.arange(m)[:, None] // 128 % 2 * 14
    nan = np.where(np.arange(m)[:, None] == 3 * 128 + 5, 255, near)
    call = emulate.subject_operations(emulate.Emulator())[name]
    for scales in (far.astype(np.uint8), nan.astype(np.uint8)):
        wanted = getattr(refnum, name)(codes, scales, rows, "amax")
        for number, (ours, theirs) in enumerate(zip(call(codes, scales, rows, "amax"), wanted, strict=True)):
            assert np.array_equal(ours, theirs), f"output {number}"


@pytest.mark.parametrize("name", list(ORDERS))
def test_rows_read_by_vectors(name: str) -> None:
    compare(name, 512, 120, 12, (None, SPLITS, WHOLE), 0)
    compare(name, 512, 0, 256, (WHOLE,), 1)
