"""The layer on one or several GPUs: every bit against the golden layer, two runs, the witness, times and memory.

    python benchmarks/moe_layer.py --out DIR
    torchrun --nproc-per-node 2 benchmarks/moe_layer.py --out DIR

Each rank computes the golden step of all ranks with CuPy from the same seeds and compares its own tensors. Each rank
writes `moe_layer_<ranks>_<rank>.json` after each section, and adds to what is there. After `--limit` seconds nothing
new begins. `--device cpu --small` runs everything that needs no GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import moe_layer_costs as costs
import torch
import torch.distributed as dist
from moe_layer_tools import (
    LOCAL,
    RANK,
    RANKS,
    Orders,
    Shape,
    Traffic,
    free,
    inputs,
    late,
    library,
    line,
    make,
    model,
    read,
    section,
    start,
    step,
    write,
)

from refnum.training import compare
from refnum.training.policies import get_policy

CHECKED = {
    "few": Shape(2048, 1024, 16, 4, 3),
    "one rank's experts": Shape(2048, 1024, 16, 4, 64, barred=tuple(range(8, 16))),
    "ragged": Shape(2048, 1024, 16, 4, 2048, skew=2.0, barred=(0, 5), idle=(1,)),
    "even": Shape(2048, 1024, 16, 4, 2048 // RANKS),
}
MORE = [("ragged", "fp8"), ("few", "fp8"), ("even", "fp8"), ("even", "bf16")]
SMALL = {
    "even": Shape(128, 128, 4, 2, 30),
    "ragged": Shape(128, 128, 4, 2, 30, 2.0, (0,), (1,)),
    "one rank's experts": Shape(128, 128, 4, 2, 9, barred=(2, 3)),
}
TIMED = {
    1: (Shape(7168, 2048, 16, 8, 4096), Shape(7168, 2048, 16, 8, 8192), Shape(7168, 2048, 128, 8, 4096),
        Shape(2048, 1024, 16, 4, 8192)),
    2: (Shape(7168, 2048, 256, 8, 4096), Shape(7168, 2048, 256, 8, 16384), Shape(7168, 2048, 32, 8, 8192),
        Shape(2048, 1024, 16, 4, 8192)),
}  # fmt: skip
"""Ranks -> shapes; DeepSeek-V3's 256 experts fit on two GPUs."""
WATCHED = (Shape(7168, 2048, 32, 8, 8192), Shape(2048, 1024, 16, 4, 2048))


def traffic(shape: Shape, device: str) -> dict[str, list[str]]:
    """Return the conversions of a step under each policy: between FP4 and FP8 there is no bfloat16 tensor."""
    found = {}
    for policy in ("mxfp4", "fp8"):
        seen = Traffic()
        step(make(shape, policy, device, "library", seen), inputs(shape, RANK), device)
        found[policy] = seen.calls
    return found


def check(shape: Shape, policy: str, products: str, device: str, made: Any) -> dict[str, Any]:
    """Compare a step with the golden step, and with itself."""
    forward, backward = made
    layer = make(shape, policy, device, products)
    record = step(layer, inputs(shape, RANK), device)
    again = step(layer, inputs(shape, RANK), device)
    wrong = compare.differing(record, forward) | compare.differing(record, backward)
    for name in ("dx", "dw1", "dw2", "dprobs"):
        want = getattr(backward, name)
        if count := compare.different(compare.to_array(record[f"grad.{name}"], want), want):
            wrong[f"grad.{name}"] = count
    found: dict[str, Any] = {
        "elements": compare.elements(forward) + compare.elements(backward),
        "differing": wrong,
        "two runs differ in": [name for name in record if not _equal(record[name], again[name])],
        "rows of experts": list(forward.splits),
        "received rows": int(forward.received.shape[0]),
        "bytes of a payload row": int(forward.payload.shape[1]),
    }
    if device != "cpu" and products == "library" and get_policy(policy).products == "fp8":
        orders = Orders()
        step(make(shape, policy, device, products, orders), inputs(shape, RANK), device)
        found["orders"] = {name: dict(counts) for name, counts in sorted(orders.found.items())}
    return found


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    return one.dtype == other.dtype and not compare.different(compare.to_own_array(one), compare.to_own_array(other))


