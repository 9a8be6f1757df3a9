"""Times and memory of the layer for `moe_layer.py`: steps, exchanges, the witness, kernels, bytes at the peak."""

from __future__ import annotations

import dataclasses
import gc
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from moe_layer_tools import RANK, Shape, any_rank, free, inputs, late, line, make, most_of_ranks, section, step

from refnum.training.layer import MoELayer
from refnum.training.memory import Load, step_memory
from refnum.training.policies import get_policy, saved_bytes
from refnum.training.witness import Witness

POLICIES = ("bf16", "fp8", "mxfp4")
LESS = ("fp8+saved_activation=recompute", "mxfp4+fc2_input=store")
"""FP8 in no more memory than MXFP4 takes, and MXFP4 as the released code stores it."""


def timed(run: Callable[[], Any], repeats: int, device: str, calls: int = 1) -> list[float]:
    """Return the milliseconds of a call in each repeat of `calls` calls, after two calls that warm up."""
    for _ in range(2):
        run()
    found = []
    for _ in range(repeats):
        if device == "cpu":
            begin = time.perf_counter()
            for _ in range(calls):
                run()
            found.append((time.perf_counter() - begin) * 1e3 / calls)
            continue
        torch.cuda.synchronize()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        for _ in range(calls):
            run()
        events[1].record()
        torch.cuda.synchronize()
        found.append(events[0].elapsed_time(events[1]) / calls)
    return found


class Bench:
    """One layer with its inputs on the device, and a step of it."""

    def __init__(self, shape: Shape, policy: str, device: str, witness: Any = None) -> None:
        self.layer = make(shape, policy, device, "library", witness)
        x, self.experts, probs, self.grad = (one.to(device).detach() for one in inputs(shape, RANK))
        self.x, self.probs = x.requires_grad_(), probs.requires_grad_()

    def forward(self) -> torch.Tensor:
        """Return the layer's output."""
        out: torch.Tensor = self.layer(self.x, (self.experts, self.probs))
        return out

    def whole(self) -> None:
        """Take a step with new gradients."""
        self.clear()
        self.forward().backward(self.grad)

    def clear(self) -> None:
        """Forget the gradients."""
        self.x.grad = self.probs.grad = self.layer.w1.grad = self.layer.w2.grad = None


def times(shapes: tuple[Shape, ...], device: str, repeats: int, limit: float) -> dict[str, Any]:
    """Measure forward and backward of the layer under each policy, in turns; milliseconds."""
    found: dict[str, Any] = {}
    for shape in shapes:
        for policy in (*POLICIES, *LESS):
            key = f"{policy} {shape}"
            if late(limit):
                found[key] = "no time left"
                continue
            with section(found, key):
                found[key] = _times(shape, policy, device, repeats)
                line(f"{key}: {found[key]}")
            free(device)
    return found


