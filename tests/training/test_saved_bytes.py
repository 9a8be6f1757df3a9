"""The bytes that a layer keeps and sends are those that its policy's row counts, to the byte."""

import pytest
import torch

from refnum.training import layer as layers
from refnum.training.layer import MoELayer
from refnum.training.policies import get_policy, row_bytes, saved_bytes

HIDDEN, FFN, EXPERTS, TOP, TOKENS = 256, 128, 4, 2, 24


def step(policy, monkeypatch):
    """Return (bytes kept by their first dimension, bytes of each exchange's row) of one forward step."""
    rows = []
    exchange = layers._dispatched
    monkeypatch.setattr(layers, "_dispatched", lambda ranks, x, route: rows.append(x) or exchange(ranks, x, route))
    layer = MoELayer(HIDDEN, FFN, EXPERTS, TOP, policy, seed=1)
    # every expert has rows, none a multiple of 128
    experts = torch.stack([torch.arange(TOKENS) % EXPERTS, (torch.arange(TOKENS) + 1) % EXPERTS], dim=1)
    routing = experts, torch.full((TOKENS, TOP), 0.5)
    x = torch.randn((TOKENS, HIDDEN), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16).requires_grad_()
    out = layer(x, routing)
    # (prob, FC1's weight, FC2's weight, what is kept): a weight has codes and scales with products in FP8
    weights = 4 if layer.edges.fp8 else 2
    kept = out.grad_fn.saved_tensors[1 + weights :]
    return [(len(one), one.nbytes) for one in kept], rows


@pytest.mark.parametrize("name", ["bf16", "fp8", "mxfp4", "fp8+saved_activation=bfloat16", "fp8+saved_input=mxfp4",
                                  "fp8+saved_activation=recompute"])  # fmt: skip
@pytest.mark.parametrize("second", ["recompute", "store"])
def test_kept_bytes_are_counted(name, second, monkeypatch):
    policy = get_policy(f"{name}+fc2_input={second}")
    counted = saved_bytes(policy, HIDDEN, FFN, scale_bytes=1)
    filled = EXPERTS * 128
    kept, _ = step(policy, monkeypatch)
    received = [size for rows, size in kept if rows == TOKENS]
    assert received == [TOKENS * counted["input"]]
    inside = sum(size for rows, size in kept if rows == filled)
    assert inside == filled * (counted["activation"] + counted["fc2_input"])
    assert sum(size for _, size in kept) == inside + received[0]


@pytest.mark.parametrize("name", ["bf16", "fp8", "mxfp4"])
def test_a_token_s_row_is_as_long_as_its_policy_says(name, monkeypatch):
    policy = get_policy(name)
    _, sent = step(policy, monkeypatch)
    assert [(one.dtype, *one.shape) for one in sent] == [
        (torch.uint8, TOKENS, row_bytes(policy.dispatched, HIDDEN, scale_bytes=1))
    ]
