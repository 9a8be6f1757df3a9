"""Shapes, inputs and observers of `moe_layer.py`, and what its ranks decide together."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from refnum.gpu import torch as launchers
from refnum.training import compare, golden
from refnum.training.layer import MoELayer, first_weights

START = time.perf_counter()
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
LOCAL = int(os.environ.get("LOCAL_RANK", 0))
SEED = 17
SECONDS = 60
"""How long ranks wait for each other."""
ORDERS = ("promote128", "split2", "split3", "split4", "split5", "split6", "split7", "split8")
_control: list[Any] = []


@dataclass(frozen=True)
class Shape:
    """Sizes of a layer, tokens of a rank, and how a step's routing is drawn.

    skew: how unevenly; barred: experts without a token; idle: ranks without a token.
    """

    hidden: int
    ffn: int
    experts: int
    top: int
    tokens: int
    skew: float = 0.0
    barred: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.tokens}x{self.hidden}x{self.ffn} top {self.top} of {self.experts}"


# ------------------------------------------------------------------------------------------------------------ ranks


def start(device: str) -> None:
    """Join the other ranks: NCCL on GPUs for tensors, and gloo for what the ranks decide together."""
    if RANKS == 1:
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    wait = datetime.timedelta(seconds=SECONDS)
    if device == "cpu":
        dist.init_process_group("gloo", timeout=wait)
    else:
        dist.init_process_group("nccl", timeout=wait, device_id=torch.device(device))
    _control.append(dist.new_group(backend="gloo", timeout=wait))


def any_rank(yes: bool) -> bool:
    """Return whether something is so on any rank; all ranks call it, and wait for each other."""
    return bool(most_of_ranks(int(yes)))


def most_of_ranks(number: int) -> int:
    """Return the largest of all ranks' numbers, likewise."""
    told = torch.tensor([number])
    if RANKS > 1:
        dist.all_reduce(told, dist.ReduceOp.MAX, group=_control[0])
    return int(told)


def late(limit: float) -> bool:
    """Return on all ranks whether one of them has run for longer than a limit."""
    return any_rank(time.perf_counter() - START > limit)


def line(text: str, every: bool = False) -> None:
    """Print a line of rank 0, or of every rank, with the seconds since the start."""
    if RANK == 0 or every:
        print(f"[{time.perf_counter() - START:6.1f} rank {RANK}] {text}", flush=True)


@contextlib.contextmanager
def section(document: dict[str, Any], name: str) -> Iterator[None]:
    """Keep an error of a section in the document and print it; the ranks then go on together."""
    failed = False
    try:
        yield
    except Exception as error:  # whatever it is, the rest of the rented time is used
        failed = True
        trace = traceback.format_exc()
        document[name] = {"error": f"{type(error).__name__}: {error}"[:500], "trace": trace[-3000:]}
        line(f"{name} FAILED\n{trace}", every=True)
    if any_rank(failed) and not failed:
        line(f"{name}: failed on another rank", every=True)


def write(folder: Path, document: dict[str, Any]) -> None:
    """Write what there is; every rank its own file, since each compared its own tensors."""
    path = folder / f"moe_layer_{RANKS}_{RANK}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(document, indent=1, default=str), encoding="utf-8")
    temporary.rename(path)


def read(folder: Path) -> dict[str, Any]:
    """Return what an earlier call wrote into a folder, nothing where there was none."""
    path = folder / f"moe_layer_{RANKS}_{RANK}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


# ------------------------------------------------------------------------------------------------------------ steps


