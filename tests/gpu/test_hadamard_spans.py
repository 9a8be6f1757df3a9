"""Rotations of groups whose numbers lie near and far apart, on the emulated device and by the host build: each way of
summing, its bounds.
"""

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.gpu import emulate, host

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

ROTATIONS = (emulate.subject_operations(emulate.Emulator())["hadamard16"], host.hadamard16)
BINADES = (11, 12, 13, 24, 25, 26, 34, 60, 250)
"""float32 sums to 12, doubles to 25, limbs beyond."""


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("binades", BINADES)
def test_groups_of_a_span(binades, dtype):
    rng = np.random.default_rng(binades)
    x = np.ldexp(rng.standard_normal((32, 64)), rng.integers(-binades, 1, (32, 64)) + rng.integers(-9, 9, (32, 1)))
    x[rng.random(x.shape) < 0.1] = -0.0
    x = x.clip(-3e38, 3e38).astype(np.float32).astype(dtype)
    for order in ("exact", "sequential"):
        for out in ("bfloat16", "float32"):
            given = {"signs": 0xA5C3, "axis": -1, "order": order, "dtype": out}
            wanted = np.asarray(refnum.hadamard16(x, **given)).tobytes()
            assert [np.asarray(rotate(x=x, **given)).tobytes() == wanted for rotate in ROTATIONS] == [True, True]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
def test_what_breaks_a_tie_lies_far_below(dtype):
    """Two numbers make a tie of the result's format, and a third one, as far below as a sum can keep, breaks it."""
    rng = np.random.default_rng(1)
    for half, out in ((8, "bfloat16"), (24, "float32")):
        below = np.arange(half + 1, 120)
        x = np.zeros((len(below), 16))
        for row, n in enumerate(below):
            x[row, rng.permutation(16)[:3]] = 1, 2.0**-half, rng.choice([-1, 1]) * 2.0**-n
        x = x.astype(np.float32).astype(dtype)
        given = {"signs": 0xA5C3, "axis": -1, "order": "exact", "dtype": out}
        wanted = np.asarray(refnum.hadamard16(x, **given)).tobytes()
        assert [np.asarray(rotate(x=x, **given)).tobytes() == wanted for rotate in ROTATIONS] == [True, True]
