"""The mixture-of-experts layer in torch: experts on several ranks, products in FP8, dispatch and memory in FP4 (N20).

What the golden layer does not compute, and no comparison covers, is the router: its product, softmax and choice of
experts, and its gradient, are torch's float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist

from refnum.arrays import TILE
from refnum.errors import ArgumentError, DtypeError, ShapeError

from .dispatch import SECONDS, Ranks, Route, make_route, viewed
from .edges import Edges
from .policies import Policy, get_policy
from .products import BF16, Observer, Parts, Tensor
from .recipes import Draw
from .simulated import Simulated


class Witness(Observer, Protocol):
    """An observer that can also look at a whole step of a layer."""

    def enter(self, layer: MoELayer, backward: bool) -> None:
        """Take note of the layer whose conversions and products follow."""

    def follows(self) -> bool:
        """Return whether `forward` wants the intermediates of this step."""

    def forward(self, layer: MoELayer, inputs: Mapping[str, Any], found: Mapping[str, Any]) -> Any:
        """Look at a forward step; what it returns is given to `backward` of the same step."""

    def backward(self, layer: MoELayer, kept: Any, found: Mapping[str, Any]) -> None:
        """Look at a backward step; `found` has the gradient, the route and the saved tensors besides."""


class MoELayer(torch.nn.Module):
    """Tokens to the `top` experts that a router chooses, each a SwiGLU, and back.

    The parameters of experts are those of this rank, bfloat16: `w1` [local experts, 2 * ffn, hidden], gate rows and
    then up rows, and `w2` [local experts, hidden, ffn]. `router` is float32 [experts, hidden].

    Args:
        hidden: width of a token, a multiple of 128.
        ffn: width of an expert, a multiple of 128.
        experts: of all ranks, a multiple of their number.
        top: experts of a token.
        policy: a policy or its name.
        group: the process group, None for the default one; without `torch.distributed` in use there is one rank.
        witness: what samples the layer's work and computes it again.
        device: of the parameters.
        seed: of the weights, which do not depend on the number of ranks; None draws one from torch's generator.
        products: `library` or `model`, see `Edges`.
        seconds: how long an exchange waits for other ranks.
        name: what a report calls the layer.

    Raises:
        ArgumentError, ShapeError: numbers that do not fit together.
    """

    def __init__(
        self,
        hidden: int,
        ffn: int,
        experts: int,
        top: int,
        policy: Policy | str,
        group: dist.ProcessGroup | None = None,
        witness: Witness | None = None,
        device: torch.device | str | None = None,
        *,
        seed: int | None = None,
        products: str = "library",
        seconds: float = SECONDS,
        name: str = "layer",
    ) -> None:
        super().__init__()
        self.ranks = Ranks(group, seconds)
        _require_sizes(hidden, ffn, experts, top, self.ranks.count)
        self.hidden, self.ffn, self.experts, self.top, self.name = hidden, ffn, experts, top, name
        self.policy, self.witness = get_policy(policy), witness
        self.edges = Edges(self.policy, witness, products)
        if self.policy.recipe is not None:
            self.edges = Simulated(self.policy, lambda: Draw(self.seed, self.step, self.first), witness, products)
        self.local = experts // self.ranks.count
        self.record: dict[str, Any] | None = None
        """A dictionary given here is filled with the intermediates of each step, under the golden layer's names."""
        self.active: Route | None = None
        """The route of the step at work."""
        self.seed = int(torch.randint(1 << 62, ())) if seed is None else seed
        self.step = 0
        """The step of the training, for random words; who trains calls `at_step`."""
        mine = range(self.first, self.first + self.local)
        weights = first_weights(self.seed, hidden, ffn, experts, mine, device)
        self.router, self.w1, self.w2 = map(torch.nn.Parameter, weights)

    @property
    def first(self) -> int:
        """The number of this rank's first expert."""
        return self.ranks.rank * self.local

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the experts int64 [T, top] of each token and their weights float32 [T, top], which sum to 1.

        Experts are chosen by their probability, those of equal probability by their number.
        """
        probs = torch.softmax(torch.nn.functional.linear(x.float(), self.router), dim=1)
        chosen, experts = torch.sort(probs, dim=1, descending=True, stable=True)
        chosen, experts = chosen[:, : self.top], experts[:, : self.top].contiguous()
        return experts, chosen / chosen.sum(dim=1, keepdim=True)

    def forward(self, x: Tensor, routing: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return the layer's output for tokens.

        Args:
            x: bfloat16 [tokens, hidden], no tokens too.
            routing: what `route` gives, from elsewhere.

        Returns:
            bfloat16 [tokens, hidden].

        Raises:
            ShapeError, DtypeError, ArgumentError: an argument that does not fit.
            RankError: another rank did not answer.
        """
        if x.dim() != 2 or x.shape[1] != self.hidden:
            raise ShapeError(f"x has shape {tuple(x.shape)}; allowed is [tokens, {self.hidden}]")
        if x.dtype != BF16:
            raise DtypeError(f"x has dtype {x.dtype}; allowed is torch.bfloat16")
        experts, probs = self.route(x) if routing is None else routing
        _require_routing(experts, probs, (x.shape[0], self.top))
        if routing is not None:
            _require_experts(experts, self.experts)
        out: Tensor = _Step.apply(x.contiguous(), probs, self.w1, self.w2, experts, self)  # kernels read whole rows
        return out

    def at_step(self, step: int) -> None:
        """Begin a step of the training: its random words, and what the policy keeps of weights from step to step."""
        self.step = step
        if isinstance(self.edges, Simulated):
            self.edges.begin(step, {"fc1": self.w1.detach(), "fc2": self.w2.detach()})

    def watch(self, witness: Witness | None) -> None:
        """Let a witness look at the steps that follow, or none."""
        self.witness = self.edges.observer = witness

    def looked_at(self, seen: Any = None) -> bool:
        """Return whether a step's intermediates are wanted: by `record`, or by the witness, `seen` in this step."""
        return self.record is not None or seen is not None or (self.witness is not None and self.witness.follows())

    def note(self, found: Mapping[str, Any], backward: bool) -> None:
        """Fill `record`, where there is one."""
        if self.record is not None:
            self.record |= {f"{'backward' if backward else 'forward'}.{name}": value for name, value in found.items()}


