"""The witness of a layer for `moe_layer.py`: what it judges, and what it costs at its default rate."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from moe_layer_costs import Bench, timed
from moe_layer_tools import RANK, Shape, any_rank, free, inputs, late, line, make, most_of_ranks, section, step

from refnum.training.witness import Witness


def witnessed(found: dict[str, Any], shape: Shape, device: str, steps: int, folder: Path) -> None:
    """Run steps under a witness that looks at everything it can."""
    every = Witness(folder / f"witness{RANK}", rate=1.0, every=1, rows=4, share=1.0, seed=RANK)
    layer, given = make(shape, "mxfp4", device, "library", every), inputs(shape, RANK)
    begin = time.perf_counter()
    for number in range(steps):
        every.step = number
        step(layer, given, device)
    line(every.summary(), every=True)
    found |= {"summary": every.summary(), "orders": dict(every.orders), "judged": dict(every.judged),
              "seconds": round(time.perf_counter() - begin, 2),
              "mismatches": list(map(str, every.mismatches[:5]))}  # fmt: skip


def overhead(
    found: dict[str, Any], shapes: tuple[Shape, ...], device: str, folder: Path, seconds: float, limit: float
) -> None:
    """Measure what a witness at its default rate costs: short blocks of steps with and without it by turns."""
    for shape in shapes:
        if late(limit):
            found[str(shape)] = "no time left"
            continue
        with section(found, str(shape)):
            found[str(shape)] = one = _overhead(shape, device, folder, seconds)
            line(f"witness, {shape}: { {name: value for name, value in one.items() if name != 'blocks'} }", every=True)
        gc.collect()
        free(device)


def _overhead(shape: Shape, device: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Take blocks of steps until the time is over; what the first samples load and compile comes before them."""
    bench = Bench(shape, "mxfp4", device, Witness(folder / f"first{RANK}", 1 / 8, 0, share=1.0, seed=1))
    for _ in range(2):
        bench.whole()
    witness = Witness(folder / f"witness{RANK}", seed=RANK)
    bench.layer.watch(None)
    one = float(np.median(timed(bench.whole, 5, device)))
    block = most_of_ranks(max(1, round(150 / one)))  # all ranks take the same steps
    pairs = most_of_ranks(max(2, round(seconds * 1e3 / one / block / 2)))
    ms: dict[str, list[float]] = {"with": [], "without": []}
    number = 0
    gc.collect()
    gc.freeze()
    gc.disable()
    witness.restart()
    try:
        for turn in range(2 * pairs):
            on = turn % 4 in (0, 3)
            bench.layer.watch(witness if on else None)
            begin = _begun(device)
            for _ in range(block):
                number += 1
                witness.step = number % 999 + 1  # whole steps are not taken here
                bench.whole()
            took = _begun(device, wait=False) - begin
            ms["with" if on else "without"].append(took / block * 1e3)
            if not on:
                witness.idle(took)
            if turn % 20 == 19:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    spent = witness.spent
    begin = time.perf_counter()
    witness.settle()
    means = {name: float(np.mean(values)) for name, values in ms.items()}
    return {
        "ms": {name: round(value, 4) for name, value in means.items()}, "steps of a block": block,
        "share": round(means["with"] / means["without"] - 1, 5),
        "its own count": round(spent / (means["with"] * 1e-3 * block * pairs), 5),
        "left to judge, s": round(time.perf_counter() - begin, 4),
        "blocks": {name: [round(value, 4) for value in values] for name, values in ms.items()},
        "summary": witness.summary(), "spent_s": round(spent, 4), "judged": dict(witness.judged),
        "orders": dict(witness.orders),
    }  # fmt: skip


def _begun(device: str, wait: bool = True) -> float:
    """Return the time when the device has nothing left to do; `wait`: on all ranks."""
    if device != "cpu":
        torch.cuda.synchronize()
    if wait:
        any_rank(False)
    return time.perf_counter()
