"""LLM-FP4 and LLM-QAT (N26.7, N26.8): model against oracle, logarithms, known answers, errors."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import oracle
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.llm_quantisers import _binades
from refnum.logarithms import _log2_between, _power_between, log2_bits, power_bits
from refnum.oracle import llm as second

STRANGE = np.array([0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000], np.uint32)


def words(shape, seed, spread=4, odd=0.0):
    dice = np.random.default_rng(seed)
    bits = dice.integers(0, 1 << 23, shape) | (127 + dice.integers(-spread, spread + 1, shape)) << 23
    found = np.where(dice.random(shape) < odd, dice.choice(STRANGE, shape), bits)
    return (found | dice.integers(0, 2, shape) << 31).astype(np.uint32)


def exact(x):
    name = x.dtype.name
    return [[oracle.float_value(int(b), name) for b in row] for row in x.view(f"u{x.dtype.itemsize}").tolist()]


def bits(x):
    return x.view(np.uint32).tolist()


def number(pattern):
    return Fraction(float(np.uint32(pattern).view(np.float32)))


def test_logarithms_and_powers_equal_the_oracle():
    dice = np.random.default_rng(1)
    patterns = [1, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x40000001, 0x3FFFFFFF, 0x7F7FFFFF]
    for pattern in (*patterns, *dice.integers(1, 0x7F800000, 200).tolist()):
        assert log2_bits(pattern) == second.log2_float(number(pattern)), hex(pattern)
    for pattern in (0, 1, 0x3F000000, 0x40400000, 0x33800000, *dice.integers(0x30000000, 0x42C80000, 200).tolist()):
        for one in (pattern, pattern | 1 << 31):
            assert power_bits(one) == second.power_float(number(one)), hex(one)
    assert log2_bits(0x3F800001) == 0x3438AA3A  # 1.442695... of 2**-23, less a part of 2**-46


@pytest.mark.parametrize(("value", "digits"), [(0x8FFFFF, 12), (0x983C71, 9)])
def test_an_interval_of_few_digits_holds_the_logarithm(value, digits):
    low, high = _log2_between(Fraction(value, 1 << 23), digits)
    assert low <= Fraction(math.log2(value / (1 << 23))) <= high


def test_an_interval_whose_next_digit_is_open_is_left_two_digits_wide():
    assert _log2_between(Fraction(97, 64), 6) == (Fraction(1, 2), Fraction(3, 4))


@pytest.mark.parametrize(("fraction", "digits"), [(Fraction(15, 32), 25), (Fraction(67, 4096), 19)])
def test_an_interval_holds_a_power_that_is_next_to_its_upper_end(fraction, digits):
    low, high = _power_between(fraction, digits)
    assert low**fraction.denominator <= 2**fraction.numerator <= high**fraction.denominator


@pytest.mark.parametrize(("digits", "most"), [(8, 70), (12, 17), (16, 3)])
def test_intervals_of_few_digits_hold_every_logarithm_and_are_narrow(digits, most):
    """v**(2**p) lies between 2**found and 2**(found + width), p the digits that are found; `most` are left open."""
    places = digits // 2
    open_ = 0
    for step in range(512):
        value = 1 + Fraction(step, 512)
        low, high = _log2_between(value, digits)
        assert 0 <= low < high and (1 << places) % low.denominator == 0 == (1 << places) % high.denominator
        power = value ** (1 << places)
        assert Fraction(2) ** int(low * (1 << places)) <= power <= Fraction(2) ** int(high * (1 << places))
        open_ += high - low > Fraction(1, 1 << places)
    assert open_ <= most


@pytest.mark.parametrize(("digits", "units"), [(6, 27), (10, 28), (20, 31)])
def test_intervals_of_few_digits_hold_every_power_and_are_narrow(digits, units):
    for step in range(64):
        low, high = _power_between(Fraction(step, 64), digits)
        assert low**64 <= Fraction(2) ** step <= high**64
        assert 0 <= high - low <= Fraction(units, 1 << digits) and (high > low or not step)
        assert (1 << digits) % low.denominator == 0 == (1 << digits) % high.denominator


SEEDS = [(seed, spread, odd) for seed, (spread, odd) in enumerate([(1, 0), (4, 0.1), (60, 0.1), (3, 0.9)])]


@pytest.mark.parametrize(("seed", "spread", "odd"), SEEDS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("width", [1, 2])
def test_llm_fp4_equals_the_oracle(seed, spread, odd, dtype, width):
    with np.errstate(all="ignore"):
        x = words((5, 16), seed, spread, odd).view(np.float32).astype(dtype)
    tops = (words(5, seed, 5) & np.uint32(0x7FFFFFFF)).view(np.float32)
    for chosen in (tops, tops[:1], np.array([1.5 * 2.0**-100], np.float32), np.array([2.0**100], np.float32)):
        codes, values = refnum.llm_fp4(x, chosen, width)
        want = second.llm_fp4(exact(x), [Fraction(float(top)) for top in chosen], width)
        assert codes.tolist() == want[0] and bits(values) == want[1]


@pytest.mark.parametrize("width", [1, 2])
def test_llm_fp4_beside_every_step(width):
    """The numbers beside each binade and beside each middle of two values."""
    for top in (6.0, 5.0, 1.75, 0.1):
        grid = (
            [top * step / 7 / 2 for step in range(1, 15)] if width == 1 else [top * step / 48 for step in range(1, 49)]
        )
        near = np.array(grid, np.float32).view(np.uint32)[:, None] + np.arange(-3, 4, dtype=np.int32).astype(np.uint32)
        x = near.view(np.float32)
        chosen = np.array([top], np.float32)
        codes, values = refnum.llm_fp4(x, chosen, width)
        want = second.llm_fp4(exact(x), [Fraction(float(chosen[0]))], width)
        assert codes.tolist() == want[0] and bits(values) == want[1]


@pytest.mark.parametrize("width", [1, 2])
def test_llm_fp4_at_the_first_number_of_every_binade(width):
    for top in (0x40C00000, 0x40C00001, 0x3DCCCCCD, 0x42F6E979, 0x0E000000, 0x71000000):
        starts, _ = _binades(top, width)
        near = np.array([[start + side for start in starts for side in (-1, 0, 1)]], np.uint32).view(np.float32)
        codes, values = refnum.llm_fp4(near, np.array([top], np.uint32).view(np.float32), width)
        want = second.llm_fp4(exact(near), [number(top)], width)
        assert len(starts) == (1 << width) - 2 and codes.tolist() == want[0] and bits(values) == want[1]


def test_llm_fp4_of_a_binade_whose_scale_is_not_twice_the_one_below():
    """Four steps of one binade and two of the next differ by a unit: here its first number is seen."""
    near = np.array([[0x4137023E, 0x4137023F, 0x41370240]], np.uint32).view(np.float32)
    _, values = refnum.llm_fp4(near, np.array([0x420941AE], np.uint32).view(np.float32))
    assert bits(values) == second.llm_fp4(exact(near), [number(0x420941AE)], 2)[1]
    assert bits(values)[0][0] + 1 == bits(values)[0][1] == bits(values)[0][2]


def test_llm_qat_of_tiny_spreads_adds_the_least_one():
    dice = np.random.default_rng(4)
    x = (dice.integers(0, 40, (60, 6)) * 2.0**-33).astype(np.float32)
    x[::2, 0] = 0
    codes, values = refnum.llm_qat(x, 4, False)
    want = second.llm_qat(exact(x), 4, False, False)
    assert codes.tolist() == want[0] and bits(values) == want[1]


def test_llm_fp4_known_answers():
    """At 6 the bias of E2M1 is one but for the rounding of log2(6): the values are near its own, and 0.75 is no tie."""
    e2m1 = np.array([[0, 0.5, 1, 1.5, 2, 3, 4, 6, 9, -0.25, -0.0, 5, 0.75]], np.float32)
    codes, values = refnum.llm_fp4(e2m1, np.array([6], np.float32))
    assert codes.tolist() == [[0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 6, 1]]
    assert values[0].tolist() == pytest.approx([0, 0.5, 1, 1.5, 2, 3, 4, 6, 6, 0, 0, 4, 0.5], rel=2**-22)
    assert values[0, 1] == np.float32(0.5 + 2**-24) and values[0, 7] == np.float32(6 + 2**-20)
    assert np.signbit(values[0, 9:11]).all()
    e1m2 = np.arange(9, dtype=np.float32)[None] / 2
    codes, values = refnum.llm_fp4(e1m2, np.array([3.5], np.float32), 1)
    assert codes.tolist() == [[0, 1, 2, 3, 4, 5, 6, 7, 7]] and values.tolist() == [
        [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 3.5]
    ]
    strange = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    codes, values = refnum.llm_fp4(strange, np.array([6], np.float32))
    assert (
        codes.tolist() == [[7, 7, 15]]
        and np.isnan(values[0, 0])
        and values[0, 1:].tolist() == [6 + 2**-20, -6 - 2**-20]
    )
    none = refnum.llm_fp4(np.zeros((0, 4), np.float32), np.zeros(0, np.float32))
    assert none[0].shape == none[1].shape == (0, 4)


@pytest.mark.parametrize(("seed", "spread", "odd"), SEEDS)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("layerwise", [True, False])
def test_llm_qat_equals_the_oracle(seed, spread, odd, symmetric, layerwise):
    for dtype in (np.float32, ml_dtypes.bfloat16, np.float16):
        with np.errstate(all="ignore"):
            x = words((6, 16), seed, spread, odd).view(np.float32).astype(dtype)
        for count in (2, 4, 8):
            codes, values = refnum.llm_qat(x, count, symmetric, layerwise)
            want = second.llm_qat(exact(x), count, symmetric, layerwise)
            assert codes.tolist() == want[0] and bits(values) == want[1]


def test_llm_qat_known_answers():
    x = np.array([[-7, 3.4, 0.5, 7, -0.0]], np.float32)
    codes, values = refnum.llm_qat(x)
    assert codes.tolist() == [[-7, 3, 0, 7, 0]] and values[0].tolist() == pytest.approx([-7, 3, 0, 7, 0], rel=1e-6)
    assert np.signbit(values[0, 4])
    codes, values = refnum.llm_qat(x + np.float32(7), symmetric=False)
    assert codes.tolist() == [[0, 11, 8, 15, 8]]
    assert values[0].tolist() == pytest.approx([0, 10.2667, 7.4667, 14, 7.4667], abs=1e-4)
    alone = refnum.llm_qat(np.array([[1, np.nan], [1, 2]], np.float32))
    assert alone[0].tolist() == [[0, 0], [3, 7]] and np.isnan(alone[1]).tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize("layerwise", [True, False])
def test_empty_tensors(layerwise):
    for shape in ((0, 4), (3, 0)):
        for symmetric in (True, False):
            codes, values = refnum.llm_qat(np.zeros(shape, np.float32), 4, symmetric, layerwise)
            assert codes.shape == values.shape == shape


def test_errors_are_named():
    x, top = np.zeros((2, 4), np.float32), np.ones(1, np.float32)
    for wrong in (0, 2.0**-101, 2.0**-100 - 2.0**-124, 2.0**100 + 2.0**77, 2.0**101, -1, np.nan):
        with pytest.raises(ArgumentError, match="maxval holds a number"):
            refnum.llm_fp4(x, np.array([wrong], np.float32))
    with pytest.raises(ShapeError, match=r"allowed are \(1,\) and one for each row, \(2,\)"):
        refnum.llm_fp4(x, np.ones(3, np.float32))
    with pytest.raises(DtypeError, match="maxval has dtype float64"):
        refnum.llm_fp4(x, np.ones(1))
    for wrong in (0, 3):
        with pytest.raises(ArgumentError, match="exponent_bits"):
            refnum.llm_fp4(x, top, wrong)
    for wrong in (1, 9):
        with pytest.raises(ArgumentError, match="bits"):
            refnum.llm_qat(x, wrong)
    with pytest.raises(ArgumentError, match="symmetric"):
        refnum.llm_qat(x, 4, "yes")
