"""Steps whose scalars are known (N27.7): model against oracle on numbers of every kind, and a step in two parts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError, DtypeError, ShapeError
from refnum.optimisers import AdamState, SpamState
from refnum.oracle import updates as second
from refnum.stable_spam import StableSpamState

KINDS = np.array([0, 1, 0x7FFFFF, 0x800000, 0x1F800001, 0x3F7FFFFF, 0x40490FDB, 0x5F7FFFFF, 0x7F7FFFFF, 0x7F800000,
                  0x7FC00000, 0x7F800001], np.uint32)  # fmt: skip
STATES = {"adam_step": AdamState, "spam_step": SpamState, "stable_spam_step": StableSpamState}


def words(dice, shape, odd):
    bits = dice.integers(0, 1 << 23, shape) | (dice.integers(110, 135, shape) << 23)
    return (
        np.where(dice.random(shape) < odd, dice.choice(KINDS, shape), bits) | dice.integers(0, 2, shape) << 31
    ).astype(np.uint32)


def asked(seed, count, odd):
    dice = np.random.default_rng(seed)
    arrays = [words(dice, (1, 400), odd) for _ in range(4)]
    arrays[3] &= np.uint32(0x7FFFFFFF if seed % 2 else 0xFFFFFFFF)
    return arrays, words(dice, count, odd)


def same(found, arrays, one):
    want = [one(*four) for four in zip(*(array[0].tolist() for array in arrays), strict=True)]
    assert [result.view(np.uint32)[0].tolist() for result in found] == [list(part) for part in zip(*want, strict=True)]


@pytest.mark.parametrize(("seed", "odd"), list(itertools.product(range(6), (0, 0.3))))
def test_adam_equals_the_oracle(seed, odd):
    arrays, factors = asked(seed, 8, odd)
    found = refnum.adam_apply(*(a.view(np.float32) for a in arrays), factors.view(np.float32))
    same(found, arrays, lambda g, w, m, v: second.adam(g, w, m, v, factors.tolist()))


@pytest.mark.parametrize(("seed", "odd"), list(itertools.product(range(4), (0, 0.3))))
@pytest.mark.parametrize("flags", list(itertools.product((False, True), repeat=3)))
def test_spam_equals_the_oracle(seed, odd, flags):
    arrays, factors = asked(seed, 8, odd)
    found = refnum.spam_apply(*(a.view(np.float32) for a in arrays), factors.view(np.float32), *flags)
    same(found, arrays, lambda g, w, m, v: second.spam(g, w, m, v, factors.tolist(), *flags))


@pytest.mark.parametrize(("seed", "odd"), list(itertools.product(range(4), (0, 0.3))))
@pytest.mark.parametrize("forget", ["", "before", "after"])
def test_stable_spam_equals_the_oracle(seed, odd, forget):
    arrays, factors = asked(seed, 12, odd)
    found = refnum.stable_spam_apply(*(a.view(np.float32) for a in arrays), factors.view(np.float32), forget)
    same(found, arrays, lambda g, w, m, v: second.stable_spam(g, w, m, v, factors.tolist(), forget))


X, SCALARS = np.zeros((2, 3), np.float32), np.zeros(8, np.float32)


@pytest.mark.parametrize(("name", "arguments", "error"), [
    ("adam_apply", (X, X, X, X[:1], SCALARS), ShapeError), ("adam_apply", (X, X, X, X, SCALARS[:7]), ShapeError),
    ("adam_apply", (X, X.astype(float), X, X, SCALARS), DtypeError),
    ("spam_apply", (X, X, X, X, SCALARS, 1), ArgumentError), ("spam_apply", (X, X, X, X, X), ShapeError),
    ("stable_spam_apply", (X, X, X, X, np.zeros(12, np.float32), "now"), ArgumentError)])  # fmt: skip
def test_bad_arguments_are_refused(name, arguments, error):
    with pytest.raises(error):
        getattr(refnum, name)(*arguments)


def test_a_rate_that_is_lost_in_float32_still_decides_what_is_done():
    """`spam_step` clips where threshold is not 0, whether or not it is 0 as float32 (N27.3)."""
    weight, gradient = np.ones(2, np.float32), np.ones(2, np.float32)
    states = [SpamState.start(weight)] * 2
    ways = [
        refnum.spam_step(s, gradient, weight, threshold=t, quiet=0, gap=0)
        for s, t in zip(states, (1e-60, 0.0), strict=True)
    ]
    assert ways[0][0].m.tolist() == [0, 0] and ways[1][0].m.tolist() != [0, 0]


def test_steps_of_nothing():
    empty = np.zeros((0, 3), np.float32)
    assert [part.shape for part in refnum.adam_apply(empty, empty, empty, empty, SCALARS)] == [(0, 3)] * 3
    assert refnum.adam_step(AdamState.start(empty), empty, empty)[1].shape == (0, 3)


@pytest.mark.parametrize("step", ["adam_step", "spam_step", "stable_spam_step"])
def test_a_weight_without_axes_is_stepped_as_an_array_of_one(step):
    state, found = {}, {}
    for shape in ((), (1,)):
        weight, gradient = np.full(shape, 1.5, np.float32), np.full(shape, 0.25, np.float32)
        state[shape] = STATES[step].start(weight)
        for _ in range(3):
            state[shape], weight = getattr(refnum, step)(state[shape], gradient, weight)
        assert isinstance(weight, np.ndarray) and weight.shape == state[shape].m.shape == shape
        found[shape] = weight.reshape(-1), state[shape].m.reshape(-1), state[shape].v.reshape(-1)
    for one, other in zip(found[()], found[(1,)], strict=True):
        assert np.array_equal(one.view(np.uint32), other.view(np.uint32))