class _Step(torch.autograd.Function):
    """One forward and one backward step of a layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, probs: Tensor, w1: Tensor, w2: Tensor, experts: Tensor, layer: MoELayer) -> Tensor:
        if layer.witness is not None:
            layer.witness.enter(layer, False)
        route, where, prob = make_route(layer.ranks, experts, probs, layer.local)
        layer.active = route
        note = _Notes(layer.looked_at())
        out, weights, kept = _forward(layer, note, x, w1, w2, route, prob)
        note(prob=prob, row_map=route.row_map, tokens=route.tokens, splits=route.splits)
        layer.note(note, False)
        ctx.layer, ctx.route, ctx.sizes, ctx.seen = layer, route, [len(part) for part in kept], None
        if layer.witness is not None:
            inputs = {"x": x, "where": where, "prob": prob, "route": route}
            ctx.seen = layer.witness.forward(layer, inputs, note)
        ctx.save_for_backward(prob, *weights[0], *weights[1], *(one for part in kept for one in part))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        layer, route = ctx.layer, ctx.route
        layer.active = route
        if layer.witness is not None:
            layer.witness.enter(layer, True)
        prob, *rest = ctx.saved_tensors
        parts = 2 if layer.edges.fp8 else 1
        weights = tuple(rest[:parts]), tuple(rest[parts : 2 * parts])
        kept, start = [], 2 * parts
        for size in ctx.sizes:
            kept.append(tuple(rest[start : start + size]))
            start += size
        note = _Notes(layer.looked_at(ctx.seen))
        dx, dprobs, dw1, dw2 = _backward(layer, note, grad.contiguous(), weights, kept, route, prob)
        layer.note(note, True)
        if layer.witness is not None:
            layer.witness.backward(layer, ctx.seen, note | {"kept": kept, "grad": grad, "route": route})
        return dx, dprobs, dw1, dw2, None, None


class _Notes(dict[str, Any]):
    """Intermediates by name, kept only where somebody looks at them: else each is freed after its last use."""

    def __init__(self, wanted: bool) -> None:
        super().__init__()
        self.wanted = wanted

    def __call__(self, **found: Any) -> None:
        if self.wanted:
            self.update(found)


def _forward(
    layer: MoELayer, note: _Notes, x: Tensor, w1: Tensor, w2: Tensor, route: Route, prob: Tensor
) -> tuple[Tensor, tuple[Parts, Parts], tuple[Parts, Parts, Parts]]:
    """Return the output, the weights as the products take them, and what the backward pass reads."""
    edges, policy, ranks = layer.edges, layer.policy, layer.ranks
    weights = edges.weight(w1), edges.weight(w2)
    payload = edges.wire(x, policy.dispatched)
    received = _dispatched(ranks, payload, route)
    note(payload=payload, received=received, fc1_weight=weights[0], fc2_weight=weights[1])
    del payload
    saved_input = edges.rewire(received, policy.dispatched, policy.saved_input, layer.hidden)
    first = edges.rows_operand(edges.gathered(received, route, policy.dispatched, layer.hidden), policy.dispatched)
    del received
    fc1 = edges.product("fc1", first, weights[0], route)
    note(saved_input=saved_input, fc1_input=first, fc1=fc1)
    del first
    second = edges.activation(fc1, prob)
    kept = (saved_input,), edges.kept_activation(fc1), edges.kept(fc1, prob, second)
    del fc1
    fc2 = edges.product("fc2", second, weights[1], route)
    note(fc2_input=second, fc2=fc2, saved_activation=kept[1], saved_fc2_input=kept[2])
    del second
    returned = edges.summed(fc2, route.row_map, route.splits, route.received, TILE)
    del fc2
    out = _combined(edges, ranks, returned, route, x.shape[0])
    note(returned=returned, out=out)
    return out, weights, kept


def _backward(
    layer: MoELayer,
    note: _Notes,
    grad: Tensor,
    weights: tuple[Parts, Parts],
    kept: list[Parts],
    route: Route,
    prob: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of tokens, of the routing's weights, and of both weights of the experts.

    A matrix is freed after its last use, and each weight gradient is computed as soon as its operands are there.
    """
    edges, policy, ranks = layer.edges, layer.policy, layer.ranks
    received = _dispatched(ranks, grad, route)
    note(received=received)
    rows = edges.gathered(viewed(received, torch.uint8), route, "bfloat16", layer.hidden)
    del received
    outer, columns = edges.gradient(rows, route.rows)
    del rows
    note(fc2_grad=outer, fc2_grad_columns=columns)
    dact = edges.product("fc2.dgrad", outer, edges.turned(weights[1]), route)
    del outer
    fc1 = _gate_and_up(layer, kept, weights[0], route)
    inputs = edges.second_columns(kept[2], fc1, prob, route.rows)
    dw2 = edges.estimated(edges.weight_gradient("fc2.wgrad", columns, inputs, route), weights[1])
    note(dact=dact, fc2_input_columns=inputs, dw2=dw2)
    del columns, inputs
    halves = edges.call("swiglu_backward", dact, *fc1.chunk(2, dim=1), prob)
    del dact, fc1
    dprob = halves[2]
    inner, columns = edges.gradient(halves[:2], route.rows)
    del halves
    note(dprob=dprob, fc1_grad=inner, fc1_grad_columns=columns)
    dx_rows = edges.product("fc1.dgrad", inner, edges.turned(weights[0]), route)
    del inner
    returned = edges.summed(dx_rows, route.row_map, route.splits, route.received, TILE)
    note(dx_rows=dx_rows, returned=returned)
    del dx_rows
    saved = edges.gathered(kept[0][0], route, policy.saved_input, layer.hidden)
    inputs = edges.columns_operand(saved, policy.saved_input, route.rows)
    del saved
    dw1 = edges.estimated(edges.weight_gradient("fc1.wgrad", columns, inputs, route), weights[0])
    note(fc1_input_columns=inputs, dw1=dw1)
    del columns, inputs
    dx, dprobs = _combined(edges, ranks, returned, route, grad.shape[0]), _probabilities(ranks, route, dprob)
    note(dx=dx, dprobs=dprobs)
    return dx, dprobs, dw1, dw2


