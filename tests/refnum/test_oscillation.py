"""What is done about oscillating weights (N24): model against oracle, known answers."""

from __future__ import annotations

import inspect
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from test_tetrajet import exact, words
from test_tetrajet_v2 import bits_of

import refnum
from refnum import oracle
from refnum.arrays import unpack_nibbles
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.oracle import oscillation as second
from refnum.oscillation import _number
from refnum.tetrajet_v2 import scale_products


def test_steps_of_averages_and_distances_equal_the_oracle():
    a, b, c = (words(3000, seed, 60, 0.2) for seed in (1, 2, 3))
    for beta in (0.998, 0.9983, 0, 1, Fraction(1, 3)):
        got = bits_of(refnum.ema_update(a.view(np.float32), b.view(np.float32), beta))
        for old, new, found in list(zip(a.tolist(), b.tolist(), got.tolist(), strict=True))[:1000]:
            assert second.ema_update(old, new, Fraction(beta)) == found
    got = bits_of(refnum.distance_update(*(part.view(np.float32) for part in (a, b, c))))
    for far, old, new, found in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        assert second.distance_update(far, old, new) == found


def test_the_average_of_bfloat16_weights_is_that_of_their_numbers():
    ema = words((4, 32), 1, 3, 0).view(np.float32)
    w = ema.astype(ml_dtypes.bfloat16)
    assert np.array_equal(refnum.ema_update(ema, w), refnum.ema_update(ema, w.astype(np.float32)))
    one = np.float32(0.998)
    assert np.array_equal(refnum.ema_update(ema, w), one * ema + (np.float32(1) - one) * w.astype(np.float32))


def test_periods_equal_the_oracle():
    a, b = words(4000, 5, 20, 0.2), words(4000, 6, 20, 0.2)
    a[::2] &= np.uint32(0x7FFFFFFF)
    b[::2] &= np.uint32(0x7FFFFFFF)
    for alpha, beta, most in ((16, 5, 2**31 - 1), (Fraction(1, 3), 4, 1000), (1, 0, 7)):
        got = refnum.q_ramping(a.view(np.float32), b.view(np.float32), float(alpha), beta, most)
        assert got.dtype == np.int32
        for walked, jumped, found in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
            assert second.q_ramping(walked, jumped, Fraction(float(alpha)), beta, most) == found


def test_the_period_is_the_floor_division_by_remainder():
    """Below 2**22 the floor of the exact quotient is what `np.floor_divide` and PyTorch's floor rounding give."""
    dice = np.random.default_rng(4)
    dist_w = dice.random(50000).astype(np.float32)
    dist_q = (dist_w * dice.integers(0, 60000, 50000) * 16).astype(np.float32)
    above, below = dist_q / np.float32(16), dist_w + np.float32(1e-8)
    want = np.floor_divide(above, below)
    assert (np.floor(above / below) != want).any()  # it is not the floor of the rounded quotient
    assert np.array_equal(refnum.q_ramping(dist_w, dist_q, beta=1), want.astype(np.int64) + 1)


def test_a_weight_is_due_at_multiples_of_its_period():
    period = np.array([1, 2, 3, 4], np.int32)
    total, count = np.zeros(4, np.float32), np.zeros(4, np.int32)
    log = []
    for step in range(1, 13):
        grad = np.full(4, step, np.float32)
        total, count, due, mean = refnum.ramping_step(total, count, grad, period)
        log.append(due)
        assert (mean[~due] == 0).all() and (total[due] == 0).all() and (count[due] == 0).all()
        if due[3]:
            assert mean[3] == step - 1.5
    assert np.array_equal(np.array(log).sum(axis=0), [12, 6, 4, 3])