def _times(shape: Shape, policy: str, device: str, repeats: int) -> dict[str, Any]:
    bench = Bench(shape, policy, device)
    both = timed(bench.whole, repeats, device)
    with torch.no_grad():
        ahead = timed(bench.forward, repeats, device)
    return {
        "ms": round(float(np.median(both)), 3), "ms_least": round(min(both), 3),
        "forward_ms": round(float(np.median(ahead)), 3),
        "tokens_a_second": round(shape.tokens / float(np.median(both)) * 1e3),
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- memory


def memory(shapes: tuple[Shape, ...], device: str, limit: float) -> dict[str, Any]:
    """Measure what a layer's step holds, and count it: under each policy, and its second input stored too."""
    found: dict[str, Any] = {}
    for shape in shapes:
        for policy in (*POLICIES, *LESS):
            key = f"{policy} {shape}"
            if late(limit):
                found[key] = "no time left"
                continue
            with section(found, key):
                found[key] = _memory(shape, policy, device)
                line(f"{key}: { {name: one for name, one in found[key].items() if name != 'at the peak'} }")
            gc.collect()
            free(device)
    return found


def _allocated(device: str) -> int:
    if device == "cpu":
        return 0
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def _memory(shape: Shape, policy: str, device: str) -> dict[str, Any]:
    gc.collect()
    free(device)
    empty = _allocated(device)
    bench = Bench(shape, policy, device)
    given = sum(one.nbytes for one in (bench.x, bench.probs, bench.experts, bench.grad))
    weights = _allocated(device) - empty - given
    bench.whole()  # the libraries take their workspaces, which stay
    bench.clear()
    found: dict[str, Any] = {"weights": weights, "inputs": given}
    found["workspaces that stay"] = _allocated(device) - empty - given - weights
    free(device)
    base = _allocated(device)
    _reset(device)
    out = bench.forward()
    after = _allocated(device) - base
    found["peak of forward"] = _peak(device) - base
    found |= _kept(bench.layer, shape, out, after)
    _reset(device)
    out.backward(bench.grad)
    del out
    found["gradients"] = _allocated(device) - base
    found["peak of backward"] = _peak(device) - base
    found["peak of all"] = _peak(device) - empty
    found["reserved"] = 0 if device == "cpu" else torch.cuda.max_memory_reserved()
    found["measured / counted"] = _compared(found)
    bench.clear()
    if device != "cpu":
        with section(found, "at the peak"):
            found["at the peak"] = at_peak(bench.whole)
    return found


def _kept(layer: MoELayer, shape: Shape, out: torch.Tensor, after: int) -> dict[str, Any]:
    """Return what autograd keeps, part by part, and what the policy's row counts for the same rows."""
    parts = 2 if layer.edges.fp8 else 1
    context: Any = out.grad_fn
    prob, *rest = context.saved_tensors
    operands, saved = rest[: 2 * parts], rest[2 * parts :]
    route = context.route
    lists = sum(one.nbytes for one in (route.tokens, route.home, route.row_map, route.slots, route.places, prob))
    counted = saved_bytes(get_policy(layer.policy), shape.hidden, shape.ffn, scale_bytes=1)
    filled, routed = sum(route.rows), sum(route.splits)
    right = route.received * counted["input"] + filled * (counted["activation"] + counted["fc2_input"])
    own = (layer.w1.data_ptr(), layer.w2.data_ptr())
    beside = sum(one.nbytes for one in operands if one.data_ptr() not in own)
    measured = after - out.nbytes - beside - lists
    load = Load(shape.tokens, tuple(route.send), tuple(route.receive), tuple(route.splits), shape.top)
    return {
        "routed rows": routed, "filled rows": filled, "received rows": route.received,
        "allocated after forward": after, "output": out.nbytes, "weights in FP8": beside, "routing": lists,
        "saved, of autograd": sum(one.nbytes for one in saved), "saved, measured": measured, "saved, counted": right,
        "saved a routed token": round(right / max(routed, 1), 1),
        "saved a routed token, each with its own input": sum(counted.values()),
        "counted": dataclasses.asdict(step_memory(layer.policy, shape.hidden, shape.ffn, load)),
    }  # fmt: skip


def _compared(found: dict[str, Any]) -> dict[str, float]:
    """Return measured bytes divided by counted ones."""
    counted = found["counted"]
    pairs = {"saved": ("saved, measured", counted["saved"]), "kept": ("allocated after forward", counted["kept"]),
             "forward": ("peak of forward", counted["forward"]), "backward": ("peak of backward", counted["backward"]),
             "gradients": ("gradients", counted["gradients"])}  # fmt: skip
    return {name: round(found[key] / bytes_, 4) for name, (key, bytes_) in pairs.items() if bytes_}


def _reset(device: str) -> None:
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()


def _peak(device: str) -> int:
    return 0 if device == "cpu" else torch.cuda.max_memory_allocated()


def at_peak(run: Callable[[], None]) -> dict[str, Any]:
    """Return what a call had allocated when it had most: bytes by line of this project, and how many of them."""
    torch.cuda.memory._record_memory_history(max_entries=500_000, stacks="python")
    try:
        run()
        torch.cuda.synchronize()
        events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    live: dict[int, tuple[int, str]] = {}
    now, most, best = 0, 0, {}
    for event in events:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"], _place(event.get("frames", []))
            now += event["size"]
            if now > most:
                most, best = now, dict(live)
        elif event["action"] == "free_completed" and event["addr"] in live:
            now -= live.pop(event["addr"])[0]
    sizes: Counter[str] = Counter()
    for size, place in best.values():
        sizes[place] += size
    return {"bytes": most, "by line": dict(sizes.most_common(40))}


def _place(frames: list[dict[str, Any]]) -> str:
    """Return the two innermost lines of the training room, or the innermost line of all."""
    ours = [one for one in frames if "/training/" in one["filename"]]
    named = [f"{Path(one['filename']).name}:{one['line']} {one['name']}" for one in (ours or frames)[:2]]
    return " < ".join(named) or "no Python"


# -------------------------------------------------------------------------------------------------------- exchanges


def exchanges(device: str, rows: int = 32768, hidden: int = 7168, rounds: int = 15, calls: int = 5) -> dict[str, Any]:
    """Measure the all-to-all of rows in each format, the formats in turns; microseconds of one exchange."""
    widths = {"mxfp4": hidden * 17 // 32, "fp8": hidden + hidden // 128, "fp8, float32 scales": hidden * 33 // 32,
              "bf16": hidden * 2}  # fmt: skip
    tensors = {}
    for name, width in widths.items():
        given = torch.randint(0, 256, (rows, width), dtype=torch.uint8, device=device)
        tensors[name] = torch.empty_like(given), given
    taken: dict[str, list[float]] = {name: [] for name in widths}
    for _ in range(rounds):
        for name, (out, given) in tensors.items():
            any_rank(False)  # ranks begin together
            run = lambda out=out, given=given: dist.all_to_all_single(out, given)  # noqa: E731
            taken[name] += timed(run, 1, device, calls)
    found: dict[str, Any] = {
        name: {"bytes_a_row": widths[name], "us": round(float(np.median(ms)) * 1e3, 1),
               "us_least": round(min(ms) * 1e3, 1), "us_most": round(max(ms) * 1e3, 1)}
        for name, ms in taken.items()
    }  # fmt: skip
    least = found["mxfp4"]["us"]
    found["times as quick as mxfp4's"] = {name: round(found[name]["us"] / least, 3) for name in widths}
    line(f"all-to-all of {rows} rows: {found}")
    return found


def uneven(device: str) -> dict[str, Any]:
    """Show that rows arrive right where ranks send each other unequal numbers of rows, and none."""
    from refnum.training.dispatch import Ranks

    ranks = Ranks()
    found: dict[str, Any] = {"ranks": ranks.count, "backend": dist.get_backend()}
    for name, most in (("many", 1000), ("few", 3), ("none", 0)):
        dice = random.Random(most)
        table = [[dice.randint(0, most) if name != "few" or at else 0 for at in range(ranks.count)]
                 for _ in range(ranks.count)]  # fmt: skip
        send = torch.tensor(table[ranks.rank], device=device)
        gone, came = ranks.counts(send)
        right = [row[ranks.rank] for row in table]
        x = torch.cat([torch.full((n, 17), 10 * ranks.rank + to, dtype=torch.uint8, device=device)
                       for to, n in enumerate(gone)])  # fmt: skip
        got = ranks.rows(x, gone, came)
        want = torch.cat([torch.full((n, 17), 10 * home + ranks.rank, dtype=torch.uint8, device=device)
                          for home, n in enumerate(right)])  # fmt: skip
        found[name] = {"counts": came == right, "rows": torch.equal(got, want)}
    line(f"uneven exchanges: {found}", every=True)
    return found


# -------------------------------------------------------------------------------------------------- witness, kernels


def witnessed(shape: Shape, device: str, steps: int, folder: Path) -> dict[str, Any]:
    """Run steps under a witness that looks at everything it can."""
    every = Witness(folder / f"witness{RANK}", rate=1.0, every=1, rows=4, share=1.0, seed=RANK)
    layer, given = make(shape, "mxfp4", device, "library", every), inputs(shape, RANK)
    begin = time.perf_counter()
    for number in range(steps):
        every.step = number
        step(layer, given, device)
    line(every.summary(), every=True)
    return {"summary": every.summary(), "orders": dict(every.orders), "judged": dict(every.judged),
            "seconds": round(time.perf_counter() - begin, 2),
            "mismatches": list(map(str, every.mismatches[:5]))}  # fmt: skip


def overhead(shapes: tuple[Shape, ...], device: str, folder: Path, seconds: float, limit: float) -> dict[str, Any]:
    """Measure what a witness at its default rate costs: blocks of steps with and without it, alternating."""
    found: dict[str, Any] = {}
    for shape in shapes:
        if late(limit):
            found[str(shape)] = "no time left"
            continue
        with section(found, str(shape)):
            found[str(shape)] = _overhead(shape, device, folder, seconds)
            line(f"witness at its default rate, {shape}: {found[str(shape)]}", every=True)
        free(device)
    return found


def _overhead(shape: Shape, device: str, folder: Path, seconds: float) -> dict[str, Any]:
    witness = Witness(folder / f"witness{RANK}", seed=RANK)
    bench = Bench(shape, "mxfp4", device, witness)
    witness.step = 1
    one = float(np.median(timed(bench.whole, 3, device)))
    witness.restart()
    block = most_of_ranks(max(1, round(seconds * 1e3 / one / 16)))  # all ranks take the same steps
    ms: dict[str, list[float]] = {"with": [], "without": []}
    number = 0
    for turn in range(16):
        on = turn % 4 in (0, 3)
        bench.layer.watch(witness if on else None)
        any_rank(False)
        if device != "cpu":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(block):
            if on:
                number += 1
                witness.step = number
            bench.whole()
        if device != "cpu":
            torch.cuda.synchronize()
        took = time.perf_counter() - begin
        ms["with" if on else "without"].append(took / block * 1e3)
        if not on:
            witness.idle(took)
    spent = witness.spent
    witness.settle()
    bench.layer.watch(witness)
    witness.share, witness.step = 1.0, witness.every
    followed = timed(bench.whole, 2, device)
    means = {name: float(np.mean(values)) for name, values in ms.items()}
    return {
        "ms": {name: round(value, 4) for name, value in means.items()}, "steps of a block": block,
        "share": round(means["with"] / means["without"] - 1, 5), "step that is followed whole, ms": followed,
        "whole steps, were all followed": round((min(followed) / means["without"] - 1) / witness.every, 5),
        "blocks": ms,
        "summary": witness.summary(), "spent_s": round(spent, 4), "judged": dict(witness.judged),
    }  # fmt: skip


def profile(shape: Shape, device: str) -> dict[str, list[dict[str, Any]]]:
    """Return the kernels of a step under each policy by their time."""
    found = {}
    for policy in POLICIES:
        found[policy] = _profile(shape, policy, device)
        free(device)
    return found


def _profile(shape: Shape, policy: str, device: str) -> list[dict[str, Any]]:
    bench = Bench(shape, policy, device)
    for _ in range(2):
        bench.whole()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as run:
        bench.whole()
        torch.cuda.synchronize()
    rows = [{"kernel": one.key[:120], "calls": one.count, "us": round(one.device_time_total, 1)}
            for one in run.key_averages() if one.device_time_total > 0]  # fmt: skip
    return sorted(rows, key=lambda row: -row["us"])[:40]
