"""What a training step takes: times of each policy, its kernels, and what the witness costs at its default rate.

    python benchmarks/training_step.py --out FOLDER [--model half] [--batch 128] [--policies bf16 fp8 mxfp4]
        [--seconds 4] [--profile] [--witness 0] [--whole 0] [--torch] [--name alone]

Writes FOLDER/NAME.json. `--witness` gives the seconds of each policy in which blocks of steps with the witness and
without it take turns; `--torch` leaves out the fused kernels; several calls at a time measure how runs share a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from refnum.training import edges, model
from refnum.training.loop import Run, Trainer, make_deterministic

BLOCKS = 16
"""Blocks of steps, half of them with the witness."""


def main() -> None:
    """Measure every policy and write what was found."""
    given = _arguments()
    make_deterministic(given.device)
    if given.torch:
        edges.fused = model.fused = None
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"model": given.model, "batch": given.batch, "fused": model.fused is not None}
    for policy in given.policies:
        trainer = _trainer(given, policy)
        begin = time.perf_counter()
        watch(trainer, False)
        for _ in range(3):
            trainer.train_step()
        found[policy] = {"first steps, s": round(time.perf_counter() - begin, 2), **measured(trainer, given.seconds)}
        if given.profile:
            found[policy]["profile"] = profile(trainer)
        if given.witness:
            found[policy]["witness"] = overhead(trainer, given.witness)
        print(given.name, policy, {name: one for name, one in found[policy].items() if name != "profile"}, flush=True)
        (given.out / f"{given.name}.json").write_text(json.dumps(found, indent=1) + "\n")
        del trainer
        if given.device == "cuda":
            torch.cuda.empty_cache()


def measured(trainer: Trainer, seconds: float) -> dict[str, Any]:
    """Return the time of steps without the witness, taken for so many seconds."""
    losses, times, begin = [], [], time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 3:
        start = time.perf_counter()
        losses.append(trainer.train_step()["loss"])
        times.append(time.perf_counter() - start)
    tokens = trainer.run.batch * trainer.sizes.sequence
    return {
        "ms": round(1e3 * statistics.fmean(times), 3), "ms, median": round(1e3 * statistics.median(times), 3),
        "steps": len(times), "tokens a second": round(tokens / statistics.fmean(times)),
        "losses": [losses[0], losses[-1]], "peak_bytes": torch.cuda.max_memory_allocated() if _cuda(trainer) else 0,
    }  # fmt: skip


def watch(trainer: Trainer, on: bool) -> None:
    """Let the run's witness look at the steps that follow, or not."""
    for layer in trainer.model.layers():
        layer.watch(trainer.witness if on else None)


def overhead(trainer: Trainer, seconds: float) -> dict[str, Any]:
    """Return what steps take with the witness and without it, in blocks by turns, and what it judged."""
    witness = trainer.witness
    watch(trainer, True)
    if witness.every:  # a first step is followed as a whole here: much is compiled for it
        trainer.step = -(-trainer.step // witness.every) * witness.every
        trainer.train_step()
    start = time.perf_counter()
    for _ in range(4):
        trainer.train_step()
    block = max(1, round(seconds / BLOCKS / ((time.perf_counter() - start) / 4)))
    witness.restart()
    taken: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(BLOCKS):
        on = turn % 4 in (0, 3)
        watch(trainer, on)
        _wait(trainer)
        start = time.perf_counter()
        for _ in range(block):
            trainer.train_step()
        _wait(trainer)
        took = time.perf_counter() - start
        taken[on].append(1e3 * took / block)
        if not on:
            witness.idle(took)
    pairs = [one / other - 1 for one, other in zip(taken[True], taken[False], strict=True)]
    half = 2.365 * statistics.stdev(pairs) / len(pairs) ** 0.5
    share = statistics.fmean(taken[True]) / statistics.fmean(taken[False]) - 1
    return {
        "steps of a block": block, "ms with": taken[True], "ms without": taken[False], "share": round(share, 5),
        "pairs": [round(statistics.fmean(pairs), 5), round(half, 5)], "its own count, s": round(witness.spent, 4),
        "whole steps, s": round(witness.followed, 4), "judged": trainer.judged(), "orders": dict(witness.orders),
    }  # fmt: skip


def profile(trainer: Trainer) -> dict[str, Any]:
    """Return the kernels of a step by their time, and how often the host launched and waited."""
    trainer.train_step()
    _wait(trainer)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as run:
        start = time.perf_counter()
        trainer.train_step()
        _wait(trainer)
        wall = time.perf_counter() - start
    rows, calls = [], Counter()
    for one in run.key_averages():
        if one.key.startswith("cuda"):
            calls[one.key] = one.count
        elif one.self_device_time_total > 0 and one.device_type == torch.autograd.DeviceType.CUDA:
            rows.append({"kernel": one.key[:110], "calls": one.count, "us": round(one.self_device_time_total, 1)})
    rows.sort(key=lambda row: -row["us"])
    busy = sum(row["us"] for row in rows)
    return {"wall_us": round(wall * 1e6), "busy_us": round(busy), "kernels": sum(row["calls"] for row in rows),
            "calls": dict(calls.most_common(12)), "by kernel": rows[:45]}  # fmt: skip


def _wait(trainer: Trainer) -> None:
    if _cuda(trainer):
        torch.cuda.synchronize()


def _cuda(trainer: Trainer) -> bool:
    return trainer.run.device == "cuda"


def _trainer(given: argparse.Namespace, policy: str) -> Trainer:
    folder = given.out / f"{given.name}-{policy}"
    return Trainer(Run(
        policy, given.model, 10_000, given.batch, 0, 1e-3, given.device, folder, given.corpus or given.out / "corpus",
        10_000, 10_000, given.megabytes, 300.0, 1 / 64, given.whole,
    ))  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--name", default="alone")
    parser.add_argument("--model", default="half")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--policies", nargs="+", default=["bf16", "fp8", "mxfp4"])
    for name, default in (("batch", 128), ("megabytes", 32), ("whole", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("seconds", 4.0), ("witness", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    for name in ("profile", "torch"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
