"""Column conversions by splits on the device, emulated: the host's results, and what stands in for its refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError
from refnum.gpu import emulate, ops

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

MODES = {
    "mxfp4_to_fp8_columns": ("max", "amax"),
    "mxfp4_to_fp8_rows_columns": ("max", "amax"),
    "fp8_columns": ("rne", "te"),
    "mxfp4_columns": ("max", "amax"),
}
CASES = [(name, mode) for name, modes in MODES.items() for mode in modes]
POISON, K = 0xA5, 96
EMULATOR = emulate.Emulator()


def inputs(name: str, m: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng, wide = np.random.default_rng(m), 1 if name == "fp8_columns" else 2
    codes = rng.integers(0, 256, (m, K // wide)).astype(np.uint8)
    return codes, rng.integers(115, 128, (m, 1 if wide == 1 else K // 32)).astype(np.uint8)


def poisoned(*shape: int) -> emulate.EmulatedArray:
    return emulate.array(np.full(shape, POISON, np.uint8), written=True)


def call(name: str, mode: str, m: int, splits: np.ndarray[Any, Any], blocks: int) -> list[np.ndarray[Any, Any]]:
    """The operation's results in `out`, whose scales have room for some blocks."""
    rows = (poisoned(m, K), poisoned(m, 1)) if name == "mxfp4_to_fp8_rows_columns" else ()
    out = (*rows, poisoned(K, m // (2 if name == "mxfp4_columns" else 1)), poisoned(blocks, K))
    with EMULATOR.running():
        got = getattr(ops, name)(*map(emulate.array, inputs(name, m)), emulate.array(splits), mode, out=out)
    assert all(a is b for a, b in zip(got, out, strict=True))
    return [np.asarray(x) for x in out]


@pytest.mark.parametrize(
    ("splits", "dtype", "m"),
    [
        ([130, 0, 132, 2, 254, 4, 120], np.int32, 642),
        ([300, 300, 300], np.int64, 900),
        ([10, 20, 6], np.uint8, 512),  # rows of no expert
        ([], np.int64, 256),
        ([100, 900, -4, 30], np.int16, 640),  # counts that are none
        ([400, 400], np.uint32, 640),  # more rows than there are
    ],
)
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_as_by_splits_of_the_host(name: str, mode: str, splits: list[int], dtype: Any, m: int) -> None:
    tall, codes = (32, 2) if name == "mxfp4_columns" else (128, 1)
    fitting, held = [], 0
    for rows in splits:
        fitting.append(min(rows if 0 <= rows <= m else 0, m - held))
        held += fitting[-1]
    needed = sum(-(-rows // tall) for rows in fitting)
    *rows, columns, scales = call(name, mode, m, np.array(splits, dtype), needed + 2)
    *wanted_rows, wanted_columns, wanted_scales = getattr(refnum, name)(
        *(x[:held] for x in inputs(name, m)), fitting, mode
    )
    assert np.array_equal(columns[:, : held // codes], wanted_columns)
    assert not columns[:, held // codes :].any()
    assert np.array_equal(scales[:needed], wanted_scales) and (scales[needed:] == POISON).all()
    for got, wanted in zip(rows, wanted_rows, strict=True):
        assert np.array_equal(got[:held], wanted) and (got[held:] == POISON).all()


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_blocks_without_room_are_dropped(name: str, mode: str) -> None:
    want = getattr(refnum, name)(*inputs(name, 384), [200, 184], mode)
    got = call(name, mode, 384, np.array([200, 184]), 1)
    assert np.array_equal(got[-2], want[-2]) and np.array_equal(got[-1], want[-1][:1])


def test_out_is_needed() -> None:
    given = [emulate.array(x) for x in (*inputs("mxfp4_columns", 64), np.array([64]))]
    with EMULATOR.running(), pytest.raises(ArgumentError, match="splits lie on the device but out is not a tuple of 2"):
        ops.mxfp4_columns(*given)
