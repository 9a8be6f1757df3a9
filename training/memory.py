"""The device memory of one step of the layer, counted to the byte: the step itself runs on tensors without data.

Nothing is allocated and no device is needed. What torch's and the kernels' own workspaces take is not counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from refnum.arrays import TILE

from . import layer as layers
from .dispatch import Ranks, Route
from .edges import Edges
from .policies import Policy, get_policy

BLOCK = 512
"""Bytes of which torch's allocator gives whole multiples."""


@dataclass(frozen=True)
class StepMemory:
    """Bytes of one step on one rank, above its weights, its tokens and their gradient.

    Attributes:
        saved: what the policy keeps for the backward pass: the received rows, gate and up, FC2's input.
        kept: all that is there between forward and backward: `saved`, the weights in FP8, the route, and the output.
        forward, backward: the most that is there at once, `kept` included.
        gradients: those of the tokens, of the routing's weights, and of both weights.
    """

    saved: int
    kept: int
    forward: int
    backward: int
    gradients: int


@dataclass(frozen=True)
class Load:
    """What one rank has to do in a step: its tokens, the rows it sends to and gets from each rank, those of experts."""

    tokens: int
    send: tuple[int, ...]
    receive: tuple[int, ...]
    splits: tuple[int, ...]
    top: int


class _Ranks(Ranks):
    """Ranks whose exchanges only make their results."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def rows(self, x: torch.Tensor, send: Sequence[int], receive: Sequence[int]) -> torch.Tensor:
        """Return as many rows as all ranks send here."""
        return x if self.count == 1 else x.new_empty((sum(receive), x.shape[1]))


class _Live(TorchDispatchMode):
    """Counts the bytes of all storages that are made in it, as long as they live, and nothing of those before."""

    def __init__(self, before: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.now = self.most = 0
        self._seen = {one.untyped_storage()._cdata: 0 for one in before}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._scaled_mm.out:  # torch has no such operation for tensors without data
            return (kwargs or {})["out"]
        out = func(*args, **(kwargs or {}))
        for one in tree_leaves(out):
            if isinstance(one, torch.Tensor):
                self._count(one.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._seen:
            self._seen[key] = -(-storage.nbytes() // BLOCK) * BLOCK
            self.now += self._seen[key]
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self.now -= self._seen.pop(key, 0)


def step_memory(policy: Policy | str, hidden: int, ffn: int, load: Load, device: str = "cuda") -> StepMemory:
    """Return what a step of the layer holds.

    Args:
        policy: the formats.
        hidden, ffn: columns of the layer, and within an expert.
        load: rows of one rank; its experts are as many as `splits`.
        device: `cuda` for our kernels and the library's products, whether or not there is one.
    """
    rules = get_policy(policy)
    with FakeTensorMode():
        weights = [torch.empty((len(load.splits), *shape), dtype=layers.BF16, device=device)
                   for shape in ((2 * ffn, hidden), (hidden, ffn))]  # fmt: skip
        x, grad = (torch.empty((load.tokens, hidden), dtype=layers.BF16, device=device) for _ in range(2))
        edges = Edges(rules)
        edges.all_k = True
        layer: Any = SimpleNamespace(edges=edges, policy=rules, ranks=_Ranks(len(load.send)), hidden=hidden)
        with _Live([x, grad, *weights]) as live:
            return _counted(live, layer, x, grad, weights, load)


def _counted(
    live: _Live, layer: Any, x: torch.Tensor, grad: torch.Tensor, weights: list[torch.Tensor], load: Load
) -> StepMemory:
    route, prob = _route(load, x.device)
    note = layers._Notes(False)
    out, operands, kept = layers._forward(layer, note, x, weights[0], weights[1], route, prob)
    saved = sum(one.nbytes for part in kept for one in part)
    forward, between = live.most, live.now
    live.most = live.now
    gradients = layers._backward(layer, note, grad, operands, list(kept), route, prob)
    del out  # it lives through the backward pass, as it does in a model
    return StepMemory(saved, between, forward, live.most, sum(one.nbytes for one in gradients))


def _route(load: Load, device: torch.device) -> tuple[Route, torch.Tensor]:
    """Return a route of the right sizes, and the weights of the rows that are filled up."""
    rows = [-(-count // TILE) * TILE for count in load.splits]
    routed = sum(load.splits)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.int64, device=device)

    route = Route(list(load.send), list(load.receive), numbers(sum(load.send)), numbers(load.tokens, load.top),
                  numbers(routed), numbers(routed), list(load.splits), numbers(routed), rows, load.top)  # fmt: skip
    return route, torch.empty(sum(rows), dtype=torch.float32, device=device)
