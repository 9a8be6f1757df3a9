"""Steps of Adam, SPAM and Stable-SPAM (N27): model against oracle, known answers, resets in both modes."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.oracle import float_bits, float_value
from refnum.oracle import optimisers as second
from refnum.schedules import _cosine, _pi, cosine_factor, rounded_power64
from refnum.stable_spam import stable_spam_factors

SPAM = {"gap": 5, "warmup": 3, "quiet": 2, "threshold": 50.0}
STABLE = {"gap": 3, "gammas": (0.7, 0.9), "theta": 0.999}
KNOWN = {
    1000: [-0.00265732063668, 0.00235828271375, -0.00228547815369, 0.000760823127013],
    2: [-0.00284577393984, 0.00252448036427, -0.00256553360462, 0.00151798562383],
}
"""Reset every so many steps -> the weight after the three gradients below, in float64."""
GRADIENTS = [[1, -2, 3, -4], [1, 1, -1, 40], [0.5, -0.5, 0.25, -0.125]]


def bits(x):
    return np.asarray(x, np.float32).view(np.uint32).ravel().tolist()


def gradients(count, size, seed=1):
    """Gradients of several sizes; some with zeros, subnormals, NaN or Inf."""
    dice = np.random.default_rng(seed)
    for number in range(count):
        found = (dice.standard_normal(size) * 10.0 ** dice.integers(-4, 3)).astype(np.float32)
        found[:: 5 + number] = dice.choice(np.array([0, -0.0, 1e-40, 3e19, 1e-25], np.float32))
        if number == count - 1:
            found[1], found[2] = np.nan, np.inf
        yield found


def same(state, other):
    assert bits(state.m) == list(other.m) and bits(state.v) == list(other.v) and state.step == other.step


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_equals_the_oracle(decay):
    weight = np.linspace(-1, 1, 24, dtype=np.float32)
    state, other, wide = refnum.AdamState.start(weight), second.State([0] * 24, [0] * 24), bits(weight)
    rates = second.Rates(3e-3, (0.95, 0.98), 1e-8, decay)
    for gradient in gradients(6, 24):
        state, weight = refnum.adam_step(state, gradient, weight, lr=3e-3, betas=(0.95, 0.98), weight_decay=decay)
        other, wide = second.adam(other, bits(gradient), wide, rates)
        same(state, other)
        assert bits(weight) == wide


@pytest.mark.parametrize(
    "options", [SPAM, *({**SPAM, name: 0} for name in ("threshold", "gap", "warmup")), {**SPAM, "gap": 1}]
)
def test_spam_equals_the_oracle(options):
    weight = np.linspace(-1, 1, 20, dtype=np.float32)
    state, other, wide = refnum.SpamState.start(weight), second.State([0] * 20, [0] * 20), bits(weight)
    rates = second.Rates(1e-3, eps=1e-6, weight_decay=0.01, more=options)
    for gradient in gradients(14, 20, 2):
        state, weight = refnum.spam_step(state, gradient, weight, weight_decay=0.01, **options)
        other, wide = second.spam(other, bits(gradient), wide, rates)
        same(state, other)
        assert bits(weight) == wide and state.total == other.total


@pytest.mark.parametrize("mode", ["code", "paper"])
@pytest.mark.parametrize("steps", [None, 9])
def test_stable_spam_equals_the_oracle(mode, steps):
    weight = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
    state, other, wide = refnum.StableSpamState.start(weight), second.State([0] * 20, [0] * 20), bits(weight)
    more = {"gamma1": 0.7, "gamma2": 0.9, "theta": 0.999, "gap": 3} | ({"steps": steps, "least": 0.5} if steps else {})
    rates = second.Rates(1e-3, weight_decay=0.02, more=more)
    for gradient in gradients(9, 20, 3):
        state, weight = refnum.stable_spam_step(
            state, gradient.reshape(4, 5), weight, weight_decay=0.02, steps=steps, mode=mode, **STABLE
        )
        other, wide = second.stable_spam(other, bits(gradient), wide, rates, mode)
        same(state, other)
        assert bits(weight) == wide
        assert bits([state.peak, state.norm, state.square]) == [other.peak, other.norm, other.square]


@pytest.mark.parametrize("total", [0, 18, 19, 20, 148, 149, 150, 498, 499, 500, 517, 518, 519, 520, 648, 649, 650, 999])
def test_the_defaults_of_spam_are_those_of_the_clause(total):
    weight = np.linspace(-1, 1, 8, dtype=np.float32)
    moments = np.full(8, 0.01, np.float32), np.full(8, 0.02, np.float32)
    gradient = np.array([9.9, 10.1, -11, 1e3, 0, 1, -9.9, 10], np.float32)
    start = replace(refnum.SpamState.start(weight), m=moments[0], v=moments[1], step=total, total=total)
    other = second.State(bits(moments[0]), bits(moments[1]), total, total)
    more = {"gap": 500, "warmup": 150, "quiet": 20, "threshold": 5000.0}
    state, stepped = refnum.spam_step(start, gradient, weight)
    after, wide = second.spam(other, bits(gradient), bits(weight), second.Rates(eps=1e-6, more=more))
    same(state, after)
    assert bits(stepped) == wide and state.total == after.total == total + 1


@pytest.mark.parametrize("total", [0, 998, 999, 1000, 1999])
def test_the_defaults_of_stable_spam_are_those_of_the_clause(total):
    weight = np.linspace(-1, 1, 6, dtype=np.float32)
    gradient = np.array([1, -2, 3, 40, 0, 0.5], np.float32)
    start = replace(refnum.StableSpamState.start(weight), step=total, total=total)
    more = {"gamma1": 0.7, "gamma2": 0.9, "theta": 0.999, "gap": 1000}
    state, stepped = refnum.stable_spam_step(start, gradient, weight)
    after, wide = second.stable_spam(second.State([0] * 6, [0] * 6, total, total), bits(gradient), bits(weight),
                                     second.Rates(more=more))  # fmt: skip
    same(state, after)
    assert bits(stepped) == wide


def test_stable_spam_without_resets_with_one_each_step_and_in_a_run_of_one_step():
    weight, gradient = np.linspace(-1, 1, 6, dtype=np.float32), np.array([1, -2, 3, 40, 0, 0.5], np.float32)
    one = {"steps": 1}, {"gap": 1000, "steps": 1, "least": 0.5}
    for given, more in (({"gap": 0}, {"gap": 0}), ({"gap": 1}, {"gap": 1}), one):
        state, stepped = refnum.stable_spam_step(refnum.StableSpamState.start(weight), gradient, weight, **given)
        after, wide = second.stable_spam(second.State([0] * 6, [0] * 6), bits(gradient), bits(weight), second.Rates(
            more={"gamma1": 0.7, "gamma2": 0.9, "theta": 0.999} | more))  # fmt: skip
        same(state, after)
        assert bits(stepped) == wide


def test_a_measured_nan_of_any_payload_is_the_quiet_one_and_infinity_stays():
    gradient = np.ones(4, np.float32)
    start = refnum.StableSpamState.start(gradient)
    for measured, kept in ((0x7F800001, 0x7FC00000), (0xFFC00005, 0x7FC00000), (0x7F800000, 0x7F800000)):
        largest = np.array([measured], np.uint32).view(np.float32)
        assert bits(stable_spam_factors(start, gradient, largest=largest)[0].largest) == [kept]


def test_the_largest_gradient_of_none_is_zero():
    none = np.zeros(0, np.float32)
    assert bits(stable_spam_factors(refnum.StableSpamState.start(none), none)[0].largest) == [0]


def stable(gap, mode="code"):
    weight = np.zeros(4, np.float32)
    state = refnum.StableSpamState.start(weight)
    for gradient in GRADIENTS:
        state, weight = refnum.stable_spam_step(state, np.array(gradient, np.float32), weight, gap=gap, mode=mode)
    return state, weight


@pytest.mark.parametrize("gap", KNOWN)
def test_known_answers_of_stable_spam(gap):
    """The reference's answers are in float64; three float32 steps agree to six digits."""
    assert np.allclose(stable(gap)[1], KNOWN[gap], rtol=3e-6, atol=0)


