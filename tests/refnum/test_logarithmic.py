"""Logarithmic FP4 (N23): model against oracle, known answers, and unbiasedness as a theorem over all random words."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import refnum
from refnum import oracle
from refnum.division import divide
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.layouts import codes_from_packed
from refnum.logarithmic import _least_dropped, _levels, _quotients
from refnum.oracle import logarithmic as second

DTYPES = (np.float32, ml_dtypes.bfloat16, np.float16)
STRANGE = np.array([0, 1, 2, 3, 0x3FFFFF, 0x400000, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001,
                    0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001], np.uint32)  # fmt: skip
AMAX = (0, 1, 33, 64, 65, 0x7FFFFF, 0x00800000, 0x03000001, 0x42800000, 0x42800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000,
        0xC2800000, 0x41F00000)  # fmt: skip


def words(shape, seed, spread=6, odd=0.1):
    """float32 bits of many binades around 1, and strange ones among them."""
    dice = np.random.default_rng(seed)
    exponent = 127 + dice.integers(-spread, spread + 1, shape)
    bits = dice.integers(0, 1 << 23, shape) | exponent << 23
    found = np.where(dice.random(shape) < odd, dice.choice(STRANGE, shape), bits)
    return (found | dice.integers(0, 2, shape) << 31).astype(np.uint32)


def draws(shape, seed):
    dice = np.random.default_rng(seed)
    r_under, r_log = (dice.integers(0, 1 << bits, shape, np.uint32) for bits in (24, 23))
    r_under[:, ::5], r_log[:, ::7] = 0, (1 << 23) - 1
    return r_under, r_log


def exact(x):
    name = x.dtype.name
    return [[oracle.float_value(int(b), name) for b in row] for row in x.view(f"u{x.dtype.itemsize}").tolist()]


def one(bits):
    return np.array([bits], np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("divisor", "step", "dtype"), list(itertools.product((64, 128, 16), ("real", "power_of_two"), DTYPES))
)
def test_luq_equals_the_oracle(divisor, step, dtype):
    for seed, (amax, spread) in enumerate(itertools.product((None, *AMAX), (6, 120))):
        with np.errstate(all="ignore"):
            x = words((2, 24), seed, spread).view(np.float32).astype(dtype)
        r_under, r_log = draws(x.shape, seed)
        given = None if amax is None else oracle.float_value(amax)
        want = second.luq(exact(x), r_under.tolist(), r_log.tolist(), divisor, given, step)
        packed, alpha = refnum.luq(x, r_under, r_log, divisor, None if amax is None else one(amax), step)
        assert alpha.view(np.uint32).tolist() == want[1], (amax, spread)
        assert packed.tolist() == want[0], (amax, spread)


def test_known_answers_of_luq():
    x = np.array([[64, -1, 0.5, -0.25, 3, -6, 40, 0, 24, -1.5, 1.49, 0]], np.float32)
    u1 = np.array([[0.3, 0.3, 0.4, 0.4, *[0.1] * 8]])
    u2 = np.array([[0.9, 0.1, 0.5, 0.5, 0.49, 0.51, 0.6, 0.5, 0.2, 0.499, 0.5, 0]])
    r_under, r_log = (u1 * 2**24).astype(np.uint32), (u2 * 2**23).astype(np.uint32)
    packed, alpha = refnum.luq(x, r_under, r_log)
    assert alpha.tolist() == [1]
    assert refnum.dequantize_luq(packed, alpha).tolist() == [[64, -1, 1, 0, 2, -8, 32, 0, 16, -1, 1, 0]]
    assert codes_from_packed(packed).tolist() == [[7, 9, 1, 0, 2, 12, 6, 0, 5, 9, 1, 0]]


def test_the_step_is_the_quotient_or_the_power_of_two_at_or_above_it():
    maxima = np.concatenate([words((400,), 3, 126) & np.uint32(0x7FFFFFFF), np.array(AMAX, np.uint32)])
    empty, bits = np.zeros((0, 2), np.float32), np.zeros((0, 2), np.uint32)
    for amax, (divisor, step) in itertools.product(
        maxima.tolist(), itertools.product((64, 16), ("real", "power_of_two"))
    ):
        alpha = refnum.luq(empty, bits, bits, divisor, one(amax), step)[1]
        assert int(alpha.view(np.uint32)[0]) == second.luq_step(oracle.float_value(amax), divisor, step)


def test_quotients_of_normal_numbers_are_those_of_the_division():
    magnitude = (words((400, 50), 50, 40, 0.0) & np.uint32(0x7FFFFFFF)).reshape(-1, 50)
    magnitude[:, 0], magnitude[:, 1] = 0, np.uint32(0x7F800000)
    for row, alpha in zip(magnitude, words((400,), 51, 40, 0) & np.uint32(0x7FFFFFFF), strict=True):
        for one_alpha in (alpha, alpha & np.uint32(0x7F800000), row[7]):
            given = np.array([one_alpha], np.uint32)
            near = np.concatenate([row[2:], np.array([one_alpha - 1, one_alpha, one_alpha + 1], np.uint32)])
            want = divide(near, np.broadcast_to(given, near.shape))
            assert np.array_equal(_quotients(np.concatenate([row[:2], near]), given)[2:], want)


# ------------------------------------------------------------------------------------------ unbiasedness, a theorem


def parts(first, end, size=1 << 17):
    """All whole numbers from `first` to below `end`, in parts that stay in a processor's cache."""
    for start in range(first, end, size):
        yield np.arange(start, min(start + size, end), dtype=np.uint32)


