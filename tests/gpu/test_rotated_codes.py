"""NVFP4 from the sums of rotated groups, emulated: maxima whose factors are moved, groups that take the other way."""

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.gpu import emulate

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

EMULATED = emulate.subject_operations(emulate.Emulator())["hadamard_quantize_nvfp4"]
SHAPE = 70, 80
"""Tiles of 32 groups that are whole, and one that is not, along both axes."""


def compared(x, **given):
    want, got = (function(x=x, **given) for function in (refnum.hadamard_quantize_nvfp4, EMULATED))
    assert [np.asarray(part).tobytes() for part in want] == [np.asarray(part).tobytes() for part in got]


def normal(rng):
    return rng.standard_normal(SHAPE).astype(np.float32).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("variant", ["TE", "TE_2_8", "TORCHAO"])
def test_maxima_whose_factors_meet_ties(variant, axis):
    """2688 is 21 * 2**7: under its parts products of bfloat16 and a factor lie on ties, on one side or on both."""
    rng = np.random.default_rng(1)
    for amax in (2688, 42, 147, 12, 9, 7, 5.25, 3, 1.75, *rng.uniform(3, 9, 3)):
        compared(normal(rng), axis=axis, variant=variant, tensor_amax=np.array([amax], np.float32))


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("variant", ["TE", "TORCHAO"])
def test_groups_of_no_ordinary_size(variant, axis):
    """Zeros, groups far below the tensor's maximum and above it, and sums at the ends of the range.

    A launch takes as long for six tensors as for one: under a given maximum, where groups stand alone,
    they are one tensor, side by side along the axis that no group follows.
    """
    rng, tensors = np.random.default_rng(2), []
    for low, high in ((-3, 1), (-20, 6), (-60, -30), (-130, -100), (60, 126), (-133, 127)):
        exponents = rng.integers(low, high, SHAPE)
        exponents[:] = exponents[:, :1] if axis else exponents[:1]
        x = np.ldexp(rng.standard_normal(SHAPE), exponents).clip(-3e38, 3e38).astype(np.float32)
        x[16:32] = 0
        tensors.append(x.astype(ml_dtypes.bfloat16))
        compared(tensors[-1], axis=axis, variant=variant)
    for amax in (1.3, 1e-30, 1e30):
        together = np.concatenate(tensors, axis=0 if axis else 1)
        compared(together, axis=axis, variant=variant, tensor_amax=np.array([amax], np.float32))