def test_a_reset_forgets_a_gradient_in_code_and_the_past_in_paper():
    (code, one), (paper, two) = (stable(3, mode) for mode in ("code", "paper"))
    assert not code.m.any() and not code.v.any() and paper.m.all() and code.step == paper.step == 1
    assert not np.array_equal(one, two) and code.peak == paper.peak


def test_the_first_step_of_adam_is_the_rate_with_the_gradient_s_sign():
    weight = np.zeros(4, np.float32)
    state, weight = refnum.adam_step(refnum.AdamState.start(weight), np.array([1, -2, 3, -4], np.float32), weight)
    assert np.allclose(weight, [-1e-3, 1e-3, -1e-3, 1e-3], rtol=1e-6) and state.step == 1


def test_spam_clips_a_spike_to_the_threshold_s_root():
    weight = np.zeros(2, np.float32)
    state = replace(refnum.SpamState.start(weight), v=np.full(2, 4, np.float32), total=40, step=40)
    after, _ = refnum.spam_step(state, np.array([1000, -150], np.float32), weight, threshold=2500)
    plain, _ = refnum.spam_step(state, np.array([100, -100], np.float32), weight, threshold=0)
    assert np.array_equal(after.m, plain.m) and np.array_equal(after.v, plain.v)


def test_points_of_the_cosine():
    assert [round(cosine_factor(t, 150), 5) for t in (0, 75, 149)] == [0.01, 0.49985, 0.99957]
    assert round(cosine_factor(10000, 20000, 0.5), 8) == 0.75001963
    assert round(cosine_factor(20000, 20000, 0.5), 10) == 0.5000000031
    for place in (0, 1, 37, 75, 76, 150, 151, 152, 400):
        assert cosine_factor(place, 150) == second.cosine64(place, 150)
        assert cosine_factor(place, 150, 0.25) == second.cosine64(place, 150, 0.25)


