"""Times and memory of the layer for `moe_layer.py`: steps by turns, exchanges, bytes at the peak."""

from __future__ import annotations

import dataclasses
import gc
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from moe_layer_tools import RANK, Shape, any_rank, free, inputs, late, line, make, section

from refnum.training.layer import MoELayer
from refnum.training.memory import Load, step_memory
from refnum.training.policies import get_policy, saved_bytes

POLICIES = ("bf16", "fp8", "mxfp4")
LESS = ("fp8+saved_activation=recompute", "mxfp4+fc2_input=store")
"""FP8 in no more memory than MXFP4 takes, and MXFP4 as the released code stores it."""


def timed(run: Callable[[], Any], repeats: int, device: str, calls: int = 1, warm: int = 2) -> list[float]:
    """Return the milliseconds of a call in each repeat of `calls` calls, after some calls that warm up."""
    for _ in range(warm):
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


def times(found: dict[str, Any], shapes: tuple[Shape, ...], device: str, rounds: int, limit: float) -> None:
    """Measure forward and backward of the layer under all policies by turns; milliseconds."""
    for shape in shapes:
        if late(limit):
            found[str(shape)] = "no time left"
            continue
        with section(found, str(shape)):
            found[str(shape)] = _times(shape, device, rounds)
            line(f"{shape}: { {name: one['ms'] for name, one in found[str(shape)].items()} }")
        gc.collect()
        free(device)


def _times(shape: Shape, device: str, rounds: int) -> dict[str, Any]:
    benches: dict[str, Bench] = {}
    for policy in (*POLICIES, *LESS):
        benches[policy] = Bench(shape, policy, device)
        first = benches[POLICIES[0]].layer
        benches[policy].layer.w1, benches[policy].layer.w2 = first.w1, first.w2  # one set of weights for all
        timed(benches[policy].whole, 1, device)
        benches[policy].clear()
        free(device)
    taken: dict[str, list[float]] = {policy: [] for policy in benches}
    for turn in range(rounds):
        order = list(benches) if turn % 2 else list(benches)[::-1]
        for policy in order:
            any_rank(False)  # ranks begin together
            benches[policy].whole()  # what another policy left in caches and in the allocator is gone
            taken[policy] += timed(benches[policy].whole, 1, device, 2, 0)
            benches[policy].clear()
    return {
        policy: {
            "ms": round(float(np.median(ms)), 3), "ms_least": round(min(ms), 3),
            "turns": [round(one, 3) for one in ms],
            "tokens_a_second": round(shape.tokens / float(np.median(ms)) * 1e3),
        } for policy, ms in taken.items()
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- memory


def memory(found: dict[str, Any], shapes: tuple[Shape, ...], device: str, limit: float) -> None:
    """Measure what a layer's step holds, and count it: under each policy, and its second input stored too."""
    for shape in shapes:
        for policy in (*POLICIES, *LESS):
            key = f"{policy} {shape}"
            if late(limit):
                found[key] = "no time left"
                continue
            with section(found, key):
                found[key] = _memory(shape, policy, device)
                line(f"{key}: {found[key]['measured / counted']}, peak of all {found[key]['peak of all']}")
            gc.collect()
            free(device)


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


# -------------------------------------------------------------------------------------------------------- exchanges


def exchanges(
    found: dict[str, Any], device: str, rows: int = 32768, hidden: int = 7168, rounds: int = 15, calls: int = 5
) -> None:
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
    found |= {
        name: {"bytes_a_row": widths[name], "us": round(float(np.median(ms)) * 1e3, 1),
               "us_least": round(min(ms) * 1e3, 1), "us_most": round(max(ms) * 1e3, 1)}
        for name, ms in taken.items()
    }  # fmt: skip
    least = found["mxfp4"]["us"]
    found["times as quick as mxfp4's"] = {name: round(found[name]["us"] / least, 3) for name in widths}
    line(f"all-to-all of {rows} rows: {found}")


def uneven(found: dict[str, Any], device: str) -> None:
    """Show that rows arrive right where ranks send each other unequal numbers of rows, and none."""
    from refnum.training.dispatch import Ranks

    ranks = Ranks()
    found |= {"ranks": ranks.count, "backend": dist.get_backend()}
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