@pytest.mark.parametrize("fraction", [0, 1, 2, 3, 0x2AAAAA, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFE, 0x7FFFFF])
def test_the_mean_over_all_words_of_the_logarithmic_step_is_the_number(fraction):
    """Every one of the 2**23 words: the upper level is taken `fraction` times, so the mean is the number itself."""
    for exponent in (0, 5):
        bits = np.uint32((127 + exponent) << 23 | fraction)
        counts = sum(np.bincount(_levels(np.full_like(r, bits), 0 * r, r), minlength=9) for r in parts(0, 1 << 23))
        lower, upper = int(counts[exponent + 1]), int(counts[exponent + 2])
        assert lower + upper == 1 << 23 and upper == fraction
        mean = Fraction(lower * 2**exponent + upper * 2 ** (exponent + 1), 2**23)
        assert mean == oracle.float_value(int(bits))


@pytest.mark.parametrize("bits", [0x3F7FFFFF, 0x3F000000, 0x3F000001, 0x3EAAAAAB, 0x3DCCCCCD, 0x34000000, 0x33800000,
                                  0x33800001, 0x33000000, 0x00000001, 0])  # fmt: skip
def test_the_mean_over_all_words_of_the_pruning_step_is_the_number_on_the_lattice(bits):
    """Every one of the 2**24 words: the least level is taken ceil(a 2**24) times, which is a 2**24 from 1/2 on."""
    least = _least_dropped(np.array([bits], np.uint32))
    kept = sum(int((part < least).sum()) for part in parts(0, 1 << 24))
    number = Fraction(oracle.float_value(bits))
    assert kept == -(-number.numerator * 2**24 // number.denominator)
    assert 0 <= Fraction(kept, 2**24) - number < Fraction(1, 2**24)
    ends = np.array([max(kept - 1, 0), min(kept, (1 << 24) - 1)], np.uint32)
    codes = _levels(np.full(2, bits, np.uint32), ends, np.zeros(2, np.uint32))
    assert codes.tolist() == [int(kept > 0), int(kept == 1 << 24)]


def test_whole_numbers_of_units_are_pruned_without_any_bias():
    """A quotient below 1 that is a multiple of 2**-24 has exactly that mean: all bfloat16 from 2**-16 on."""
    bits = np.arange((127 - 16) << 7, 127 << 7, dtype=np.uint32) << np.uint32(16)
    kept = _least_dropped(bits)
    for word, count in zip(bits.tolist(), kept.tolist(), strict=True):
        assert Fraction(count, 2**24) == oracle.float_value(word)


def test_every_fraction_goes_up_as_often_as_it_says():
    """All 2**23 fractions: up from the word 2**23 - fraction on, so `fraction` of 2**23 words go up."""
    done = 0
    for fraction in parts(1, 1 << 23):
        bits = fraction | np.uint32(128 << 23)
        none = np.zeros_like(bits)
        assert (_levels(bits, none, np.uint32(1 << 23) - fraction) == 3).all()
        assert (_levels(bits, none, np.uint32((1 << 23) - 1) - fraction) == 2).all()
        done += fraction.size
    assert done == (1 << 23) - 1


def test_only_one_of_the_two_words_decides():
    quotients = words((1, 4000), 5, 4, 0) & np.uint32(0x7FFFFFFF)
    (u, v), (w, z) = draws(quotients.shape, 1), draws(quotients.shape, 2)
    small = quotients < 0x3F800000
    first = _levels(quotients, u, v)
    assert np.array_equal(first[small], _levels(quotients, u, z)[small])
    assert np.array_equal(first[~small], _levels(quotients, w, v)[~small])


# ------------------------------------------------------------------------------------------ decoding, radix 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decoded_luq_equals_the_oracle(dtype):
    packed = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for bits in (*AMAX, *STRANGE.tolist(), 0x7E800000, 0x80000001, 0x0017FFFF):
        got = refnum.dequantize_luq(packed, one(bits), dtype)
        want = second.dequantize_luq(packed.tolist(), oracle.float_value(bits), dtype)[0]
        assert got.view(f"u{got.dtype.itemsize}").tolist() == want


@pytest.mark.parametrize(("phase", "threshold"), list(itertools.product(("even", "odd"), ("midpoint", "0.4", "log"))))
def test_radix4_equals_the_oracle(phase, threshold):
    part = second.PARTS[threshold]
    for n0 in (-63, -40, -3, 0, 1, 57):
        edges = [oracle.float_bits(part * second._level(code, n0, phase)) for code in range(1, 8)]
        near = np.array([bits + step for bits in edges for step in (-1, 0, 1)], np.int64)
        bits = np.concatenate([near, STRANGE, words((13,), n0 + 70, 20, 0)]).astype(np.uint32)
        x = np.concatenate([bits, bits ^ np.uint32(1 << 31)]).reshape(2, -1).view(np.float32)
        want = second.radix4(exact(x), n0, phase, threshold)[0]
        assert refnum.radix4(x, n0, phase, threshold).tolist() == want


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_every_16_bit_number_in_radix4_equals_the_oracle(dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(64, -1)
    for phase, threshold in (("odd", "midpoint"), ("even", "0.4")):
        assert refnum.radix4(x, -4, phase, threshold).tolist() == second.radix4(exact(x), -4, phase, threshold)[0]


def test_known_answers_of_radix4():
    above = np.nextafter(np.float32(0.625), np.float32(1))
    x = np.array([[0.625, above, 1.25, 1.26, 2.5, 2.51, 5, 5.01, 10, 10.5, 4000, 4096, 9000, -5000]], np.float32)
    even, odd = (
        refnum.dequantize_radix4(packed, 0, phase).tolist()[0]
        for packed, phase in zip(refnum.tpr(x, 0), ("even", "odd"), strict=True)
    )
    assert even == [0, 1, 1, 1, 1, 4, 4, 4, 4, 16, 4096, 4096, 4096, -4096]
    assert odd == [0, 0, 0, 2, 2, 2, 2, 8, 8, 8, 2048, 2048, 8192, -2048]


def test_two_phases_are_both_of_radix4():
    x = words((3, 20), 9, 12).view(np.float32)
    for threshold in ("midpoint", "0.4", "log"):
        even, odd = refnum.tpr(x, -3, threshold)
        assert np.array_equal(even, refnum.radix4(x, -3, "even", threshold))
        assert np.array_equal(odd, refnum.radix4(x, -3, "odd", threshold))


@pytest.mark.parametrize(("phase", "dtype"), list(itertools.product(("even", "odd"), ("float32", "bfloat16"))))
def test_decoded_radix4_equals_the_oracle(phase, dtype):
    packed = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for n0 in range(-63, 58):
        got = refnum.dequantize_radix4(packed, n0, phase, dtype)
        assert (
            got.view(f"u{got.dtype.itemsize}").tolist()
            == second.dequantize_radix4(packed.tolist(), n0, phase, dtype)[0]
        )


def test_codes_are_their_own_quantisation():
    codes = np.array([[0x10, 0x32, 0x54, 0x76, 0xA9, 0xCB, 0xED, 0x0F]], np.uint8)
    for n0, phase in itertools.product((-63, 0, 57), ("even", "odd")):
        assert np.array_equal(refnum.radix4(refnum.dequantize_radix4(codes, n0, phase), n0, phase), codes)


# ------------------------------------------------------------------------------------------ scalars beside them


def test_a_maximum_in_hindsight_equals_the_oracle():
    amax, previous = words((2000,), 30, 60, 0.1), words((2000,), 31, 60, 0.1)
    for eta in (0, 0.1, 0.5, np.float32(0.9), 1):
        got = refnum.hindsight_amax(amax.view(np.float32), previous.view(np.float32), eta).view(np.uint32)
        part = int(np.float32(eta).view(np.uint32))
        want = [second.hindsight_amax(a, b, part) for a, b in zip(amax.tolist(), previous.tolist(), strict=True)]
        assert got.tolist() == want


def test_a_maximum_in_hindsight_is_a_sum_of_two_parts():
    amax, previous = np.array([1, 3, 2.0**-149, -1], np.float32), np.array([2, -4, 0, 5], np.float32)
    eta = np.float32(0.1)
    rest = np.float32(1) - eta
    assert refnum.hindsight_amax(amax, previous).tolist() == (amax * rest + previous * eta).tolist()
    for part, wanted in ((0, amax), (-0.0, amax), (1, previous), (0.25, amax * 0.75 + previous / 4)):
        assert refnum.hindsight_amax(amax, previous, part).tolist() == wanted.tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_an_average_of_samples_equals_the_oracle(count):
    samples = words((count, 300), count, 5, 0.02)
    got = refnum.smp_average(samples.view(np.float32)).view(np.uint32)
    assert got.tolist() == [second.smp_average(column) for column in samples.T.tolist()]


def test_a_scale_follows_the_maximum_as_in_the_oracle():
    exponents = (-126, -125, -3, 0, 5, 126, 127)
    scales = [(127 + e) << 23 for e in exponents]
    tops = [0x42800000, 0x3F800000, 1, 0x7F7FFFFF, 0x3FC00001]
    maxima = [*AMAX, *STRANGE.tolist(), 0x42000000, 0x41FFFFFF, 0x42800001, 0x3F000000, 0x3F400000, 0x3F400001]
    given = np.array(list(itertools.product(scales, maxima, tops)), np.uint32).T.copy().view(np.float32)
    got = refnum.grad_scale(*given).view(np.uint32)
    values = [[oracle.float_value(int(bits)) for bits in row] for row in given.view(np.uint32)]
    want = [second.grad_scale(s, a if a in ("nan", "+inf", "-0") else abs(Fraction(a)) if a != "-inf" else "+inf", t)
            for s, a, t in zip(*values, strict=True)]  # fmt: skip
    assert got.tolist() == want and len(set(got.tolist())) > 8


# ------------------------------------------------------------------------------------------ what is refused

X, R = np.zeros((2, 4), np.float32), np.zeros((2, 4), np.uint32)
REFUSED = (
    ("luq", (X[:, :3], R[:, :3], R[:, :3]), ShapeError), ("luq", (X, R[:1], R), ShapeError),
    ("luq", (X, R, R.astype(np.int64)), DtypeError), ("luq", (X, R + np.uint32(1 << 24), R), ArgumentError),
    ("luq", (X, R, R + np.uint32(1 << 23)), ArgumentError), ("luq", (X, R, R, 32), ArgumentError),
    ("luq", (X, R, R, 64.0), ArgumentError), ("luq", (X, R, R, 64, np.ones(1)), DtypeError),
    ("luq", (X, R, R, 64, np.ones((1, 1), np.float32)), ShapeError),
    ("luq", (X, R, R, 64, None, "best"), ArgumentError),
    ("dequantize_luq", (X, np.ones(1, np.float32)), DtypeError),
    ("dequantize_luq", (R.astype(np.uint8), np.ones(2, np.float32)), ShapeError),
    ("dequantize_luq", (R.astype(np.uint8), np.ones(1, np.float64)), DtypeError),
    ("dequantize_luq", (R.astype(np.uint8), np.ones(1, np.float32), "float16"), ArgumentError),
    ("radix4", (X[:, :3], 0), ShapeError), ("radix4", (X, -64), ArgumentError), ("radix4", (X, 58), ArgumentError),
    ("radix4", (X, 0.0), ArgumentError), ("radix4", (X, 0, "both"), ArgumentError),
    ("radix4", (X, 0, "even", "0.5"), ArgumentError), ("radix4", (X.astype(np.float64), 0), DtypeError),
    ("tpr", (X, 0, 0.4), ArgumentError), ("dequantize_radix4", (R.astype(np.uint8), 99), ArgumentError),
    ("dequantize_radix4", (R, 0), DtypeError), ("hindsight_amax", (X, X[:1]), ShapeError),
    ("hindsight_amax", (X, X, 1.5), ArgumentError), ("hindsight_amax", (X, X.astype(np.float16)), DtypeError),
    ("hindsight_amax", (X, X, "1"), ArgumentError), ("hindsight_amax", (X, X, True), ArgumentError),
    ("hindsight_amax", (X, X, None), ArgumentError), ("grad_scale", (X + 1 + 2.0**-23, X, X + 1), ArgumentError),
    ("smp_average", (X[:0],), ShapeError), ("smp_average", (R,), DtypeError),
    ("grad_scale", (X, X, X), ArgumentError), ("grad_scale", (X + 1, X, X), ArgumentError),
    ("grad_scale", (X + 3, X, X + 1), ArgumentError), ("grad_scale", (X + 1, X, X[:1] + 1), ShapeError),
)  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "error"), REFUSED)
def test_bad_arguments_are_refused(name, arguments, error):
    with pytest.raises(error, match=r"allowed|must be|is not one of|are below"):
        getattr(refnum, name)(*arguments)