def checks(wanted: list[tuple[str, str]], shapes: dict[str, Shape], device: str, limit: float) -> dict[str, Any]:
    """Check shapes under policies."""
    found: dict[str, Any] = {}
    for name, policy in wanted:
        key = f"{name} {policy}"
        if late(limit):
            found[key] = "no time left"
            continue
        with section(found, key):
            begin = time.perf_counter()
            made = model(shapes[name], policy, device)
            seconds = round(time.perf_counter() - begin, 2)
            for products in ("model", "library") if device != "cpu" and policy != "bf16" else ("library",):
                one = check(shapes[name], policy, products, device, made) | {"golden_s": seconds}
                found[f"{key} {products}"] = one
                line(f"{key} {products}: {one['elements']} elements, differing {one['differing'] or 0}, two runs "
                     f"differ in {one['two runs differ in'] or 'nothing'}, golden {seconds} s", every=True)  # fmt: skip
        made = None
        free(device)
    return found


def sections(given: argparse.Namespace, device: str) -> dict[str, Callable[[], Any]]:
    """Return the sections of a run by name, the quick and most wanted ones first."""
    small = given.small
    shapes = SMALL if small else CHECKED
    slow = (SMALL["even"],) if small else TIMED[min(RANKS, 2)]
    watched = (SMALL["even"],) if small else WATCHED
    sent = (64, 128, 2) if small else ()
    found: dict[str, Callable[[], Any]] = {
        "uneven": lambda: costs.uneven(device),
        "exchanges": lambda: costs.exchanges(device, *sent),
        "times": lambda: costs.times(slow, device, 2 if small else 10, given.limit),
        "ragged checks": lambda: checks(
            [(name, "mxfp4") for name in shapes if name != "even"], shapes, device, given.limit
        ),
        "memory": lambda: costs.memory(slow[:1] + slow[2:3], device, given.limit),
        "overhead": lambda: costs.overhead(watched, device, given.out, 1 if small else 8, given.limit),
        "checks": lambda: checks([("even", "mxfp4")], shapes, device, given.limit),
        "profile": lambda: costs.profile(slow[0], device),
        "witness": lambda: costs.witnessed(shapes["even"], device, 1 if small else 2, given.out),
        "traffic": lambda: traffic(shapes["even"], device),
        "more checks": lambda: checks([one for one in MORE if one[0] in shapes], shapes, device, given.limit),
    }
    if RANKS == 1:
        del found["uneven"], found["exchanges"]
    if device == "cpu":
        del found["profile"]
    return found


def main() -> None:
    """Run the sections and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="small shapes")
    parser.add_argument("--limit", type=float, default=160, help="seconds after which nothing new begins")
    parser.add_argument("--only", nargs="*", help="names of sections")
    given = parser.parse_args()
    device = "cpu" if given.device == "cpu" else f"cuda:{LOCAL}"
    if device != "cpu":
        torch.cuda.set_device(device)
        library(device).cuda.Device(LOCAL).use()
    else:
        torch.set_num_threads(1)
    start(device)
    given.out.mkdir(parents=True, exist_ok=True)
    document = read(given.out)
    document |= {"ranks": RANKS, "torch": torch.__version__, "device": device}
    if device != "cpu":
        document |= {"device": torch.cuda.get_device_name(), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    line(f"{RANKS} ranks joined, {document['device']}", every=True)
    for name, run in sections(given, device).items():
        if given.only is not None and name not in given.only:
            continue
        if late(given.limit):
            document.setdefault(name, "no time left")
            line(f"{name}: no time left")
        else:
            with section(document, name):
                document[name] = run()
        write(given.out, document)
    line("done", every=True)
    if RANKS > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
