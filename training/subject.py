"""Our layer as a subject of `refnum check -o moe_layer`."""

from __future__ import annotations

import torch
import torch.distributed as dist

from .layer import MoELayer

Tensor = torch.Tensor
RETURNED = ("payload", "received", "fc1", "fc2", "returned", "out")


def moe_layer(
    x: Tensor, experts: Tensor, probs: Tensor, w1: Tensor, w2: Tensor, grad: Tensor, policy: str = "mxfp4"
) -> dict[str, Tensor]:
    """Run one step of our layer on this rank and return its tensors by the names of the golden layer."""
    count = len(w1) * (dist.get_world_size() if dist.is_initialized() else 1)
    layer = MoELayer(x.shape[1], w2.shape[2], count, experts.shape[1], policy, device=x.device, seed=0,
                     products="model", seconds=30)  # fmt: skip
    with torch.no_grad():
        layer.w1.copy_(w1)
        layer.w2.copy_(w2)
    layer.record = {}
    x, probs = x.requires_grad_(), probs.requires_grad_()
    layer(x, (experts, probs)).backward(grad)
    record = layer.record
    found = {name: record[f"forward.{name}"] for name in RETURNED}
    found |= {name: record[f"backward.{name}"] for name in ("dact", "dx_rows")}
    assert x.grad is not None and probs.grad is not None
    return found | {"dx": x.grad, "dprobs": probs.grad, "dw1": layer.w1.grad, "dw2": layer.w2.grad}
