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


class Witness(Observer, Protocol):
    """An observer that can also look at a whole step of a layer."""

    def enter(self, layer: MoELayer, backward: bool) -> None:
        """Take note of the layer whose conversions and products follow."""

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
        self.local = experts // self.ranks.count
        self.record: dict[str, Any] | None = None
        """A dictionary given here is filled with the intermediates of each step, under the golden layer's names."""
        self.active: Route | None = None
        """The route of the step at work."""
        number = int(torch.randint(1 << 62, ())) if seed is None else seed
        mine = range(self.first, self.first + self.local)
        weights = first_weights(number, hidden, ffn, experts, mine, device)
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
        out: Tensor = _Step.apply(x, probs, self.w1, self.w2, experts, self)
        return out

    def watch(self, witness: Witness | None) -> None:
        """Let a witness look at the steps that follow, or none."""
        self.witness = self.edges.observer = witness

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
        found, weights, kept = _forward(layer, x, w1, w2, route, prob)
        layer.note(
            found | {"prob": prob, "row_map": route.row_map, "tokens": route.tokens, "splits": route.splits}, False
        )
        ctx.layer, ctx.route, ctx.sizes, ctx.shape = layer, route, [len(part) for part in kept], x.shape
        ctx.seen = None
        if layer.witness is not None:
            inputs = {"x": x, "where": where, "prob": prob, "route": route}
            ctx.seen = layer.witness.forward(layer, inputs, found)
        ctx.save_for_backward(prob, *weights[0], *weights[1], *(one for part in kept for one in part))
        return found["out"]

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
        found = _backward(layer, grad.contiguous(), weights, kept, route, prob)
        layer.note(found, True)
        if layer.witness is not None:
            layer.witness.backward(layer, ctx.seen, found | {"kept": kept, "grad": grad, "route": route})
        return found["dx"], found["dprobs"], found["dw1"], found["dw2"], None, None


def _forward(
    layer: MoELayer, x: Tensor, w1: Tensor, w2: Tensor, route: Route, prob: Tensor
) -> tuple[dict[str, Any], tuple[Parts, Parts], tuple[Parts, Parts, Parts]]:
    """Return the intermediates, the weights as the products take them, and what the backward pass reads."""
    edges, policy, ranks = layer.edges, layer.policy, layer.ranks
    weights = edges.weight(w1), edges.weight(w2)
    payload = edges.wire(x, policy.dispatched)
    received = _dispatched(ranks, payload, route)
    first = edges.rows_operand(edges.gathered(received, route, policy.dispatched, layer.hidden), policy.dispatched)
    fc1 = edges.product("fc1", first, weights[0], route)
    second = edges.activation(fc1, prob)
    fc2 = edges.product("fc2", second, weights[1], route)
    returned = edges.summed(fc2, route.row_map, route.splits, route.received, TILE)
    out = _combined(edges, ranks, returned, route, x.shape[0])
    kept = (
        (edges.rewire(received, policy.dispatched, policy.saved_input, layer.hidden),),
        edges.encode(fc1, policy.saved_activation),
        edges.kept(fc1, prob, second),
    )
    found = {
        "payload": payload, "received": received, "fc1_weight": weights[0], "fc2_weight": weights[1],
        "fc1_input": first, "fc1": fc1, "fc2_input": second, "fc2": fc2, "returned": returned, "out": out,
        "saved_input": kept[0][0], "saved_activation": kept[1], "saved_fc2_input": kept[2],
    }  # fmt: skip
    return found, weights, kept


def _backward(
    layer: MoELayer, grad: Tensor, weights: tuple[Parts, Parts], kept: list[Parts], route: Route, prob: Tensor
) -> dict[str, Any]:
    """Return the intermediates of the backward step, the gradients among them."""
    edges, policy, ranks = layer.edges, layer.policy, layer.ranks
    received = _dispatched(ranks, grad, route)
    rows = edges.gathered(viewed(received, torch.uint8), route, "bfloat16", layer.hidden)
    outer, outer_columns = edges.gradient(rows, route.rows)
    dact = edges.product("fc2.dgrad", outer, edges.turned(weights[1]), route)
    fc1 = edges.decode(kept[1], policy.saved_activation)
    second_columns = edges.second_columns(kept[2], fc1, prob, route.rows)
    gate, up = fc1.chunk(2, dim=1)
    dgate, dup, dprob = edges.call("swiglu_backward", dact, gate, up, prob)
    inner, inner_columns = edges.gradient((dgate, dup), route.rows)
    saved = edges.gathered(kept[0][0], route, policy.saved_input, layer.hidden)
    first_columns = edges.columns_operand(saved, policy.saved_input, route.rows)
    dx_rows = edges.product("fc1.dgrad", inner, edges.turned(weights[0]), route)
    returned = edges.summed(dx_rows, route.row_map, route.splits, route.received, TILE)
    return {
        "received": received, "fc2_grad": outer, "fc2_grad_columns": outer_columns,
        "fc2_input_columns": second_columns, "dact": dact, "dprob": dprob, "fc1_grad": inner,
        "fc1_grad_columns": inner_columns, "fc1_input_columns": first_columns,
        "dw1": edges.weight_gradient("fc1.wgrad", inner_columns, first_columns, route),
        "dw2": edges.weight_gradient("fc2.wgrad", outer_columns, second_columns, route),
        "dx_rows": dx_rows, "returned": returned, "dx": _combined(edges, ranks, returned, route, grad.shape[0]),
        "dprobs": _probabilities(ranks, route, dprob, grad.shape[0]),
    }  # fmt: skip


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


def _probabilities(ranks: Ranks, route: Route, dprob: Tensor, tokens: int) -> Tensor:
    """Return float32 [tokens, top]: each weight's gradient, from the rank that has the expert."""
    lists = torch.zeros((route.received, route.top), dtype=torch.float32, device=dprob.device)
    owned = torch.zeros((route.received, route.top), dtype=torch.float32, device=dprob.device)
    lists[route.row_map, route.slots] = dprob[route.places]
    owned[route.row_map, route.slots] = 1.0
    back = ranks.rows(torch.cat([lists, owned], dim=1), route.receive, route.send)
    values, mine = back[:, : route.top], back[:, route.top :].bool()
    row, slot = mine.nonzero(as_tuple=True)
    out = torch.zeros((tokens, route.top), dtype=torch.float32, device=dprob.device)
    out[route.tokens[row], slot] = values[row, slot]
    return out


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
    ordered = experts.sort(dim=1).values
    if experts.numel() and (int(ordered.min()) < 0 or int(ordered.max()) >= count):
        raise ArgumentError(f"a routing names expert {int(ordered.min())} to {int(ordered.max())}; there are {count}")
    if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
        raise ArgumentError("a routing names an expert twice for a token; allowed is each once")