@pytest.mark.parametrize("odd", [0, 0.1])
def test_steps_equal_the_oracle(odd):
    total, grad = words(3000, 11, 20, 0.2), words(3000, 12, 20, odd)
    count = np.arange(3000, dtype=np.int32) * 7 % 97
    count[::11] += 1 << 24
    period = 1 + np.arange(3000, dtype=np.int32) * 5 % 9
    got = refnum.ramping_step(total.view(np.float32), count, grad.view(np.float32), period)
    finite = bool(np.isfinite(grad.view(np.float32)).all())
    assert finite == (not odd) and got[2].dtype == bool and 0 < got[2].sum() < 3000
    lists = [part.tolist() for part in (total, count, grad, period)]
    parts = [bits_of(got[0]).tolist(), got[1].tolist(), got[2].tolist(), bits_of(got[3]).tolist()]
    for given, found in zip(zip(*lists, strict=True), zip(*parts, strict=True), strict=True):
        assert second.ramping_step(*given, finite) == found


def test_the_largest_period_is_a_period():
    """What `q_ramping` gives at most, `ramping_step` takes (N24.10)."""
    period = refnum.q_ramping(np.zeros(2, np.float32), np.full(2, 1e9, np.float32))
    assert period.tolist() == [(1 << 31) - 1] * 2
    count, grad = np.array([(1 << 31) - 2, (1 << 31) - 3], np.int32), np.ones(2, np.float32)
    total, counted, due, mean = refnum.ramping_step(grad, count, grad, period)
    assert due.tolist() == [True, False] and counted.tolist() == [0, (1 << 31) - 2]
    assert total.tolist() == [0, 2] and mean.tolist() == [2.0**-30, 0]


def test_a_share_may_be_a_pair():
    x, y = np.array([0.01, 2], np.float32), np.array([3, 33], np.float32)
    assert np.array_equal(refnum.q_ramping(x, y, (1, 3)), refnum.q_ramping(x, y, Fraction(1, 3)))
    assert np.array_equal(refnum.osci_reset_by_distance(x, y, [33, 2]), [True, True])
    for bad in ((16, 0), (16,), (1, 2, 3), (1.5, 1), (-1, 3), ("1", 1), (True, 1), (0, 1)):
        with pytest.raises(ArgumentError):
            refnum.osci_reset_by_distance(x, y, bad)


def test_a_gradient_with_an_infinity_adds_nothing_and_counts():
    total, count, period = np.ones(2, np.float32), np.full(2, 1, np.int32), np.array([2, 5], np.int32)
    for bad in (np.inf, -np.inf, np.nan):
        grad = np.array([3, bad], np.float32)
        assert [part.tolist() for part in refnum.ramping_step(total, count, grad, period)] == [
            [0, 1], [0, 2], [True, False], [0.5, 0]]  # fmt: skip
    # not count == period: the period may have become smaller since
    assert refnum.ramping_step(total, np.full(2, 5, np.int32), np.ones(2, np.float32), period)[2].tolist() == [
        True,
        False,
    ]


