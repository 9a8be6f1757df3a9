"""Shapes, inputs and golden steps of `moe_layer.py`, and what its ranks decide together."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import pickle
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from refnum.training import compare, golden
from refnum.training.layer import MoELayer, first_weights

START = time.perf_counter()
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
LOCAL = int(os.environ.get("LOCAL_RANK", 0))
SEED = 17
SECONDS = 60
"""How long ranks wait for each other."""
TOGETHER = 150
"""How long they wait for each other's golden steps, which take unequal times."""
_control: list[Any] = []
_kept: list[Any] = []


@dataclass(frozen=True)
class Shape:
    """Sizes of a layer, tokens of a rank, and how a step's routing is drawn.

    skew: how unevenly; barred: experts without a token; idle: ranks without a token; single: experts that the first
    token of each rank alone has.
    """

    hidden: int
    ffn: int
    experts: int
    top: int
    tokens: int
    skew: float = 0.0
    barred: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    single: tuple[int, ...] = ()

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
    _control.append(dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=TOGETHER)))


def any_rank(yes: bool) -> bool:
    """Return whether something is so on any rank; all ranks call it, and wait for each other."""
    return bool(most_of_ranks(int(yes)))


def most_of_ranks(number: int) -> int:
    """Return the largest of all ranks' numbers, likewise."""
    told = torch.tensor([number])
    if RANKS > 1:
        dist.all_reduce(told, dist.ReduceOp.MAX, group=_control[0])
    return int(told)


def control() -> Any:
    """Return the group in which ranks decide together; its exchanges wait on the host."""
    return _control[0]


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
    flush()
    if any_rank(failed) and not failed:
        line(f"{name}: failed on another rank", every=True)


def keep(folder: Path, document: dict[str, Any]) -> None:
    """Make a document the one that `flush` writes."""
    _kept[:] = folder, document


def flush() -> None:
    """Write what there is; every rank its own file, since each compared its own tensors."""
    if not _kept:
        return
    folder, document = _kept
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
    scores[:, [*shape.barred, *shape.single]] = -1e9
    scores[:1, list(shape.single)] = 10.0
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


def model(shape: Shape, policy: str, device: str) -> list[tuple[golden.Forward, golden.Backward]]:
    """Return the golden step of all ranks, by rank."""
    xp = library(device)
    given = [[xp.asarray(compare.to_array(one)) for one in inputs(shape, rank)] for rank in range(RANKS)]
    x, experts, probs, grads = ([one[at] for one in given] for at in range(4))
    _, w1, w2 = first_weights(SEED, shape.hidden, shape.ffn, shape.experts, range(shape.experts), device)
    weights = [xp.asarray(compare.to_array(w)) for w in (w1, w2)]
    forward = golden.forward(x, experts, probs, *weights, policy)
    return list(zip(forward, golden.backward(forward, grads, experts, policy), strict=True))


def put(folder: Path, name: str, steps: list[Any]) -> None:
    """Write each rank's part of a golden step."""
    for rank, pair in enumerate(steps):
        with open(folder / f"{name}-{rank}".replace(" ", "_"), "wb") as file:
            pickle.dump([_moved(one, lambda x: x.get() if hasattr(x, "get") else x) for one in pair], file, 5)


def taken(folder: Path, name: str, device: str) -> tuple[golden.Forward, golden.Backward]:
    """Return this rank's part of a golden step that a rank has written."""
    path = folder / f"{name}-{RANK}".replace(" ", "_")
    forward, backward = pickle.loads(path.read_bytes())
    path.unlink()
    xp = library(device)
    host = ("row_map", "sent")
    return _moved(forward, xp.asarray, host), _moved(backward, xp.asarray)


def _moved(step: Any, move: Callable[[Any], Any], left: tuple[str, ...] = ()) -> Any:
    """Return a golden step whose arrays were moved."""

    def each(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(each, value))
        return move(value) if getattr(value, "ndim", 0) else value

    return replace(step, **{one.name: each(getattr(step, one.name)) for one in fields(step) if one.name not in left})


def free(device: str) -> None:
    """Give cached memory of CuPy and torch back."""
    if device != "cpu":
        library(device).get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