def test_pi_has_the_digits_of_pi():
    assert _pi() == 0x3_243F6A88_85A308D3_13198A2E_03707344_A4093822_299F31D0_082EFA98_EC4E6C89


def test_cosines_of_angles_with_known_roots_are_right_to_ten_units():
    unit = 1 << 256
    two, three, five, six = (math.isqrt(number * unit * unit) for number in (2, 3, 5, 6))
    known = {(1, 3): unit // 2, (1, 4): two // 2, (1, 6): three // 2, (2, 5): (five - unit) // 4,
             (1, 5): (five + unit) // 4, (1, 12): (six + two) // 4, (5, 12): (six - two) // 4}  # fmt: skip
    for (place, length), cosine in known.items():
        for turn in (0, 2 * length, 4 * length):
            assert abs(_cosine(turn + place, length) - cosine) < 10 > abs(_cosine(turn - place, length) - cosine)
            assert abs(_cosine(turn + length - place, length) + cosine) < 10
    for length in (1, 2, 3, 8, 9):
        assert _cosine(0, length) == unit == -_cosine(length, length) == _cosine(2 * length, length)
        assert _cosine(length, 2 * length) == 0 == _cosine(3 * length, 2 * length)


def test_the_default_of_a_falling_cosine_rises():
    assert cosine_factor(3, 10) == second.cosine64(3, 10) < cosine_factor(4, 10)
    assert cosine_factor(0, 7, 0.25) == 1 and cosine_factor(0, 7, 1.0) == cosine_factor(5, 7, 1.0) == 1


def test_powers_are_rounded_once():
    for base in (0.9, 0.999, 0.5, 0.95 * 0.75, 0.0, 1e-100, 1e-70, 0.99999):
        for power in (1, 2, 3, 17, 1000, 12345 if base > 0.99 else 60):
            assert rounded_power64(base, power) == float(Fraction(base) ** power)
    for odd in range(94906267, 94906287, 2):  # squares of 54 bits: ties
        for base in (odd / 2**27, odd / 2**26, odd / 2**300):
            assert rounded_power64(base, 2) == float(Fraction(base) ** 2)
    assert rounded_power64(1.0, 7) == 1 and rounded_power64(1.999, 900) == float(Fraction(1.999) ** 900)


def test_the_norm_is_exact():
    dice = np.random.default_rng(8)
    for spread in (1, 30, 126):
        exponent = np.clip(dice.integers(127 - spread, 128 + spread, 200), 0, 254)
        x = (dice.integers(0, 1 << 23, 200) | exponent << 23).astype(np.uint32).view(np.float32)
        assert bits(refnum.exact_norm(x)) == [second.norm(bits(x))]
    for special in ([], [0, -0.0], [3, 4], [1e-45], [np.inf, 1], [np.nan, np.inf], [3e38] * 8):
        assert bits(refnum.exact_norm(np.array(special, np.float32))) == [second.norm(bits(special))]
    ties = [[2.0**24, *[2.0**12] * 2, *rest] for rest in ([], [1], [1, 2.0**-40])]
    ties += [[2.0**24, *[2.0**12] * 6, rest] for rest in (2, 3, 3.5)]
    small = [[2.0**-126 - 2.0**-149]]
    small += [[2.0**-149] * 2, [2.0**-149] * 3, [2.0**-126, *[2.0**-138] * 2], [2.0**-127, 2.0**-149],
             [2.0**-126, 2.0**-138, 2.0**-138, 2.0**-149], [2.0**-125, 2.0**-149],
             [2.0**-125, *[2.0**-137] * 2, 2.0**-149]]  # fmt: skip
    top = float(np.finfo(np.float32).max)
    for numbers in (*ties, *small, [top, 2.0**115], [top, 2.0**116], [top], [2.0**127, 1e-45]):
        assert bits(refnum.exact_norm(np.array(numbers, np.float32))) == [second.norm(bits(numbers))]
    swamped = np.array([4097, *[0.5] * 4096], np.float32)
    assert bits(refnum.exact_norm(swamped)) == [second.norm(bits(swamped))] != bits(4097)


def test_roots_of_the_oracle():
    for value in (0, 1, 2, 0.25, 1e-45, 3e38, 7):
        pattern = float_bits(float_value(bits([value])[0]))
        assert second.float32_root(pattern) == bits([np.sqrt(np.float32(value))])[0]


W = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(("step", "kind"), [(refnum.adam_step, refnum.AdamState), (refnum.spam_step, refnum.SpamState),
                                            (refnum.stable_spam_step, refnum.StableSpamState)])  # fmt: skip
def test_bad_arguments_are_refused(step, kind):
    state = kind.start(W)
    for wrong in ({"lr": -1}, {"lr": "1"}, {"lr": True}, {"lr": float("nan")}, {"betas": (0.9,)}, {"betas": (1, 0.9)},
                  {"betas": 0.9}, {"eps": float("inf")}, {"weight_decay": -0.1}):  # fmt: skip
        with pytest.raises(ArgumentError):
            step(state, W, W, **wrong)
    with pytest.raises(ArgumentError):
        step(W, W, W)
    with pytest.raises(DtypeError):
        step(state, W.astype(np.float64), W)
    with pytest.raises(ShapeError):
        step(state, W[:1], W)
    with pytest.raises(DtypeError):
        kind.start(["1"])


@pytest.mark.parametrize("wrong", [{"mode": "torch"}, {"gammas": (0.5, 1)}, {"theta": 1}, {"gap": -1}, {"gap": 2.0},
                                   {"steps": 0}, {"least": 1, "steps": 4}])  # fmt: skip
def test_bad_arguments_of_stable_spam_are_refused(wrong):
    with pytest.raises(ArgumentError):
        refnum.stable_spam_step(refnum.StableSpamState.start(W), W, W, **wrong)
