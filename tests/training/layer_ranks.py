"""A step of the layer on one or two ranks, in processes of their own, and the golden step that it must equal."""

from __future__ import annotations

import datetime
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import planted
import torch
import torch.distributed as dist
import torch.multiprocessing

import refnum
from refnum.gpu import host
from refnum.interchange import door
from refnum.training import compare, golden, spawn
from refnum.training.layer import MoELayer

HIDDEN, FFN = 128, 128
SEED, STEP = 3, 41
"""Of the layer and of the training."""


@dataclass(frozen=True)
class Case:
    """A step: tokens of each rank, experts of the layer and of a token, experts that no token may choose."""

    tokens: tuple[int, ...]
    policy: Any = "mxfp4"
    experts: int = 4
    top: int = 2
    barred: tuple[int, ...] = ()
    bug: str = ""
    products: str = field(default="library")


def inputs(case: Case, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (x, experts, probs, gradient of the output) of a rank."""
    generator = torch.Generator().manual_seed(100 + rank)
    rows = case.tokens[rank]
    x, grad = (torch.randn(rows, HIDDEN, generator=generator).to(torch.bfloat16) for _ in range(2))
    x *= torch.exp2(torch.randint(-3, 4, (rows, 1), generator=generator)).to(torch.bfloat16)
    scores = torch.rand(rows, case.experts, generator=generator)
    scores[:, list(case.barred)] = -1.0
    probs, experts = scores.topk(case.top, dim=1)
    return x, experts, probs, grad


def step(case: Case, rank: int, witness: Any = None) -> dict[str, Any]:
    """Run one step on this rank; return the layer's record, its parameters and gradients."""
    undo = planted.plant(case.bug)
    layer = MoELayer(HIDDEN, FFN, case.experts, case.top, case.policy, witness=witness, seed=SEED, seconds=60)
    layer.record, layer.step = {}, STEP
    x, experts, probs, grad = inputs(case, rank)
    x, probs = x.requires_grad_(), probs.requires_grad_()
    layer(x, (experts, probs)).backward(grad)
    undo()
    found = {"w1": layer.w1, "w2": layer.w2, "dx": x.grad, "dprobs": probs.grad, "dw1": layer.w1.grad}
    return {**layer.record, **{name: one.detach() for name, one in found.items()}, "dw2": layer.w2.grad}


def forks() -> Any:
    """Return what starts processes as forks of one, which has imported what ranks do, for all tests."""
    ours = [f"refnum.training.{name}" for name in ("judge", "layer", "loop")]
    backward = "torch.fx.experimental.symbolic_shapes"  # imported when the first gradient is computed, for a second
    multiprocessing.set_forkserver_preload([*ours, "torch.distributed", backward])
    return multiprocessing.get_context("forkserver")


def with_quick_products() -> None:
    """Take products of 2^17 terms and more from the host build in this process, where there is a compiler."""
    if host.available()[0]:
        models, hosts = refnum.matmul_fp8, door(host.matmul_fp8)

        def product(a: torch.Tensor, b: torch.Tensor, *given: Any) -> torch.Tensor:
            return (hosts if a.numel() * len(b) >= 1 << 17 else models)(a, b, *given)

        refnum.matmul_fp8 = product


def rank(*given: Any) -> None:
    """Run a rank as `spawn` does, with quick products."""
    with_quick_products()
    spawn._rank(*given)


def start(work: Callable[..., None], given: tuple[Any, ...]) -> None:
    """Run `work(rank, *given)` on two ranks."""
    forks()
    torch.multiprocessing.start_processes(work, given, nprocs=2, start_method="forkserver")


def worker(rank: int, folder: str, cases: dict[str, Case]) -> None:
    """Run a rank's steps in a process of its own, and write what it found."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    time = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=time)
    for name, case in cases.items():
        torch.save(step(case, rank), Path(folder) / f"{name}.{rank}.pt")
    dist.destroy_process_group()


def run_together(cases: dict[str, Case], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what both ranks found in each case."""
    start(worker, (str(folder), cases))
    return {name: [torch.load(folder / f"{name}.{rank}.pt", weights_only=True) for rank in range(2)] for name in cases}


def model(case: Case, found: list[dict[str, Any]]) -> tuple[list[golden.Forward], list[golden.Backward]]:
    """Return the golden step of the same inputs."""
    given = [[compare.to_array(one) for one in inputs(case, rank)] for rank in range(len(case.tokens))]
    x, experts, probs, grads = ([one[at] for one in given] for at in range(4))
    w1, w2 = (np.concatenate([compare.to_array(one[name]) for one in found]) for name in ("w1", "w2"))
    forward = golden.forward(x, experts, probs, w1, w2, case.policy, SEED, STEP)
    return forward, golden.backward(forward, grads, experts, case.policy, SEED, STEP)


def differing(case: Case, found: list[dict[str, Any]] | None = None) -> dict[str, int]:
    """Return what differs from the golden step: by rank and name, the number of elements.

    found: what the ranks found; None runs the step of one rank here.
    """
    found = [step(case, 0)] if found is None else found
    wrong = {}
    for rank, (record, forward, backward) in enumerate(zip(found, *model(case, found), strict=True)):
        all_of = compare.differing(record, forward) | compare.differing(record, backward)
        gradients = {"dx": backward.dx, "dprobs": backward.dprobs, "dw1": backward.dw1, "dw2": backward.dw2}
        all_of |= {
            name: -1 for name, one in gradients.items() if not np.array_equal(compare.to_array(record[name]), one)
        }
        wrong |= {f"{rank}.{name}": count for name, count in all_of.items()}
    return wrong
