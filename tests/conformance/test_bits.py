"""Float patterns by integer arithmetic, against exact rationals."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum.conformance.cases.draw.bits import (
    INPUT_FORMATS,
    as_float,
    assemble,
    exact,
    float_bits,
    high_product,
    normalise,
    signed,
    word,
)
from refnum.errors import ArgumentError

EDGES = sorted({0, 1, 2, 3, 5, 0xAAAAAA, 0xFFFFFF, *(1 << k for k in range(24)), *((1 << k) - 1 for k in range(2, 24)),
                *((1 << k) + 1 for k in range(2, 24))})  # fmt: skip


def cut(fmt, wanted):
    """(pattern, whether nothing was lost) of a rational, bits that do not fit cut off, by its definition."""
    exponent = wanted.numerator.bit_length() - wanted.denominator.bit_length()
    exponent -= wanted < Fraction(2) ** exponent
    lowest = 1 - fmt.bias
    unit = Fraction(2) ** (max(exponent, lowest) - fmt.mantissa_bits)
    units = wanted // unit
    field = exponent - lowest if exponent > lowest else 0
    pattern = (field << fmt.mantissa_bits) + int(units)
    return min(pattern, fmt.max_code), pattern <= fmt.max_code and units * unit == wanted


@pytest.mark.parametrize("name", INPUT_FORMATS)
def test_patterns_are_the_rationals_cut_off(name):
    fmt = INPUT_FORMATS[name]
    lowest = 1 - fmt.bias - fmt.mantissa_bits
    ends = [
        range(lowest - 26, lowest + 4),
        range(-fmt.bias - 1, -fmt.bias + 2),
        (-24, -23, -1, 0, 1),
        range(fmt.bias - 25, fmt.bias + 3),
        (-600, 600),
    ]
    exponents = np.array(sorted({e for some in ends for e in some}), np.int32)[:, None]
    significands = np.array(EDGES, np.uint32)
    patterns, whole = exact(fmt, significands, exponents)
    assert np.array_equal(patterns, assemble(fmt, significands, exponents)) and patterns.dtype == np.uint32
    for row, exponent in enumerate(exponents[:, 0].tolist()):
        for column, significand in enumerate(EDGES):
            value = Fraction(significand) * Fraction(2) ** exponent
            want = cut(fmt, value) if significand else (0, True)
            assert (patterns[row, column], whole[row, column]) == want, (significand, exponent)


def test_whole_numbers_are_normalised():
    lead, fraction = normalise(np.array(EDGES, np.uint32))
    for significand, k, below in zip(EDGES, lead.tolist(), fraction.tolist(), strict=True):
        assert (k, below) == ((significand.bit_length() - 1, (significand << 24 - significand.bit_length()) - (1 << 23))
                              if significand else (-127, 0))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype", "one", "negative"),
    [
        ("float32", np.float32, 0x3F800000, 0xBF800000),
        ("bfloat16", ml_dtypes.bfloat16, 0x3F80, 0xBF80),
        ("float16", np.float16, 0x3C00, 0xBC00),
    ],
)
def test_floats_and_their_bits(name, dtype, one, negative):
    fmt = INPUT_FORMATS[name]
    bits = signed(fmt, np.array([one, one], np.uint32), np.array([False, True]))
    assert bits.dtype == word(fmt) and bits.tolist() == [one, negative]
    floats = as_float(bits.astype(np.uint64), fmt)
    assert floats.dtype == dtype and floats.astype(np.float32).tolist() == [1, -1]
    assert float_bits(floats).dtype == bits.dtype and np.array_equal(float_bits(floats), bits)
    assert float_bits(bits) is bits


def test_the_high_half_of_a_product():
    words = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)
    bounds = np.array([[1], [3], [0x80000000], [0xFFFFFFFF]], np.uint32)
    want = [[a * b >> 32 for a in words.tolist()] for b in bounds[:, 0].tolist()]
    assert high_product(words, bounds).tolist() == want


def test_an_unknown_input_is_named():
    from refnum.conformance.cases.draw.bits import input_format

    assert input_format("float16") is refnum.FP16
    with pytest.raises(ArgumentError, match="input='float8' is not a floating-point input"):
        input_format("float8")