def _gate_and_up(layer: MoELayer, kept: list[Parts], weight: Parts, route: Route) -> Tensor:
    """Return gate and up of the backward pass: decoded, or the first product of the saved rows once more."""
    edges, policy = layer.edges, layer.policy
    if policy.saved_activation != "recompute":
        return edges.decode(kept[1], policy.saved_activation)
    saved = edges.gathered(kept[0][0], route, policy.saved_input, layer.hidden)
    return edges.product("fc1.again", edges.rows_operand(saved, policy.saved_input), weight, route)


def _dispatched(ranks: Ranks, rows: Tensor, route: Route) -> Tensor:
    """Return the rows that this rank's experts need; one rank has them."""
    if ranks.count == 1:
        return rows
    return ranks.rows(rows.index_select(0, route.tokens), route.send, route.receive)


def _combined(edges: Edges, ranks: Ranks, rows: Tensor, route: Route, tokens: int) -> Tensor:
    """Return each token's sum over ranks; of one rank there is nothing to add."""
    if ranks.count == 1:
        return rows
    return edges.summed(ranks.rows(rows, route.receive, route.send), route.tokens, route.send, tokens, 1)


def _probabilities(ranks: Ranks, route: Route, dprob: Tensor) -> Tensor:
    """Return float32 [tokens, top]: each weight's gradient, from the rank that has the expert."""
    lists = torch.zeros((route.received, route.top), dtype=torch.float32, device=dprob.device)
    place = route.row_map * route.top + route.slots
    lists.view(-1).index_copy_(0, place, dprob.index_select(0, route.places))
    return ranks.rows(lists, route.receive, route.send).gather(0, route.home)