@pytest.mark.parametrize("threshold", [0.495, 0.25, 0.1])
def test_the_edge_predicate_equals_the_oracle(threshold):
    w = words((6, 256), 8, 2, 0.01).view(np.float32)
    packed, scales, outer = refnum.quantize_tetrajet_v2(w)
    packed[3] ^= 0x13  # codes of other numbers too
    got = refnum.osci_reset(w, packed, scales, outer, threshold)
    factor, codes = scale_products(scales, bits_of(outer)), unpack_nibbles(packed)
    for i, k in np.ndindex(w.shape):
        word, product, code = int(bits_of(w)[i, k]), int(factor[i, k // 16]), int(codes[i, k])
        assert second.osci_reset(word, product, code, Fraction(threshold)) == got[i, k]
    assert 0 < got[:3].sum() < got[:3].size


def test_the_threshold_of_an_edge_is_that_of_the_clause_by_default():
    assert inspect.signature(refnum.osci_reset).parameters["threshold"].default == (495, 1000)


def test_a_weight_in_the_middle_of_its_bin_is_left_alone():
    w = np.zeros((1, 128), np.float32)
    w[0, :9] = [
        2688,
        448 * 2.4999,
        448 * 2.4,
        448 * 4.95,
        448 * 2.5001,
        448 * 0.249,
        448 * 1.9,
        448 * 1.751,
        448 * 1.4999,
    ]
    packed, scales, outer = refnum.quantize_tetrajet_v2(w)
    assert refnum.osci_reset(w, packed, scales, outer)[0, :9].tolist() == [
        False,
        True,
        True,
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_period_is_an_int32_by_default():
    assert refnum.q_ramping(np.zeros(1, np.float32), np.full(1, 3e38, np.float32)).tolist() == [(1 << 31) - 1]


def test_the_distance_predicate_equals_the_oracle():
    a, b = words(3000, 5, 8, 0.2), words(3000, 6, 8, 0.2)
    got = refnum.osci_reset_by_distance(a.view(np.float32), b.view(np.float32), 1.5)
    for walked, jumped, found in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        assert second.osci_reset_by_distance(walked, jumped, Fraction(3, 2)) == found
    still, moved = np.array([0, 1, 1, 0], np.float32), np.array([5, 16, 15.999, 0], np.float32)
    assert refnum.osci_reset_by_distance(still, moved).tolist() == [False, True, False, False]


def test_norms_equal_the_oracle():
    x = words((9, 40), 3, 126, 0).view(np.float32)
    x[:, 3], x[:, 4] = 0, 1e-45
    x[2, 5], x[3, 5], x[4, 6] = np.inf, np.nan, -np.inf
    x[:, 7] = [3, 4, *[0] * 7]
    x[:, 8] = 3e38
    got = bits_of(refnum.channel_norms(x))
    assert got.tolist() == [second.norm(column) for column in zip(*exact(x), strict=True)]
    assert refnum.channel_norms(x)[7] == 5 and np.isinf(refnum.channel_norms(x)[8])
    assert refnum.channel_norms(np.zeros((0, 3), np.float32)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("k", "share", "count"), [
    (2048, Fraction(1, 10), 256), (1280, Fraction(1, 10), 128), (1290, Fraction(1, 10), 256), (127, 0.5, 0),
    (300, 1, 256), (128, 0, 0), (0, 1, 0)])  # fmt: skip
def test_channels_are_chosen_as_in_the_oracle(k, share, count):
    norms = (words(k, 3, 4, 0.1) & np.uint32(0x7FFFFFFF)) >> np.uint32(20) << np.uint32(20)  # many are equal
    got = refnum.out_control(norms.view(np.float32), share)
    assert got.tolist() == second.out_control(norms.tolist(), Fraction(share)) and got.sum() == count


@pytest.mark.parametrize("shape", [(3, 300), (2, 3, 129), (2, 1, 2, 400), (0, 300), (2, 3, 0), (300,)])
def test_rows_of_norms_are_decided_each_by_itself(shape):
    norms = np.resize(words(2400, 5, 4, 0.1) >> np.uint32(20) << np.uint32(20), shape)
    got = refnum.out_control(norms.view(np.float32), (1, 2))
    assert got.shape == shape and got.dtype == bool
    for place in np.ndindex(shape[:-1]):
        assert got[place].tolist() == second.out_control(norms[place].tolist(), Fraction(1, 2))
    turned = np.asfortranarray(norms.view(np.float32))
    assert np.array_equal(refnum.out_control(turned, (1, 2)), got)


@pytest.mark.parametrize(("k", "above", "below", "count"), [
    (300, 128, 300, 128), (300, 128001, 300000, 128), (300, 128999, 300000, 128), (300, 129, 300, 256),
    (531, 385, 531, 512), (540, 385, 540, 512), (301, 128999999, 301000000, 128), (128, 1, 10**30, 0),
    (256, 128 * 10**30 + 1, 256 * 10**30, 128), (640, 1, 640, 128), (640, 639, 640 * 640, 0)])  # fmt: skip
def test_a_share_and_its_product_are_exact(k, above, below, count):
    norms = np.arange(k, dtype=np.float32)
    for share in ((above, below), [above, below], Fraction(above, below)):
        assert np.array_equal(refnum.out_control(norms, share), norms >= k - count)


def test_norms_beside_ties_are_rounded_by_the_exact_root():
    columns = [
        ([2.0**24, *[2.0**12] * 2], 2.0**24),  # below (2^24 + 1)^2
        ([2.0**24, *[2.0**12] * 2, 1], 2.0**24),  # the tie
        ([2.0**24, *[2.0**12] * 2, 1, 2.0**-40], 2.0**24 + 2),
        ([2.0**24, *[2.0**12] * 2, 1, 2.0**-140], 2.0**24 + 2),
        ([2.0**24, *[2.0**12] * 6, 3], 2.0**24 + 4),
        ([2.0**24, *[2.0**12] * 6, 2], 2.0**24 + 2),
        ([2.0**-149] * 2, 2.0**-149),
        ([2.0**-149] * 3, 2.0**-148),
        ([2.0**-127, 2.0**-149], 2.0**-127),
        ([2.0**-126, 2.0**-138, 2.0**-138], 2.0**-126),
        ([2.0**-126, *[2.0**-138] * 2, 2.0**-149], 2.0**-126 + 2.0**-149),
        ([2.0**127, 2.0**127], float(np.float32(2.0**127.5))),
        ([float(np.finfo(np.float32).max), 2.0**115], float(np.finfo(np.float32).max)),
        ([float(np.finfo(np.float32).max), 2.0**116], np.inf),
    ]
    x = np.zeros((8, len(columns)), np.float32)
    for place, (column, _) in enumerate(columns):
        x[: len(column), place] = column
    got = refnum.channel_norms(x)
    assert bits_of(got).tolist() == [second.norm(column) for column in zip(*exact(x), strict=True)]
    assert got.tolist() == [norm for _, norm in columns]


def test_a_quotient_by_zero_is_endless_and_warns_of_nothing():
    dist_w = np.full(6, -np.float32(1e-8), np.float32)  # their sums with 1e-8 are 0
    dist_q = np.array([2.0**-149, 2.0**-140, 1e-30, 1, 0, -1], np.float32)
    with np.errstate(all="raise"):
        assert refnum.q_ramping(dist_w, dist_q, 1).tolist() == [(1 << 31) - 1] * 4 + [1, 1]
        assert refnum.q_ramping(dist_w, dist_q, 1, beta=0).tolist() == [1] * 6
        assert refnum.q_ramping(dist_w, dist_q, 1, beta=1).tolist() == [(1 << 31) - 1] * 4 + [1, 1]
    for walked, jumped, found in zip(bits_of(dist_w).tolist(), bits_of(dist_q).tolist(),
                                     refnum.q_ramping(dist_w, dist_q, 1).tolist(), strict=True):  # fmt: skip
        assert second.q_ramping(walked, jumped, Fraction(1), 5, 2**31 - 1) == found


def test_a_number_is_rounded_once_to_float32():
    small, one = Fraction(1, 1 << 149), Fraction(1)
    near = [step * unit + more for unit in (small, one, Fraction(1, 1 << 126), Fraction(1 << 100))
            for step in (Fraction(1, 2), 1, Fraction(3, 2), Fraction(5, 2), Fraction((1 << 25) + 1, 2),
                         Fraction((1 << 25) + 3, 2), Fraction((1 << 24) - 1, 2), (1 << 24) - 1)
            for more in (0, unit / 1024, -unit / 1024)]  # fmt: skip
    top = Fraction(float(np.finfo(np.float32).max))
    near += [one + Fraction(1, 1 << 24) + Fraction(1, 1 << place) for place in (60, 199, 200, 201, 202, 300)]
    for value in (*near, top, top + Fraction(1 << 102), Fraction(1, 3), Fraction(7, 10)):
        bits = oracle.float_bits(value)
        if bits == 0:
            with pytest.raises(ArgumentError):
                _number("x", value)
        else:
            assert _number("x", value).tolist() == [bits], value
    for bad in (top + Fraction(1 << 103), Fraction(1 << 128), small / 2):
        with pytest.raises(ArgumentError):
            _number("x", bad)


@pytest.mark.parametrize("value", [
    np.int64((1 << 54) + (1 << 30) + 1), np.uint64((1 << 63) + (1 << 39) + 1), 1 + np.longdouble(2) ** -24 * (
        1 + np.longdouble(2) ** -30), np.float64(0.1), np.float16(0.1), np.int8(3)])  # fmt: skip
def test_a_number_of_numpy_is_rounded_once_to_float32(value):
    """An integer of 64 bits, or a long double, which float64 rounds to the middle between two of float32."""
    exact = Fraction(int(value)) if isinstance(value, np.integer) else Fraction(*value.as_integer_ratio())
    assert _number("x", value).tolist() == [oracle.float_bits(exact)]


@pytest.mark.parametrize("value", [
    np.timedelta64(1, "s"), np.True_, np.float32("nan"), np.longdouble("-inf"), 1j, "1", np.ones(1)])  # fmt: skip
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ArgumentError, match=r"x=.*; allowed is a finite number"):
        _number("x", value)


def test_a_number_has_the_bounds_of_its_argument():
    x = np.ones(2, np.float32)
    for beta in (0, 1, 0.0, Fraction(1), np.float32(1), np.int32(0), (0, 5), (5, 5)):
        assert refnum.ema_update(x, x, beta).tolist() == [1, 1]
    for bad in (-1e-9, np.nextafter(1, 2), (6, 5), True, None, np.inf, Fraction(-1, 5), [1, 0]):
        with pytest.raises(ArgumentError):
            refnum.ema_update(x, x, bad)
    assert refnum.q_ramping(x, 320 * x, most=1).tolist() == [1, 1] and refnum.q_ramping(
        x, 320 * x, most=2
    ).tolist() == [2, 2]


def test_channels_of_every_number_are_chosen_by_value():
    """Signs, both zeros, infinities and NaN of both signs: of equal ones those with the lower index."""
    dice = np.random.default_rng(9)
    special = [0, 1 << 31, 1, (1 << 31) + 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7F7FFFFF,
               0xFF7FFFFF, 0x3F800000, 0xBF800000]  # fmt: skip
    for seed, pool in enumerate((special, special[:2], special[:4], special[4:6], special[6:9], special[10:])):
        norms = np.random.default_rng(seed).choice(np.array(pool, np.uint32), 640)
        for share in (Fraction(1, 4), Fraction(1, 2), Fraction(4, 5)):
            got = refnum.out_control(norms.view(np.float32), share)
            assert got.tolist() == second.out_control(norms.tolist(), share)
    zeros = (dice.integers(0, 2, 256, np.uint32) << np.uint32(31)).view(np.float32)
    assert refnum.out_control(zeros, Fraction(1, 2)).tolist() == [True] * 128 + [False] * 128


def test_refusals():
    x, y = np.zeros((2, 128), np.float32), np.zeros((2, 128), np.float64)
    packed, scales, outer = refnum.quantize_tetrajet_v2(x)
    count = np.zeros((2, 128), np.int32)
    bad = [
        (DtypeError, lambda: refnum.ema_update(y, x)),
        (ArgumentError, lambda: refnum.ema_update(x, x, 1.5)),
        (ArgumentError, lambda: refnum.ema_update(x, x, "much")),
        (ShapeError, lambda: refnum.distance_update(x, x[:1], x)),
        (DtypeError, lambda: refnum.q_ramping(x, x.astype(np.float16))),
        (ArgumentError, lambda: refnum.q_ramping(x, x, 0)),
        (ArgumentError, lambda: refnum.q_ramping(x, x, most=0)),
        (ArgumentError, lambda: refnum.q_ramping(x, x, most=1 << 31)),
        (ArgumentError, lambda: refnum.ramping_step(x, count + np.int32((1 << 31) - 1), x, count + 1)),
        (ArgumentError, lambda: refnum.ramping_step(x, count, x, count + np.uint32(1 << 31))),
        (ArgumentError, lambda: refnum.ramping_step(x, count, x, count)),
        (DtypeError, lambda: refnum.ramping_step(x, count.astype(np.float64), x, count + 1)),
        (ShapeError, lambda: refnum.osci_reset(x[:1], packed, scales, outer)),
        (ArgumentError, lambda: refnum.osci_reset(x, packed, scales, outer, np.nan)),
        (ShapeError, lambda: refnum.out_control(x[0, 0])),
        (ArgumentError, lambda: refnum.out_control(x[0], 2)),
        (ArgumentError, lambda: refnum.out_control(x[0], (-1, 2))),
        (DtypeError, lambda: refnum.out_control(y)),
        (DtypeError, lambda: refnum.channel_norms(y)),
    ]
    for error, call in bad:
        with pytest.raises(error):
            call()
