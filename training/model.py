"""A byte-level transformer whose feed-forward layers are mixtures of experts: BF16 attention, RMSNorm, rotary."""

from __future__ import annotations

import torch
from torch.nn import functional

from refnum.errors import ArgumentError

from .edges import fused
from .layer import MoELayer, Witness
from .models import Grouped, Model
from .policies import Policy
from .simulated import Simulated

Tensor = torch.Tensor
BF16 = torch.bfloat16
THETA = 10_000.0


class Norm(torch.nn.Module):
    """Root mean square norm with a float32 weight, computed in float32."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows of bfloat16 [..., hidden], each divided by its root mean square."""
        if fused is not None and fused.takes(x):
            return fused.norm(x, self.weight)
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * self.weight).to(BF16)


class Attention(torch.nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, hidden: int, sizes: Grouped) -> None:
        super().__init__()
        self.sizes = sizes
        self.inner = torch.nn.Linear(hidden, sizes.operands(), bias=False, dtype=BF16)
        self.outer = torch.nn.Linear(sizes.output(), hidden, bias=False, dtype=BF16)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Return attention's output for bfloat16 [sequences, length, hidden]."""
        heads, groups, width = self.sizes.heads, self.sizes.groups, self.sizes.width
        count, length, _ = x.shape
        inner = self.inner(x)
        if fused is not None and fused.takes(turns[0]):
            query, key, value = (one.transpose(1, 2) for one in fused.split_and_turned(inner, (heads, groups), turns))
        else:
            parts = inner.split([heads * width, groups * width, groups * width], dim=-1)
            query, key, value = (part.view(count, length, -1, width).transpose(1, 2) for part in parts)
            query, key = _turned(query, turns), _turned(key, turns)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=heads != groups)
        return self.outer(found.transpose(1, 2).reshape(count, length, heads * width))


def turns(length: int, width: int, device: torch.device | str | None) -> tuple[Tensor, Tensor]:
    """Return cosines and sines float32 [length, width / 2] of rotary positions."""
    rates = THETA ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return angles.cos().float().to(device), angles.sin().float().to(device)


def _turned(x: Tensor, by: tuple[Tensor, Tensor]) -> Tensor:
    left, right = x.float().chunk(2, dim=-1)
    cos, sin = by
    return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1).to(BF16)


class Block(torch.nn.Module):
    """Attention and a mixture of experts, each on the norm of the residual."""

    def __init__(self, model: Model, attention: Grouped, experts: MoELayer) -> None:
        super().__init__()
        self.before_attention, self.before_experts = Norm(model.hidden), Norm(model.hidden)
        self.attention, self.experts = Attention(model.hidden, attention), experts

    def forward(self, x: Tensor, by: tuple[Tensor, Tensor]) -> Tensor:
        """Return the residual after this block."""
        x = x + self.attention(self.before_attention(x), by)
        rows = self.before_experts(x).view(-1, x.shape[-1])
        return x + self.experts(rows).view_as(x)


class ByteModel(torch.nn.Module):
    """A language model of bytes.

    Weights depend on the seed and on the model's sizes, not on the policy, the device or the number of ranks. A rank
    owns its share of the experts; everything else is on every rank.

    Args:
        model: sizes; every layer has experts, attention is `Grouped`.
        policy: of the experts.
        device: of the parameters.
        seed: of the weights.
        witness: what samples the experts' work.
        seconds: how long an exchange waits for other ranks.

    Raises:
        ArgumentError: a model with dense layers, shared experts or latent attention.
    """

    def __init__(
        self,
        model: Model,
        policy: Policy | str,
        device: torch.device | str = "cpu",
        seed: int = 0,
        witness: Witness | None = None,
        seconds: float = 300.0,
    ) -> None:
        super().__init__()
        attention = model.attention
        if not isinstance(attention, Grouped) or model.dense or model.shared:
            raise ArgumentError(
                "the byte model has grouped attention and routed experts only: `tiny`, `small`, `medium`, "
                "`survey`, `dense`"
            )
        self.sizes = model
        self.embedding = torch.nn.Embedding(model.vocabulary, model.hidden, dtype=BF16)
        self.blocks = torch.nn.ModuleList(
            Block(model, attention, _experts(model, policy, device, seed, witness, seconds, number))
            for number in range(model.layers)
        )
        self.norm = Norm(model.hidden)
        self.output = torch.nn.Linear(model.hidden, model.vocabulary, bias=False, dtype=BF16)
        self._draw(seed)
        self.to(device)
        self.turns = turns(model.sequence, attention.width, device)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the float32 mean cross-entropy of each byte after those before it.

        Args:
            tokens: integers [sequences, length + 1].
        """
        x = self.embedding(tokens[:, :-1])
        by = self.turns[0][: x.shape[1]], self.turns[1][: x.shape[1]]
        for block in self.blocks:
            x = block(x, by)
        logits = self.output(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def at_step(self, step: int) -> None:
        """Tell the experts which step of the training follows."""
        for one in self.layers():
            one.at_step(step)

    def layers(self) -> list[MoELayer]:
        """Return the layers of experts."""
        return [one for one in self.modules() if isinstance(one, MoELayer)]

    def flips(self) -> Tensor | None:
        """Return the share of the experts' weights whose code changed at this step, where it is counted."""
        found = [one.edges.flips for one in self.layers() if isinstance(one.edges, Simulated)]
        shares = [one for one in found if one is not None]
        return torch.stack(shares).mean() if shares else None

    def averages(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps beside the weights, by name."""
        return {f"average.{at}.{name}": one for at, layer in enumerate(self.layers())
                if isinstance(layer.edges, Simulated) for name, one in layer.edges.averages().items()}  # fmt: skip

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what `averages` gave; other tensors may be among them."""
        for at, layer in enumerate(self.layers()):
            if isinstance(layer.edges, Simulated):
                start = f"average.{at}."
                mine = {name[len(start) :]: one for name, one in tensors.items() if name.startswith(start)}
                layer.edges.restore({name: one.to(layer.w1.device) for name, one in mine.items()})

    def owned(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters that only this rank has: those of its experts."""
        return {name: one for name, one in self.named_parameters() if name.endswith(("experts.w1", "experts.w2"))}

    def shared(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters that all ranks have."""
        owned = self.owned()
        return {name: one for name, one in self.named_parameters() if name not in owned}

    def _draw(self, seed: int) -> None:
        """Draw the matrices outside of experts: the vocabulary's with deviation 1/50, others by their inputs."""
        generator = torch.Generator().manual_seed(seed)
        for name, weight in self.named_parameters():
            if "experts" not in name and weight.dim() == 2:
                deviation = weight.shape[1] ** -0.5 if "attention" in name else 0.02
                weight.data = (torch.randn(weight.shape, generator=generator) * deviation).to(BF16)


def _experts(
    model: Model,
    policy: Policy | str,
    device: torch.device | str,
    seed: int,
    witness: Witness | None,
    seconds: float,
    number: int,
) -> MoELayer:
    sizes = model.hidden, model.expert, model.experts, model.top
    return MoELayer(
        *sizes, policy, None, witness, device, seed=(seed << 16) + number, seconds=seconds, name=f"layer {number}"
    )
