"""Sizes of mixture-of-experts models: public ones as their `config.json` says, and the small ones that train here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from refnum.errors import ArgumentError, shown


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention. Sizes of a head: nope, rope, value; of the latents: query (0 for none), latent."""

    heads: int
    query: int
    latent: int
    nope: int
    rope: int
    value: int

    def weights(self, hidden: int) -> int:
        """Return the weights of one layer's attention."""
        wide = self.heads * (self.nope + self.rope)
        queries = hidden * self.query + self.query * wide if self.query else hidden * wide
        keys = hidden * (self.latent + self.rope) + self.latent * self.heads * (self.nope + self.value)
        return queries + keys + self.heads * self.value * hidden

    def latents(self) -> int:
        """Return the elements a token between the two projections."""
        return self.query + self.latent + self.rope

    def operands(self) -> int:
        """Return the elements a token of queries, keys and values."""
        return self.heads * (2 * (self.nope + self.rope) + self.value)

    def output(self) -> int:
        """Return the elements a token of attention's output."""
        return self.heads * self.value


@dataclass(frozen=True)
class Grouped:
    """Attention whose `heads` queries share `groups` keys and values, each of `width` elements."""

    heads: int
    groups: int
    width: int

    def weights(self, hidden: int) -> int:
        """Return the weights of one layer's attention."""
        return hidden * (self.operands() + self.output())

    def latents(self) -> int:
        """Return 0: queries, keys and values come from the hidden state at once."""
        return 0

    def operands(self) -> int:
        """Return the elements a token of queries, keys and values."""
        return (self.heads + 2 * self.groups) * self.width

    def output(self) -> int:
        """Return the elements a token of attention's output."""
        return self.heads * self.width


@dataclass(frozen=True)
class Model:
    """Sizes of one model.

    Attributes:
        layers, dense: all layers, and how many of them, the first, have a dense feed-forward layer.
        hidden, wide, expert: columns between layers, within a dense feed-forward layer, within an expert.
        experts, top, shared: routed experts, how many a token takes, and shared ones.
        vocabulary: rows of the embedding; the output has its own.
        attention: its sizes.
        sequence: tokens of a training sequence.
        pipeline, expert_ranks, tensor: into how many parts layers, experts, and the rest with the sequence are split,
            unless told otherwise.
        source: the repository at huggingface.co with the `config.json`; empty for a model of ours.
    """

    layers: int
    dense: int
    hidden: int
    wide: int
    expert: int
    experts: int
    top: int
    shared: int
    vocabulary: int
    attention: Latent | Grouped
    sequence: int = 4096
    pipeline: int = 1
    expert_ranks: int = 1
    tensor: int = 1
    source: str = ""

    def attention_weights(self) -> int:
        """Return the weights of attention in one layer."""
        return self.attention.weights(self.hidden)

    def expert_weights(self) -> int:
        """Return the weights of the routed experts in one layer."""
        return 3 * self.hidden * self.expert * self.experts

    def other_weights(self, layer: int) -> int:
        """Return the weights of a layer that no expert owns: attention, dense feed-forward, shared experts, router."""
        if layer < self.dense:
            return self.attention_weights() + 3 * self.hidden * self.wide
        return self.attention_weights() + self.hidden * (3 * self.expert * self.shared + self.experts)

    def copies(self, ranks: int) -> Fraction:
        """Return to how many of the ranks that share the experts a token is sent on average, if all are equally likely.

        A token goes once to a rank, however many of its experts are there.
        """
        others = math.comb(self.experts - self.experts // ranks, self.top)
        return ranks * (1 - Fraction(others, math.comb(self.experts, self.top)))

    def parameters(self) -> int:
        """Return the weights of the whole model, without those of norms."""
        layers = sum(self.other_weights(layer) for layer in range(self.layers))
        return layers + (self.layers - self.dense) * self.expert_weights() + 2 * self.vocabulary * self.hidden


_V3 = Latent(128, 1536, 512, 128, 64, 128)
MODELS: dict[str, Model] = {
    "deepseek-v3": Model(
        61, 3, 7168, 18432, 2048, 256, 8, 1, 129280, _V3, 4096, 16, 16, 2, "deepseek-ai/DeepSeek-V3"
    ),
    "deepseek-v2": Model(
        60, 1, 5120, 12288, 1536, 160, 6, 2, 102400, _V3, 4096, 4, 32, 1, "deepseek-ai/DeepSeek-V2"
    ),
    "deepseek-v2-lite": Model(
        27, 1, 2048, 10944, 1408, 64, 6, 2, 102400, Latent(16, 0, 512, 128, 64, 128), 4096, 1, 8, 1,
        "deepseek-ai/DeepSeek-V2-Lite",
    ),
    "kimi-k2": Model(
        61, 1, 7168, 18432, 2048, 384, 8, 1, 163840, Latent(64, 1536, 512, 128, 64, 128), 4096, 16, 32, 2,
        "moonshotai/Kimi-K2-Instruct",
    ),
    "qwen3-235b": Model(
        94, 0, 4096, 12288, 1536, 128, 8, 0, 151936, Grouped(64, 4, 128), 4096, 16, 8, 4, "Qwen/Qwen3-235B-A22B"
    ),
    "qwen3-30b": Model(
        48, 0, 2048, 6144, 768, 128, 8, 0, 151936, Grouped(32, 4, 128), 4096, 1, 8, 1, "Qwen/Qwen3-30B-A3B"
    ),
    "medium": Model(4, 0, 1024, 0, 1024, 8, 2, 0, 256, Grouped(16, 16, 64), 512),
    "small": Model(4, 0, 512, 0, 512, 8, 2, 0, 256, Grouped(8, 8, 64), 512),
    "survey": Model(2, 0, 256, 0, 256, 4, 2, 0, 256, Grouped(4, 4, 64), 256),
    "dense": Model(2, 0, 256, 0, 512, 1, 1, 0, 256, Grouped(4, 4, 64), 256),
    "tiny": Model(2, 0, 128, 0, 128, 4, 2, 0, 256, Grouped(4, 4, 32), 64),
}  # fmt: skip
"""Name -> sizes. `small` and `medium`, twice as wide, train on one GPU, `tiny` on a processor, `survey` and `dense`,
which has one expert for all tokens, many times on one GPU; these five read bytes."""


def get_model(name: str) -> Model:
    """Return the model of a name; ArgumentError names those that are known."""
    if name not in MODELS:
        raise ArgumentError(f"model {shown(name)} is not known; known are {', '.join(MODELS)}")
    return MODELS[name]
