"""The plan of a training run: device memory by part and dispatched bytes, from a policy's row and a model's sizes.

Memory is counted for the pipeline stage that needs most. With one forward, one backward (1F1B) stage `i` of `p` holds
`p - i` micro-batches, so the first stage keeps the activations of all layers of one micro-batch, whatever `p` is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from refnum.errors import ArgumentError

from .models import Model
from .policies import FORMATS, Policy, row_bytes, saved_bytes

RECOMPUTE = ("mla-up", "attention", "norm", "mlp", "experts", "layer")
"""What the backward pass can make again: queries, keys and values from their latents; attention from its normalised
input; norms; dense feed-forward layers; experts from the rows they received; a whole layer from its input."""
STATES = {"adamw": 12, "adamw-bf16": 8}
"""Optimiser -> bytes a weight: a float32 master and two moments, in float32 or BF16."""
GRADIENTS = {"float32": 4, "bfloat16": 2}
RUNTIME = 2 << 30
"""Bytes for the CUDA context, communication buffers and the libraries' workspaces: an estimate, no count."""
PARTS = ("weights", "gradients", "optimiser", "saved activations", "buffers", "runtime")


@dataclass(frozen=True)
class Setting:
    """How a model is trained.

    Attributes:
        gpus, pipeline, experts: devices; into how many parts layers, and experts, are split.
        tensor: into how many parts all other matrices and each sequence are split.
        sequences: of one micro-batch.
        recompute: names of `RECOMPUTE`.
        optimiser, gradients: rows of `STATES` and `GRADIENTS`.

    Raises:
        ArgumentError: a name is unknown, or the degrees do not divide the devices.
    """

    gpus: int
    pipeline: int = 1
    experts: int = 1
    sequences: int = 1
    recompute: tuple[str, ...] = ()
    tensor: int = 1
    optimiser: str = "adamw-bf16"
    gradients: str = "bfloat16"

    def __post_init__(self) -> None:
        known = {"recompute": (self.recompute, RECOMPUTE), "optimiser": ((self.optimiser,), tuple(STATES)),
                 "gradients": ((self.gradients,), tuple(GRADIENTS))}  # fmt: skip
        for field, (given, allowed) in known.items():
            if wrong := [name for name in given if name not in allowed]:
                raise ArgumentError(f"{field} {wrong[0]!r} is not known; choose from {', '.join(allowed)}")
        if min(self.gpus, self.pipeline, self.experts, self.sequences, self.tensor) < 1:
            raise ArgumentError("gpus, pipeline, experts, tensor and sequences are 1 or more")
        for name, degree in (("expert", self.experts), ("tensor", self.tensor)):
            if self.gpus % (self.pipeline * degree):
                raise ArgumentError(
                    f"{self.gpus} GPUs are no multiple of {self.pipeline} pipeline stages x {degree} {name} ranks; "
                    f"give degrees whose product divides {self.gpus}"
                )


@dataclass(frozen=True)
class Edge:
    """A saved tensor of one layer: bytes a token, and the kinds of recomputation that spare it."""

    name: str
    bytes: int
    spared: frozenset[str]


@dataclass(frozen=True)
class Plan:
    """What one device holds, in bytes.

    Attributes:
        stage: the pipeline stage that needs most.
        parts: `PARTS` -> bytes.
        edges: saved tensor -> bytes, all layers and micro-batches of the stage; their sum is `saved activations`.
        dispatched: bytes of one token's row, and of all rows that one device sends in one layer and micro-batch, a
            token once to each rank that has experts of it.
        routed: bytes kept for one routed token without recomputation.
    """

    stage: int
    parts: dict[str, int]
    edges: dict[str, int]
    dispatched: tuple[int, int]
    routed: int

    @property
    def total(self) -> int:
        """Return the bytes of all parts."""
        return sum(self.parts.values())


def plan(model: Model, policy: Policy, setting: Setting) -> Plan:
    """Count the memory of one device.

    Args:
        model: sizes.
        policy: the format of each edge.
        setting: devices and what is recomputed.

    Returns:
        The plan of the pipeline stage that needs most.

    Raises:
        ArgumentError: the model has fewer layers than stages, or its experts are no multiple of the expert ranks.
    """
    if setting.pipeline > model.layers:
        raise ArgumentError(
            f"{setting.pipeline} pipeline stages for {model.layers} layers; give at most {model.layers}"
        )
    if model.experts % setting.experts:
        raise ArgumentError(
            f"{model.experts} experts are no multiple of {setting.experts} expert ranks; give a divisor of "
            f"{model.experts}"
        )
    return max((_stage(model, policy, setting, stage) for stage in range(setting.pipeline)), key=lambda one: one.total)


def layers_of(model: Model, setting: Setting, stage: int) -> range:
    """Return the layers of a pipeline stage; the first stages have one more where they do not divide."""
    least, more = divmod(model.layers, setting.pipeline)
    first = stage * least + min(stage, more)
    return range(first, first + least + (stage < more))


