"""Stable-SPAM of torch tensors steps as the model does, and a checkpoint keeps its state."""

import numpy as np
import pytest
import torch

import refnum
from refnum.training.stable_spam import StableSpam

RATES = (1e-3, 5e-4, 1e-3, 7e-4, 2e-3)


OPTIONS = {
    "as it is": (1.0, {}),
    "gradients as small as eps": (2.0**-30, {}),
    "rates of the averages": (1.0, {"gammas": (0.5, 0.8), "theta": 0.9, "eps": 1e-3}),
}
"""Factor of the gradients, and options beside betas and gap."""


def gradients(step, size=1.0):
    dice = np.random.default_rng(step)
    found = [np.float32(size) * dice.standard_normal(shape).astype(np.float32) for shape in ((16, 24), (24,))]
    found[0][3, 5] *= 40.0  # a spike
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_are_those_of_the_model(name):
    """Spikes, a reset in the fourth step, and one weight without decay."""
    size, more = OPTIONS[name]
    options = {"betas": (0.9, 0.95), "gap": 4, **more}
    first = [np.float32(0.1) * one for one in gradients(99)]
    weights, decays = [torch.from_numpy(one.copy()) for one in first], (0.1, 0.0)
    ours = StableSpam(weights, decays, **options)
    states, right = [refnum.StableSpamState.start(one) for one in first], list(first)
    for number, rate in enumerate(RATES):
        given = gradients(number, size)
        if number == 2:
            kept = {name: one.clone() for name, one in ours.tensors().items()}
            ours = StableSpam(weights, decays, **options)
            ours.load(kept)
        ours.step([torch.from_numpy(one) for one in given], rate)
        for at, decay in enumerate(decays):
            states[at], right[at] = refnum.stable_spam_step(
                states[at], given[at], right[at], lr=rate, weight_decay=decay, **options
            )
            assert np.array_equal(weights[at].numpy(), right[at])


def test_a_gradient_of_zeros_moves_nothing_but_by_decay():
    weight = torch.ones(4, 4)
    StableSpam([weight], [0.5]).step([torch.zeros(4, 4)], 0.1)
    assert torch.equal(weight, torch.full((4, 4), float(np.float32(0.95))))
