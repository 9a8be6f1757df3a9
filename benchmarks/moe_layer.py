"""The layer on one or several GPUs: every bit against the golden layer, two runs, the witness, times and memory.

    python benchmarks/moe_layer.py --out DIR
    torchrun --nproc-per-node 2 benchmarks/moe_layer.py --out DIR

The golden steps are computed with CuPy from the same seeds, each by one rank for all, and each rank compares its own
tensors. Each rank writes `moe_layer_<ranks>_<rank>.json` after each part of a section, and adds to what is there. After
`--limit` seconds nothing new begins. `--device cpu --small` runs everything that needs no GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import moe_layer_costs as costs
import torch
import torch.distributed as dist
from moe_layer_observers import Orders, Traffic
from moe_layer_profile import profile
from moe_layer_tools import (
    LOCAL,
    RANK,
    RANKS,
    Shape,
    any_rank,
    control,
    flush,
    free,
    inputs,
    keep,
    late,
    library,
    line,
    make,
    model,
    put,
    read,
    section,
    start,
    step,
    taken,
)
from moe_layer_watch import overhead, witnessed

from refnum.conformance.commands.fuzz.identity import revision
from refnum.conformance.reports.environment import command_line, environment
from refnum.conformance.reports.gpus import published
from refnum.training import compare
from refnum.training.policies import get_policy

CHECKED = {
    "one rank's experts": Shape(2048, 1024, 16, 4, 64, barred=tuple(range(8, 16))),
    "ragged": Shape(2048, 1024, 16, 4, 2048, skew=2.0, barred=(0, 5), idle=(1,), single=(3, 12)),
    "even": Shape(2048, 1024, 16, 4, 2048 // RANKS),
    "skewed": Shape(2048, 1024, 16, 4, 2048 // RANKS, skew=2.0, barred=(0, 5), single=(3, 12)),
}
BOTH = ("mxfp4", "fp8")
TOLD = ("elements", "differing", "two runs differ in", "rows of experts")
SMALL = {
    "even": Shape(128, 128, 4, 2, 30),
    "ragged": Shape(128, 128, 4, 2, 30, 2.0, (0,), (1,), (3,)),
    "one rank's experts": Shape(128, 128, 4, 2, 9, barred=(2, 3)),
}
TIMED = {
    1: (Shape(7168, 2048, 16, 8, 4096), Shape(7168, 2048, 16, 8, 8192), Shape(7168, 2048, 128, 8, 4096),
        Shape(2048, 1024, 16, 4, 8192)),
    2: (Shape(7168, 2048, 32, 8, 8192), Shape(7168, 2048, 256, 8, 16384), Shape(7168, 2048, 256, 8, 4096),
        Shape(2048, 1024, 16, 4, 8192)),
}  # fmt: skip
"""Ranks -> shapes; DeepSeek-V3's 256 experts fit on two GPUs."""
WATCHED = {1: Shape(7168, 2048, 16, 8, 8192), 2: Shape(7168, 2048, 32, 8, 8192)}


def traffic(found: dict[str, Any], shape: Shape, device: str) -> None:
    """Return the conversions of a step under each policy: between FP4 and FP8 there is no bfloat16 tensor."""
    for policy in ("mxfp4", "fp8"):
        seen = Traffic()
        step(make(shape, policy, device, "library", seen), inputs(shape, RANK), device)
        found[policy] = seen.calls


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


def checks(
    found: dict[str, Any], wanted: list[tuple[str, str]], shapes: dict[str, Shape], given: argparse.Namespace,
    device: str,
) -> None:  # fmt: skip
    """Check shapes under policies, as many at a time as there are ranks: each computes one golden step for all."""
    with tempfile.TemporaryDirectory(dir=given.shared if given.shared.is_dir() else None) as own:
        folder = Path(shared_name(own))
        for at in range(0, len(wanted), RANKS):
            some = wanted[at : at + RANKS]
            if late(given.limit):
                found |= {f"{name} {policy}": "no time left" for name, policy in some}
                continue
            with section(found, f"golden of {some}"):
                if len(some) > RANK:
                    name, policy = some[RANK]
                    begin = time.perf_counter()
                    put(folder, f"{name} {policy}", model(shapes[name], policy, device))
                    line(f"golden {name} {policy}: {time.perf_counter() - begin:.1f} s", every=True)
                    free(device)
            for name, policy in some:
                key = f"{name} {policy} library"
                with section(found, key):
                    found[key] = one = check(
                        shapes[name], policy, "library", device, taken(folder, f"{name} {policy}", device)
                    )
                    line(f"{key}: { {name: one[name] for name in TOLD} }", every=True)
                free(device)
        any_rank(False)  # nobody deletes the folder before all have read


def shared_name(own: str) -> str:
    """Return the first rank's name of a folder, for all ranks."""
    told = [own]
    if RANKS > 1:
        dist.broadcast_object_list(told, 0, group=control())
    return told[0]


def sections(given: argparse.Namespace, device: str) -> dict[str, Callable[[dict[str, Any]], None]]:
    """Return the sections of a run by name, the quick and most wanted ones first."""
    small = given.small
    shapes = SMALL if small else CHECKED
    slow = (SMALL["even"],) if small else TIMED[min(RANKS, 2)]
    watched = (SMALL["even"],) if small else (WATCHED[min(RANKS, 2)],)
    sent = (64, 128, 2) if small else ()
    wanted = [(name, policy) for name in ("even", "ragged", "one rank's experts", "skewed") if name in shapes
              for policy in BOTH]  # fmt: skip
    found: dict[str, Callable[[dict[str, Any]], None]] = {
        "uneven": lambda found: costs.uneven(found, device),
        "exchanges": lambda found: costs.exchanges(found, device, *sent),
        "times": lambda found: costs.times(found, slow, device, 2 if small else 12, given.limit),
        "overhead": lambda found: overhead(
            found, watched, device, given.out, 1 if small else given.seconds, given.limit
        ),
        "memory": lambda found: costs.memory(found, slow[:1], device, given.limit),
        "profile": lambda found: profile(found, slow[0], device, given.limit),
        "checks": lambda found: checks(found, wanted, shapes, given, device),
        "witness": lambda found: witnessed(found, shapes["even"], device, 1, given.out),
        "traffic": lambda found: traffic(found, shapes["even"], device),
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
    parser.add_argument("--seconds", type=float, default=30, help="how long the witness's cost is measured")
    parser.add_argument("--shared", type=Path, default=Path("/dev/shm"), help="gets golden steps for other ranks")
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
    document |= {"ranks": RANKS, "torch": torch.__version__, "device": device, "date": time.strftime("%Y-%m-%d")}
    if device != "cpu":
        document |= {"device": torch.cuda.get_device_name(), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
        document |= {"gpus": published(), "commit": revision(), "environment": environment()}
    document.setdefault("commands", []).append(command_line())
    keep(given.out, document)
    line(f"{RANKS} ranks joined, {document['device']}", every=True)
    for name, run in sections(given, device).items():
        if given.only is not None and name not in given.only:
            continue
        if late(given.limit):
            document.setdefault(name, "no time left")
            line(f"{name}: no time left")
        else:
            found: dict[str, Any] = {}
            document[name] = found
            with section(found, "failed"):
                run(found)
        flush()
    line("done", every=True)
    if RANKS > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