def test_quotients_by_subnormal_steps_and_of_subnormal_numbers_are_exact():
    """Where a step or a number is subnormal, significands have no hidden bit."""
    for step in (0x7FFFFF, 0x800000, 0x800001):
        amax = np.ldexp(np.array([step], np.uint32).view(np.float32), 6)
        near = (np.ldexp(np.array([step], np.uint32).view(np.float32), [1, 2, 3, 6]).view(np.uint32)[:, None]
                + np.array([-1, 0, 1]).astype(np.uint32)).reshape(1, -1)  # fmt: skip
        for draw in (0, 1, (1 << 23) - 1):
            words_ = np.full(near.shape, draw, np.uint32)
            packed, alpha = refnum.luq(near.view(np.float32), words_, words_, tensor_amax=amax)
            assert alpha.view(np.uint32).tolist() == [step]
            want, _ = second.luq(
                exact(near.view(np.float32)), words_.tolist(), words_.tolist(), 64, Fraction(float(amax[0]))
            )
            assert packed.tolist() == want
    for x in ([[2.0**-149, 2.0**-120]], [[0, 2.0**-120]], [[2.0**-127, 2.0**-130]]):
        number = np.array(x, np.float32)
        for draw in (0, 1, 2, 5, 1 << 22):
            words_ = np.full((1, 2), draw, np.uint32)
            packed, _ = refnum.luq(number, words_, words_, tensor_amax=np.array([2.0**-120], np.float32))
            want, _ = second.luq(exact(number), words_.tolist(), words_.tolist(), 64, Fraction(1, 1 << 120))
            assert packed.tolist() == want