@functools.lru_cache(maxsize=2)
def inputs(shape: Shape, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (x, experts, probs, gradient) of a rank, on the host, the same in every process."""
    generator = torch.Generator().manual_seed(1000 + rank)
    rows = 0 if rank in shape.idle else shape.tokens
    x, grad = (torch.randn(rows, shape.hidden, generator=generator).to(torch.bfloat16) for _ in range(2))
    x *= torch.exp2(torch.randint(-4, 5, (rows, 1), generator=generator)).to(torch.bfloat16)
    scores = torch.randn(rows, shape.experts, generator=generator)
    scores += shape.skew * torch.linspace(-1, 1, shape.experts)
    scores[:, list(shape.barred)] = -1e9
    chosen, experts = scores.topk(shape.top, dim=1)
    return x, experts, torch.softmax(chosen, dim=1), grad


def make(shape: Shape, policy: str, device: str, products: str, witness: Any = None) -> MoELayer:
    """Return a layer with the weights of SEED."""
    return MoELayer(shape.hidden, shape.ffn, shape.experts, shape.top, policy, device=device, seed=SEED,
                    products=products, witness=witness, seconds=SECONDS)  # fmt: skip


def step(layer: MoELayer, given: tuple[torch.Tensor, ...], device: str) -> dict[str, Any]:
    """Run one step and return the layer's record."""
    x, experts, probs, grad = (one.to(device).detach() for one in given)
    layer.record = {}
    layer.w1.grad = layer.w2.grad = None
    x, probs = x.requires_grad_(), probs.requires_grad_()
    layer(x, (experts, probs)).backward(grad)
    record, layer.record = layer.record, None
    gradients = {"grad.dx": x.grad, "grad.dw1": layer.w1.grad, "grad.dw2": layer.w2.grad, "grad.dprobs": probs.grad}
    return record | gradients


def library(device: str) -> Any:
    """Return CuPy for a GPU, NumPy for a host."""
    if device == "cpu":
        return np
    import cupy

    return cupy


def model(shape: Shape, policy: str, device: str) -> tuple[golden.Forward, golden.Backward]:
    """Return this rank's part of the golden step of all ranks."""
    xp = library(device)
    given = [[xp.asarray(compare.to_array(one)) for one in inputs(shape, rank)] for rank in range(RANKS)]
    x, experts, probs, grads = ([one[at] for one in given] for at in range(4))
    _, w1, w2 = first_weights(SEED, shape.hidden, shape.ffn, shape.experts, range(shape.experts), device)
    weights = [xp.asarray(compare.to_array(w)) for w in (w1, w2)]
    forward = golden.forward(x, experts, probs, *weights, policy)
    return forward[RANK], golden.backward(forward, grads, experts, policy)[RANK]


def free(device: str) -> None:
    """Give cached memory of CuPy and torch back."""
    if device != "cpu":
        library(device).get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()


# -------------------------------------------------------------------------------------------------------- observers


class Looking:
    """An observer that looks at nothing."""

    def enter(self, layer: Any, backward: bool) -> None:
        """Nothing to note."""

    def wants(self, calls: int) -> bool:
        """Every call is shown."""
        return True

    def conversion(self, name: str, arguments: Any, named: Any, results: Any) -> None:
        """Nothing to look at."""

    def product(self, name: str, operands: Any, result: Any) -> None:
        """Nothing to look at."""

    def follows(self) -> bool:
        """Intermediates are not wanted."""
        return False

    def forward(self, layer: Any, inputs: Any, found: Any) -> None:
        """Nothing to keep."""

    def backward(self, layer: Any, kept: Any, found: Any) -> None:
        """Nothing to compare."""


class Orders(Looking):
    """An observer that finds in which order of N19.4 a library computed each product."""

    def __init__(self) -> None:
        self.found: dict[str, Counter[str]] = {}

    def product(self, name: str, operands: Any, result: Any) -> None:
        """Find the first order that gives every bit of a product."""
        a, b = operands()
        key = f"{name.partition('[')[0]} {len(a[0])}x{len(b[0])}x{a[0].shape[1]}"
        self.found.setdefault(key, Counter())[self._order(a, b, result)] += 1

    def _order(self, a: Any, b: Any, result: Any) -> str:
        codes, scales = [x[0].contiguous() for x in (a, b)], [x[1].contiguous() for x in (a, b)]
        for order in ORDERS[: -(-a[0].shape[1] // 128)]:
            want = launchers.matmul_fp8(*codes, *scales, order, torch.bfloat16)
            if torch.equal(want.view(torch.int16), result.contiguous().view(torch.int16)):
                return order
        return "no named order"


class Traffic(Looking):
    """An observer that writes down every conversion: its name, and dtypes and bytes of what it reads and writes."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def enter(self, layer: Any, backward: bool) -> None:
        """Mark the direction."""
        self.calls.append("backward" if backward else "forward")

    def conversion(self, name: str, arguments: Any, named: Any, results: Any) -> None:
        """Write down one conversion."""
        outputs = results if isinstance(results, tuple) else (results,)
        self.calls.append(f"{name}: {_traffic(arguments)} -> {_traffic(outputs)}")

    def product(self, name: str, operands: Any, result: Any) -> None:
        """Write down the first expert's product of each kind."""
        if f"{name.partition('[')[0]}[0]" == name:
            a, b = operands()
            self.calls.append(f"{name}: {_traffic((*a, *b))} -> {_traffic((result,))}")


def _traffic(values: Any) -> str:
    tensors = [one for one in values if isinstance(one, torch.Tensor)]
    return " ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}={t.numel() * t.element_size()}B"
                    for t in tensors)  # fmt: skip