def first_weights(
    seed: int, hidden: int, ffn: int, experts: int, mine: range, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return first values of the router and of some experts, each drawn with its own number as part of the seed.

    A kind of device has numbers of its own.
    """
    place = device or "cpu"

    def draw(number: int, rows: int, columns: int) -> Tensor:
        generator = torch.Generator(place).manual_seed((seed + number * 0x9E3779B97F4A7C15) % (1 << 63))
        return torch.randn((rows, columns), generator=generator, device=place) * columns**-0.5

    w1 = [draw(1 + 2 * expert, 2 * ffn, hidden).to(BF16) for expert in mine]
    w2 = [draw(2 + 2 * expert, hidden, ffn).to(BF16) for expert in mine]
    return draw(0, experts, hidden), torch.stack(w1), torch.stack(w2)


def _require_sizes(hidden: int, ffn: int, experts: int, top: int, ranks: int) -> None:
    for name, size in (("hidden", hidden), ("ffn", ffn)):
        if size <= 0 or size % TILE:
            raise ShapeError(f"{name}={size}; allowed is a positive multiple of {TILE}, the width of an FP8 tile")
    if experts <= 0 or experts % ranks:
        raise ArgumentError(f"{experts} experts on {ranks} ranks; allowed are ranks that divide the experts")
    if not 1 <= top <= experts:
        raise ArgumentError(f"top={top}; allowed are 1 to {experts}, the number of experts")


def _require_routing(experts: Tensor, probs: Tensor, shape: tuple[int, int]) -> None:
    if tuple(experts.shape) != shape or tuple(probs.shape) != shape:
        raise ShapeError(
            f"a routing has experts {tuple(experts.shape)} and weights {tuple(probs.shape)}; allowed is {shape}"
        )
    if experts.dtype != torch.int64 or probs.dtype != torch.float32:
        raise DtypeError(f"a routing has {experts.dtype} and {probs.dtype}; allowed are int64 and float32")


def _require_experts(experts: Tensor, count: int) -> None:
    if not experts.numel():
        return
    ordered = experts.sort(dim=1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]).any().to(torch.int64)
    least, most, repeated = torch.stack([ordered.min(), ordered.max(), twice]).tolist()
    if least < 0 or most >= count:
        raise ArgumentError(f"a routing names expert {least} to {most}; there are {count}")
    if repeated:
        raise ArgumentError("a routing names an expert twice for a token; allowed is each once")