def test_an_explanation_ends_in_the_model_s_code():
    x = words((3, 24), 40, 8, 0.2).view(np.float32)
    r_under, r_log = draws(x.shape, 40)
    given = {"x": x, "r_under": r_under, "r_log": r_log, "tensor_amax": one(0x42800000)}
    packed, alpha = refnum.luq(**given)
    powers = {"x": x, "n0": -4, "phase": "odd"}
    coded = refnum.radix4(**powers)
    back = {"packed": packed, "alpha": alpha, "dtype": "bfloat16"}
    asked = (("luq", given, codes_from_packed(packed)), ("radix4", powers, codes_from_packed(coded)),
             ("dequantize_luq", back, refnum.dequantize_luq(**back).view(np.uint16)),
             ("dequantize_radix4", {"packed": coded, "n0": -4},
              refnum.dequantize_radix4(coded, -4).view(np.uint32)))  # fmt: skip
    for operation, case, want in asked:
        for row, column in itertools.product(range(3), range(24)):
            told = refnum.explain(operation, case, (row, column))
            assert told.code == want[row, column] and "N23" in str(told)


def test_empty_tensors():
    for shape in ((0, 32), (3, 0)):
        bits = np.zeros(shape, np.uint32)
        packed, alpha = refnum.luq(bits.view(np.float32), bits, bits)
        assert packed.shape == (shape[0], shape[1] // 2) and alpha.tolist() == [0]
        assert refnum.dequantize_luq(packed, alpha).shape == shape
        assert refnum.dequantize_radix4(refnum.radix4(bits.view(np.float32), 0), 0).shape == shape
