"""NVFP4 from the sums of rotated groups, emulated: factors that meet ties, wide groups, and the other way."""

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


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("order", ["exact", "sequential"])
@pytest.mark.parametrize("variant", ["TE", "MODELOPT"])
def test_wide_groups_beside_ordinary_ones(variant, order, axis):
    """Rows or columns at powers of two of their own, and numbers that a step cuts off, some of which break a tie."""
    rng = np.random.default_rng(3)
    x = np.ldexp(normal(rng).astype(np.float32), rng.integers(-9, 9, (SHAPE[0], 1) if axis == 0 else (1, SHAPE[1])))
    x[:, 8] = np.ldexp(rng.choice([-1, 1], SHAPE[0]), rng.integers(-40, 0, SHAPE[0]))
    x[::16, 32:48] = 0
    x[::16, 32:35] = [1 + 2.0**-7, 2.0**-9, -(2.0**-23)]
    for amax in (None, 300, 42):
        maximum = {} if amax is None else {"tensor_amax": np.array([amax], np.float32)}
        compared(x.astype(ml_dtypes.bfloat16), axis=axis, order=order, variant=variant, **maximum)


@pytest.mark.parametrize("binades", [30, 39, 40, 41, 44, 47, 60, 120])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("variant", ["TE", "MODELOPT"])
def test_what_breaks_a_tie_of_the_maximum_lies_far_below(variant, axis, binades):
    """Sums in double hold 40 binades. Under the given maximum the scale tells the bfloat16 on both sides apart."""
    x = np.zeros((64, 64), np.float32)
    x[[16, 21, 30], 37] = 1, 2.0**-8, 2.0**-binades
    x = (x if axis == 0 else x.T.copy()).astype(ml_dtypes.bfloat16)
    for maximum in ({}, {"tensor_amax": np.array([1.125], np.float32)}):
        compared(x, signs=0, axis=axis, variant=variant, **maximum)


def test_full_ctas_down_columns():
    """A CTA of 512 rows writes its codes two groups at a time where a row's scales are whole words."""
    x = np.random.default_rng(4).standard_normal((1088, 72)).astype(ml_dtypes.bfloat16)
    for rows in (1088, 1072):
        compared(x[:rows], axis=0, tensor_amax=np.array([40], np.float32))


LAST_CUT = [1, 2.0**-8, *(sign * 2.0**-binade for binade in range(11, 17) for sign in (1, -1)),
            2.0**-17 * (1 + 2.0**-7), -(2.0**-17)]  # fmt: skip
"""Numbers whose sum of 25 digits, cut to 24, lies halfway between two bfloat16."""
SHIFTED_OUT = [1, 2.0**-8 - 2.0**-16, 2.0**-19, 2.0**-19 - 2.0**-24, *[2.0**-20 * (1 + 2.0**-7)] * 12]
"""Numbers whose sum lies above halfway, and below it without the digits that a step shifts out."""


@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize("column", [LAST_CUT, SHIFTED_OUT], ids=["last cut", "shifted out"])
@pytest.mark.parametrize("variant", ["TE", "MODELOPT"])
def test_a_sum_beside_halfway_that_a_step_rounds_otherwise(variant, column, output):
    """It is its block's largest: under this maximum the block's scale tells the two bfloat16 beside it apart."""
    turned = np.float32(column) * np.tile(np.float32([1, -1 if output else 1]), 8)
    x = np.repeat(turned[:, None], SHAPE[1], 1)
    assert np.array_equal(x, x.astype(ml_dtypes.bfloat16).astype(np.float32))
    maximum = np.array([1.125], np.float32)
    compared(x.astype(ml_dtypes.bfloat16), signs=0, axis=0, variant=variant, tensor_amax=maximum)


@pytest.mark.parametrize("order", ["exact", "sequential"])
@pytest.mark.parametrize("variant", ["TE", "MODELOPT"])
def test_full_ctas_down_columns_of_all_kinds(variant, order):
    """In turn groups that are ordinary, with zeros, of powers of two of their own, wide, few numbers, and any bits."""
    rng, shape = np.random.default_rng(5), (512, 80)
    x = rng.standard_normal(shape)
    groups = x.reshape(-1, 16, shape[1])
    groups[1::6, :, ::3] = 0
    groups[2::6] *= np.exp2(rng.integers(-5, 5, groups[2::6, :1].shape))
    groups[3::6] *= np.exp2(rng.integers(-9, 9, groups[3::6].shape))
    groups[4::6] = np.array([1 + 2.0**-7, 2.0**-9, -(2.0**-23), 2.0**-9, *[0] * 12])[:, None]
    x = x.astype(ml_dtypes.bfloat16)
    x.view(np.uint16).reshape(groups.shape)[5::6] = rng.integers(0, 1 << 16, groups[5::6].shape)
    for amax in (40, 42, None):
        maximum = {} if amax is None else {"tensor_amax": np.array([amax], np.float32)}
        compared(x, axis=0, order=order, variant=variant, **maximum)