def edges(model: Model, policy: Policy, layer: int, ranks: int) -> Iterator[Edge]:
    """Yield what the backward pass of a layer needs, and what it may make again; `ranks` share the experts.

    Inputs of linear layers outside of experts are kept in the format of the policy's `saved_input`.
    """
    attention, linear, hidden = model.attention, policy.saved_input, model.hidden
    output = attention.output()
    yield Edge("layer input", 2 * hidden, frozenset())
    yield _edge("norm before attention", _narrow(linear, hidden), "norm attention")
    yield _edge("latents", 2 * attention.latents(), "attention")
    yield _edge("queries, keys, values", 2 * attention.operands(), "attention mla-up" if attention.latents() else
                "attention")  # fmt: skip
    yield _edge("attention output", 2 * output + 4 * attention.heads, "attention")
    yield _edge("projection input", 0 if linear == "bfloat16" else _narrow(linear, output), "attention")
    yield _edge("hidden after attention", 2 * hidden, "")
    yield _edge("norm before experts", 2 * hidden, "norm")
    if layer < model.dense:
        yield _edge("dense gate and up", 2 * 2 * model.wide, "mlp")
        yield _edge("dense activation", _narrow(linear, model.wide), "mlp")
        return
    if model.shared:
        wide = model.shared * model.expert
        yield _edge("shared gate and up", 2 * 2 * wide, "experts")
        yield _edge("shared activation", _narrow(linear, wide), "experts")
    saved = saved_bytes(policy, model.hidden, model.expert)
    yield _edge("received rows", math.ceil(model.copies(ranks) * saved["input"]), "")
    yield _edge("experts' gate and up", model.top * saved["activation"], "experts")
    yield _edge("experts' FC2 input", model.top * saved["fc2_input"], "experts")
    yield _edge("routing", 2 * 4 * model.top, "")


def _edge(name: str, size: int, spared: str) -> Edge:
    return Edge(name, size, frozenset({*spared.split(), "layer"}))


def _narrow(form: str, columns: int) -> int:
    """Return the bytes of a row whose last block may be short."""
    return -int(-columns * FORMATS[form])


def _stage(model: Model, policy: Policy, setting: Setting, stage: int) -> Plan:
    layers = layers_of(model, setting, stage)
    expert = sum(layer >= model.dense for layer in layers) * model.expert_weights() // setting.experts
    ends = (stage == 0) + (stage == setting.pipeline - 1)
    other = (sum(map(model.other_weights, layers)) + ends * model.vocabulary * model.hidden) // setting.tensor
    saved = _saved(model, policy, setting, stage)
    copies = setting.gpus // setting.pipeline
    parts = {
        "weights": 2 * (expert + other),
        "gradients": GRADIENTS[setting.gradients] * (expert + other),
        "optimiser": STATES[setting.optimiser]
        * (expert * setting.experts // copies + other * setting.tensor // copies),
        "saved activations": sum(saved.values()),
        "buffers": _buffers(model, policy, setting, stage),
        "runtime": RUNTIME,
    }
    row = row_bytes(policy.dispatched, model.hidden)
    tokens = _tokens(model, setting)
    routed = sum(saved_bytes(policy, model.hidden, model.expert).values())
    sent = math.ceil(row * tokens * model.copies(setting.experts))
    return Plan(stage, parts, saved, (row, sent), routed)


def _tokens(model: Model, setting: Setting) -> int:
    """Return the tokens of a micro-batch that are on one device."""
    return setting.sequences * model.sequence // setting.tensor


def _saved(model: Model, policy: Policy, setting: Setting, stage: int) -> dict[str, int]:
    """Return the saved bytes of a stage by edge."""
    tokens = _tokens(model, setting) * (setting.pipeline - stage)
    found: dict[str, int] = {}
    for layer in layers_of(model, setting, stage):
        for edge in edges(model, policy, layer, setting.experts):
            kept = 0 if edge.spared & set(setting.recompute) else tokens * edge.bytes
            found[edge.name] = found.get(edge.name, 0) + kept
    return {name: size for name, size in found.items() if size}


def _buffers(model: Model, policy: Policy, setting: Setting, stage: int) -> int:
    """Return the largest of: one layer's tensors in flight with what is made again, and the logits of the last stage.

    In flight are the rows sent and received, and as many of BF16 that return; the rows of experts with FC1's operand,
    gate and up and their gradients; and the FP8 codes of the layer's experts, row-wise and column-wise.
    """
    tokens = _tokens(model, setting)
    rows = tokens * model.top
    layer = layers_of(model, setting, stage)[-1]
    again = sum(
        edge.bytes for edge in edges(model, policy, layer, setting.experts) if edge.spared & set(setting.recompute)
    )
    wire = 2 * (row_bytes(policy.dispatched, model.hidden) + 2 * model.hidden)
    exchange = math.ceil(tokens * model.copies(setting.experts)) * wire
    inside = rows * (row_bytes(policy.operands, model.hidden) + 2 * 2 * (2 * model.expert))
    codes = 2 * model.expert_weights() // setting.experts if policy.operands == "fp8" else 0
    logits = tokens * model.vocabulary * (2 + 4) if stage == setting.pipeline - 1 else 0
    return max(tokens * again + exchange + inside + codes, logits)


@dataclass(frozen=True)
class Published:
    """A row of the paper's table for 671 B parameters on 256 GPUs (recipe, section 6): percent of 80 GB."""

    policy: str
    recompute: tuple[str, ...]
    percent: float


_EXPERTS, _MLP = ("attention", "norm", "experts"), ("attention", "norm", "mlp")
PUBLISHED = (
    Published("bf16", _EXPERTS, 68.29),
    Published("fp8", _EXPERTS, 74.20),
    Published("mxfp4", _EXPERTS, 59.40),
    Published("mxfp4", _MLP, 60.62),
    Published("mxfp4", ("mla-up",), 70.11),
)


def published(name: str, policy: Policy, setting: Setting) -> float | None:
    """Return the paper's percentage of 80 GB for a run, or None where its table has none."""
    if name != "deepseek-v3" or setting.gpus != 256:
        return None
    wanted = policy.name.partition("+")[0], set(setting.recompute)
    return next((row.percent for row in PUBLISHED if (row.policy, set(row.recompute)) == wanted), None)
