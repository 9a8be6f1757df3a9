"""INT4 quantisers (N26): model against oracle, exact means, known answers."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import oracle
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.exact_means import nearest_bits, root_bits
from refnum.integer_steps import rounded
from refnum.oracle import integer as second

STRANGE = np.array([0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000], np.uint32)


def words(shape, seed, spread=4, odd=0.0):
    dice = np.random.default_rng(seed)
    bits = dice.integers(0, 1 << 23, shape) | (127 + dice.integers(-spread, spread + 1, shape)) << 23
    found = np.where(dice.random(shape) < odd, dice.choice(STRANGE, shape), bits)
    return (found | dice.integers(0, 2, shape) << 31).astype(np.uint32)


def exact(x):
    name = x.dtype.name
    return [[oracle.float_value(int(b), name) for b in row] for row in x.view(f"u{x.dtype.itemsize}").tolist()]


SEEDS = [(seed, spread, odd) for seed, (spread, odd) in enumerate(
    [(1, 0), (4, 0), (4, 0.1), (60, 0), (120, 0.2), (0, 0), (20, 0.9)])]  # fmt: skip


@pytest.mark.parametrize(("seed", "spread", "odd"), SEEDS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_sawb_equals_the_oracle(seed, spread, odd, dtype):
    with np.errstate(all="ignore"):
        x = words((6, 32), seed, spread, odd).view(np.float32).astype(dtype)
    codes, scale = refnum.sawb(x)
    want = second.sawb(exact(x))
    assert scale.view(np.uint32).tolist() == want[1] and codes.tolist() == want[0]


@pytest.mark.parametrize("x", [np.full((2, 8), 3.0), np.zeros((2, 4)), np.zeros((0, 4)), np.full((1, 4), np.nan)])
def test_sawb_of_one_number_takes_it_for_its_clip(x):
    x = x.astype(np.float32)
    codes, scale = refnum.sawb(x)
    want = second.sawb(exact(x))
    assert codes.tolist() == want[0] and scale.view(np.uint32).tolist() == want[1]
    if x.size and x[0, 0] == 3:
        assert scale[0] == np.float32(6) / np.float32(15) and set(codes.ravel().tolist()) == {7}


@pytest.mark.parametrize("third", [0x047E8000, 0x047F8000])
def test_sawb_of_a_mean_that_a_subnormal_number_keeps_on_a_side_of_a_tie(third):
    x = np.array([[0x1C800000, 0x107FFFFF, third, 0x007FFFFF]], np.uint32).view(np.float32)
    codes, scale = refnum.sawb(x)
    want = second.sawb(exact(x))
    assert codes.tolist() == want[0] and scale.view(np.uint32).tolist() == want[1]


def test_sawb_whose_clip_is_exactly_zero_takes_the_largest_number_for_it():
    x = np.array([[0x3F800000, 0x3F45911F]], np.uint32).view(np.float32)
    codes, scale = refnum.sawb(x)
    want = second.sawb(exact(x))
    assert scale[0] == np.float32(2) / np.float32(15)
    assert codes.tolist() == want[0] and scale.view(np.uint32).tolist() == want[1]


def test_sawb_of_a_bell_is_near_its_own_formula():
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    clip = 12.1 * math.sqrt((x.astype(np.float64) ** 2).mean()) - 12.2 * np.abs(x.astype(np.float64)).mean()
    assert abs(float(refnum.sawb(x)[1][0]) - 2 * clip / 15) < 1e-5


def test_roots_and_roundings_are_correct():
    bits = np.concatenate([words((500,), 3, 126) & np.uint32(0x7FFFFFFF), STRANGE[:6]])
    for one in bits.tolist():
        value = oracle.float_value(one)
        assert nearest_bits(value) == one and nearest_bits(value * Fraction(4, 3)) == oracle.float_bits(
            value * Fraction(4, 3)
        )
        assert root_bits(one) == int(np.sqrt(np.array(one, np.uint32).view(np.float32)).view(np.uint32))
    got = rounded(words((2000,), 4, 30, 0.1))
    want = [second._whole(one) for one in words((2000,), 4, 30, 0.1).tolist()]
    assert [oracle.float_value(a) for a in got.tolist()] == [oracle.float_value(b) for b in want]


@pytest.mark.parametrize(("seed", "spread", "odd"), SEEDS)
@pytest.mark.parametrize("method", ["int4_affine", "efficient_qat"])
def test_affine_quantisers_equal_the_oracle(seed, spread, odd, method):
    x = words((5, 48), seed + 20, spread, odd).view(np.float32)
    for group in (4, 16):
        codes, scales, zeros = getattr(refnum, method)(x, group)
        want = second.affine(exact(x), group, method)
        assert scales.view(np.uint32).tolist() == want[1] and codes.tolist() == want[0]
        found = zeros.view(np.uint32) if zeros.dtype == np.float32 else zeros.astype(np.float32).view(np.uint32)
        left, right = ([[oracle.float_value(b) for b in row] for row in part] for part in (found.tolist(), want[2]))
        assert [[0 if v == "-0" else v for v in row] for row in left] == [
            [0 if v == "-0" else v for v in row] for row in right
        ]


@pytest.mark.parametrize(("seed", "spread", "odd"), SEEDS)
def test_keeping_two_equals_the_oracle(seed, spread, odd):
    x = words((5, 48), seed + 40, spread, odd).view(np.float32)
    x[0, :16] = 2.5
    for group in (3, 16):
        codes, scales, kept = refnum.int4_keep_two(x, group)
        want = second.keep_two(exact(x), group)
        assert scales.view(np.uint32).tolist() == want[1] and kept.tolist() == want[2] and codes.tolist() == want[0]


def test_the_two_largest_are_kept_and_the_third_is_seven():
    codes, scales, kept = refnum.int4_keep_two(np.array([[1, -40, 0.5, 30, -2, 0]], np.float32), 6)
    assert kept.tolist() == [[[1, 3]]] and scales.tolist() == [[2]] and codes.tolist() == [[4, 0, 2, 0, 9, 0]]


def test_known_answers_of_affine_groups():
    x = np.array([[-1, 0, 0.5, 2], [3, 3, 3, 3]], np.float32)
    codes, scales, zeros = refnum.int4_affine(x, 4)
    assert zeros.tolist() == [[5], [0]] and codes.tolist() == [[0, 5, 7, 15], [15] * 4]
    values = refnum.dequantize_int4(codes, scales, zeros)
    assert np.abs(values[0] - x[0]).max() <= 0.1 and scales[0, 0] == np.float32(0.2)


def test_dequantise_equals_the_oracle():
    dice = np.random.default_rng(5)
    codes = dice.integers(0, 16, (3, 24)).astype(np.uint8)
    scales = words((3, 4), 6, 30, 0.2).view(np.float32)
    for zeros in (None, dice.integers(0, 256, (3, 4)).astype(np.uint8), words((3, 4), 8, 4, 0.2).view(np.float32)):
        held = zeros if zeros is None or zeros.dtype == np.float32 else zeros.astype(np.float32)
        want = second.dequantize_int4(
            codes.tolist(), scales.view(np.uint32).tolist(), None if held is None else held.view(np.uint32).tolist()
        )
        assert refnum.dequantize_int4(codes, scales, zeros).view(np.uint32).tolist() == want
    one = refnum.dequantize_int4(codes, scales[0, :1])
    assert np.array_equal(one, refnum.dequantize_int4(codes, np.repeat(scales[:1, :1], 3, axis=0)), equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 6), (3, 0), (0, 0)])
def test_dequantise_of_nothing(shape):
    codes, scales = np.zeros(shape, np.uint8), np.ones((shape[0], 2), np.float32)
    for zeros in (None, scales, scales.astype(np.uint8)):
        assert refnum.dequantize_int4(codes, scales, zeros).shape == shape
        assert refnum.dequantize_int4(codes, np.ones(1, np.float32)).shape == shape


def test_whole_numbers_are_the_nearest():
    """Beside every half and whole number of each binade up to 2**24, subnormals, specials; the oracle's rounding."""
    halves = np.concatenate([np.arange(64) / 2, 2.0 ** np.arange(-3, 25), 2.0 ** np.arange(0, 23) + 0.5, [3e38]])
    near = halves.astype(np.float32).view(np.uint32)[:, None] + np.arange(-2, 3, dtype=np.int64)
    words = np.unique(np.append(np.clip(near, 0, None), [1, 0x7FFFFF, 0x7F800000, 0x7FC00000])).astype(np.uint32)
    words = np.concatenate([words, words | np.uint32(1 << 31)])
    assert rounded(words).tolist() == [second._whole(int(word)) for word in words]


X = np.zeros((2, 8), np.float32)


@pytest.mark.parametrize(("name", "arguments", "error"), [
    ("sawb", (X.astype(float),), DtypeError), ("sawb", (X[0],), ShapeError), ("int4_affine", (X, 3), ShapeError),
    ("int4_affine", (X, 0), ArgumentError), ("efficient_qat", (X, 2.0), ArgumentError),
    ("dequantize_int4", (X, X), DtypeError), ("int4_keep_two", (X, 2), ArgumentError),
    ("dequantize_int4", (X.astype(np.uint8) + np.uint8(16), np.ones(1, np.float32)), ArgumentError),
    ("dequantize_int4", (X.astype(np.uint8), X[:1]), ShapeError),
    ("dequantize_int4", (X.astype(np.uint8), X, X[:, :4]), ShapeError)])  # fmt: skip
def test_bad_arguments_are_refused(name, arguments, error):
    with pytest.raises(error):
        getattr(refnum, name)(*arguments)
