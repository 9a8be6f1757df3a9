"""The columns by keys, by binary16 and by bits (column_keys.cuh, column_halves.cuh, bit_planes.cuh) against the model:
the host build.

E4M3 rows within 11 binades, from byte 9 on, go by keys, those within 18 by two multiplies, E2M1 columns that end
within 27 by bit planes, others by the general form; all borders are here, at both ends of the bytes, with every pair
of codes and columns whose own maxima lie anywhere below the block's.
"""

from __future__ import annotations

import numpy as np
import pytest

import refnum
from refnum.gpu import host

if not host.available()[0]:
    pytest.skip(host.available()[1], allow_module_level=True)

TALL = {"mxfp4_columns": 32, "mxfp4_to_fp8_columns": 128}
CODES = np.array([(low, high) for low in range(16) for high in range(16)], np.uint8)
"""Every pair of codes, one pair a column."""


def packed(codes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(codes[:, 0::2] | codes[:, 1::2] << 4)


def same(name: str, codes: np.ndarray, scales: np.ndarray, mode: str) -> None:
    given = packed(codes), scales
    for want, got in zip(
        getattr(refnum, name)(*given, None, mode), getattr(host, name)(*given, None, mode), strict=True
    ):
        assert np.array_equal(want, got), np.argwhere(want != got)[:3]


@pytest.mark.parametrize("name", list(TALL))
@pytest.mark.parametrize("spread", (*range(24), *range(26, 34)))
def test_every_pair_of_codes_of_two_rows(name: str, spread: int) -> None:
    for top in sorted({spread, spread + 1, spread + 5, spread + 8, spread + 9, 127, 253, 254}):
        for first, second in ((0, 1), (1, 0), (5, TALL[name] - 1)):
            codes = np.zeros((TALL[name], 256), np.uint8)
            codes[first], codes[second] = CODES[:, 0], CODES[:, 1]
            scales = np.zeros((TALL[name], 8), np.uint8)
            scales[first], scales[second] = top, top - spread
            for mode in ("max", "amax"):
                same(name, codes, scales, mode)


@pytest.mark.parametrize("name", list(TALL))
def test_columns_of_their_own_maxima(name: str) -> None:
    rng = np.random.default_rng(0)
    for spread in (3, 11, 14, 15, 18, 19, 26, 27, 28, 31, 32, 90):
        scales = rng.integers(100 - spread, 101, (2 * TALL[name], 8)).astype(np.uint8)
        codes = rng.integers(0, 16, (2 * TALL[name], 256)).astype(np.uint8)
        codes[rng.random(codes.shape) < np.linspace(0, 1.02, 256)] &= 8  # the last columns hold zeros of both signs
        for mode in ("max", "amax"):
            same(name, codes, scales, mode)


def test_every_code_at_every_distance_of_fp8_rows() -> None:
    """`rne`: 2**-18 and more is no binary16 power of the first multiply."""
    codes = np.zeros((42, 256), np.uint8)
    codes[1:] = np.arange(256, dtype=np.uint8)
    codes[0] = 0x38
    for distance in range(24):
        scales = np.full((42, 2), 200 - distance, np.uint8)
        scales[0] = 200
        want, got = (f(codes, scales, [41, 1], "rne") for f in (refnum.fp8_columns, host.fp8_columns))
        assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True)), distance


def test_rows_and_columns_are_the_two_operations() -> None:
    rng = np.random.default_rng(1)
    codes, scales = rng.integers(0, 256, (150, 80), np.uint8), rng.integers(100, 140, (150, 5)).astype(np.uint8)
    scales[7, 2], codes[9] = 255, 0
    for mode in ("max", "amax"):
        got = host.mxfp4_to_fp8_rows_columns(codes, scales, [20, 0, 130], mode)
        rows, columns = (
            refnum.mxfp4_to_fp8(codes, scales, mode),
            refnum.mxfp4_to_fp8_columns(codes, scales, [20, 0, 130], mode),
        )
        for outputs in (got, refnum.mxfp4_to_fp8_rows_columns(codes, scales, [20, 0, 130], mode)):
            assert all(np.array_equal(a, b) for a, b in zip(outputs, (*rows, *columns), strict=True))
