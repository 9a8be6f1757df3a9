"""Operands that torch quantises for all experts at once have the bits of the golden operations, expert by expert."""

import numpy as np
import pytest
import torch

import refnum
from refnum.philox import Key, random_bits
from refnum.training import forms
from refnum.training.words import random_bytes

KEYS = [Key(2**63 + 12345, 7, 9), Key(2**63 + 12345, (11 << 24) + 8, 9)]
HOST = torch.device("cpu")


def numbers(seed, m=256, k=256):
    """Rows of many magnitudes, a row of zeros, and a zero with a sign."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(m, k, generator=generator) * torch.exp(4 * torch.randn(m, k, generator=generator))
    x[:16], x[20, 3] = 0.0, -0.0
    return x.to(torch.bfloat16)


def same(a, b):
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def test_words_of_several_streams_are_those_of_the_clause():
    counts = (64, 0, 160)
    keys = [KEYS[0], KEYS[1]._replace(stream=5), KEYS[1]]
    found = random_bytes(keys, counts, HOST).numpy()
    right = [
        random_bits(n, 8, seed=key.seed, stream=key.stream, step=key.step) for n, key in zip(counts, keys, strict=True)
    ]
    assert np.array_equal(found, np.concatenate(right))


@pytest.mark.parametrize("tile", [(1, 16), (16, 16)])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("random", [False, True])
def test_nvfp4_is_that_of_the_model(tile, dim, random):
    x, experts = numbers(dim), forms.Experts(dim, (128, 128))
    found = forms.nvfp4(x, tile, experts, KEYS if random else ())
    parts = (experts.parts(one) for one in (x, found.values, found.elements))
    for expert, (part, values, elements) in enumerate(zip(*parts, strict=True)):
        words = {"philox": tuple(KEYS[expert])} if random else {}
        packed, scales, amax = refnum.quantize_nvfp4(part.contiguous(), tile=tile, **words)
        assert torch.equal(forms.packed(elements), packed) and amax == found.amax[expert]
        assert same(values, refnum.dequantize_nvfp4(packed, scales, amax, tile=tile, dtype=torch.bfloat16))


@pytest.mark.parametrize("random", [False, True])
def test_e2m1_of_every_bfloat16_number_is_that_of_the_clause(random):
    """Stochastic rounding with each number's own byte; N2 saturates, and keeps the sign of a zero."""
    y = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    y = y[~y.isnan()][:65024].view(-1, 256)
    drawn = torch.from_numpy(np.random.default_rng(0).integers(0, 256, tuple(y.shape)).astype(np.uint8))
    found = forms.e2m1_at_random(y, drawn) if random else forms.e2m1(y)
    profile = refnum.get_profile("STOCHASTIC" if random else "HOPPER")
    words = {"rbits": drawn.numpy()} if random else {}
    right = refnum.encode(refnum.E2M1, y.numpy(), 0, profile, **words)
    assert np.array_equal(forms.packed(found).numpy(), right[:, ::2] | right[:, 1::2] << 4)
