"""The layer on one or several GPUs: every bit against the golden layer, two runs, the witness, and times.

    python benchmarks/moe_layer.py --out DIR
    torchrun --nproc-per-node 2 benchmarks/moe_layer.py --out DIR

Each rank computes the golden step of all ranks with CuPy from the same seeds and compares its own tensors. Each
rank writes `moe_layer_<ranks>_<rank>.json`. `--device cpu --small` runs everything that needs no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refnum.gpu import torch as launchers
from refnum.training import compare, golden
from refnum.training.layer import MoELayer, first_weights
from refnum.training.policies import get_policy
from refnum.training.witness import Witness

START = time.perf_counter()
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
SEED = 17
ORDERS = ("promote128", "split2", "split3", "split4", "split5", "split6", "split7", "split8")


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


CHECKED = {
    "even": Shape(2048, 1024, 16, 4, 2048),
    "ragged": Shape(2048, 1024, 16, 4, 2048, skew=2.0, barred=(0, 5), idle=(1,)),
    "few": Shape(2048, 1024, 16, 4, 3),
}
SMALL = {"even": Shape(128, 128, 4, 2, 30), "ragged": Shape(128, 128, 4, 2, 30, 2.0, (0,), (1,))}
TIMED = (Shape(7168, 2048, 16, 8, 4096), Shape(7168, 2048, 16, 8, 8192), Shape(2048, 1024, 16, 4, 8192))


def line(text: str) -> None:
    """Print a line of rank 0 with the seconds since the start."""
    if RANK == 0:
        print(f"[{time.perf_counter() - START:6.1f}] {text}", flush=True)


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
                    products=products, witness=witness, seconds=120)  # fmt: skip


def step(layer: MoELayer, given: tuple[torch.Tensor, ...], device: str) -> dict[str, Any]:
    """Run one step and return the layer's record."""
    x, experts, probs, grad = (one.to(device) for one in given)
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


class Orders:
    """An observer that finds in which order of N19.4 a library computed each product."""

    def __init__(self) -> None:
        self.found: dict[str, Counter[str]] = {}

    def enter(self, layer: Any, backward: bool) -> None:
        """Nothing to note."""

    def conversion(self, name: str, arguments: Any, named: Any, results: Any) -> None:
        """Conversions are compared as tensors."""

    def forward(self, layer: Any, inputs: Any, found: Any) -> None:
        """Nothing to keep."""

    def backward(self, layer: Any, kept: Any, found: Any) -> None:
        """Nothing to compare."""

    def product(self, name: str, operands: Any, result: Any) -> None:
        """Find the first order that gives every bit of a product."""
        a, b = operands()
        key = f"{name.partition('[')[0]} {len(a[0])}x{len(b[0])}x{a[0].shape[1]}"
        self.found.setdefault(key, Counter())[self._order(a, b, result)] += 1

    def _order(self, a: Any, b: Any, result: Any) -> str:
        scales = [x[1].contiguous() for x in (a, b)]
        for order in ORDERS[: -(-a[0].shape[1] // 128)]:
            want = launchers.matmul_fp8(a[0], b[0], *scales, order, torch.bfloat16)
            if torch.equal(want.view(torch.int16), result.contiguous().view(torch.int16)):
                return order
        return "no named order"


class Traffic:
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

    def forward(self, layer: Any, inputs: Any, found: Any) -> None:
        """Nothing to keep."""

    def backward(self, layer: Any, kept: Any, found: Any) -> None:
        """Nothing to compare."""


def _traffic(values: Any) -> str:
    tensors = [one for one in values if isinstance(one, torch.Tensor)]
    return " ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}={t.numel() * t.element_size()}B"
                    for t in tensors)  # fmt: skip


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
        got, want = compare.to_array(record[f"grad.{name}"], getattr(backward, name)), getattr(backward, name)
        if not bool((got.view(f"u{want.dtype.itemsize}") == want.view(f"u{want.dtype.itemsize}")).all()):
            wrong[f"grad.{name}"] = int((got != want).sum())
    found: dict[str, Any] = {
        "elements": compare.elements(forward) + compare.elements(backward),
        "differing": wrong,
        "two runs differ in": [name for name in record if not _equal(record[name], again[name])],
        "rows of experts": list(forward.splits),
        "bytes of a payload row": int(forward.payload.shape[1]),
    }
    if device != "cpu" and products == "library" and get_policy(policy).products == "fp8":
        orders = Orders()
        step(make(shape, policy, device, products, orders), inputs(shape, RANK), device)
        found["orders"] = {name: dict(counts) for name, counts in sorted(orders.found.items())}
    return found


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(map(_equal, one, other))
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    return torch.equal(one.contiguous().flatten().view(torch.uint8), other.contiguous().flatten().view(torch.uint8))


def checks(shapes: dict[str, Shape], device: str) -> dict[str, Any]:
    """Check every shape, policy and way of products."""
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        for policy in ("mxfp4", "fp8", "bf16") if name == "even" and RANKS == 1 else ("mxfp4",):
            begin = time.perf_counter()
            made = model(shape, policy, device)
            golden_s = time.perf_counter() - begin
            for products in ("model", "library") if device != "cpu" and policy != "bf16" else ("library",):
                key = f"{name} {policy} {products}"
                found[key] = check(shape, policy, products, device, made) | {"golden_s": round(golden_s, 2)}
                line(f"{key}: {found[key]['elements']} elements, differing {found[key]['differing'] or 0}, golden "
                     f"{golden_s:.1f} s")  # fmt: skip
            del made
            _free(device)
    return found


def _free(device: str) -> None:
    if device != "cpu":
        library(device).get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()


def timed(run: Callable[[], Any], repeats: int, device: str) -> list[float]:
    """Return the milliseconds of each repeat, after two that warm up."""
    for _ in range(2):
        run()
    found = []
    for _ in range(repeats):
        if device == "cpu":
            begin = time.perf_counter()
            run()
            found.append((time.perf_counter() - begin) * 1e3)
            continue
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        run()
        events[1].record()
        torch.cuda.synchronize()
        found.append(events[0].elapsed_time(events[1]))
    return found


def times(shapes: tuple[Shape, ...], device: str, repeats: int) -> dict[str, Any]:
    """Measure forward and backward of the layer under each policy: milliseconds, saved bytes and memory."""
    found: dict[str, Any] = {}
    for shape in shapes:
        for policy in ("bf16", "fp8", "mxfp4"):
            key = f"{policy} {shape.tokens}x{shape.hidden}x{shape.ffn} top {shape.top} of {shape.experts}"
            with section(found, key):
                found[key] = time_layer(shape, policy, device, repeats)
                line(f"{key}: {found[key]}")
            _free(device)
    return found


def time_layer(shape: Shape, policy: str, device: str, repeats: int) -> dict[str, Any]:
    """Measure one layer."""
    layer = make(shape, policy, device, "library")
    x, experts, probs, grad = (one.to(device) for one in inputs(shape, RANK))
    x, probs = x.requires_grad_(), probs.requires_grad_()
    before = torch.cuda.memory_allocated() if device != "cpu" else 0
    out = layer(x, (experts, probs))
    live = (torch.cuda.memory_allocated() if device != "cpu" else 0) - before - out.numel() * 2
    out.backward(grad)
    del out
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()

    def whole() -> None:
        x.grad = probs.grad = layer.w1.grad = layer.w2.grad = None
        layer(x, (experts, probs)).backward(grad)

    both = timed(whole, repeats, device)
    with torch.no_grad():
        ahead = timed(lambda: layer(x, (experts, probs)), repeats, device)
    peak = torch.cuda.max_memory_allocated() - before if device != "cpu" else 0
    layer.record = {}
    layer(x, (experts, probs))
    saved = [layer.record[f"forward.saved_{name}"] for name in ("input", "activation", "fc2_input")]
    sizes = [sum(one.numel() * one.element_size() for one in (s if isinstance(s, tuple) else (s,))) for s in saved]
    weights = [one for name in ("fc1_weight", "fc2_weight") for one in layer.record[f"forward.{name}"]]
    rows = sum(layer.record["forward.splits"])
    return {
        "ms": round(float(np.median(both)), 3), "ms_least": round(min(both), 3),
        "forward_ms": round(float(np.median(ahead)), 3), "routed_rows": rows,
        "filled_rows": int(layer.record["forward.prob"].numel()), 
        "received_rows": len(layer.record["forward.received"]),
        "saved_bytes": dict(zip(("input", "activation", "fc2_input"), sizes, strict=True)),
        "saved_bytes_a_routed_token": round(sum(sizes) / max(rows, 1), 1), "live_bytes_after_forward": live,
        "weight_bytes": sum(one.numel() * one.element_size() for one in weights), "peak_bytes": peak,
        "tokens_a_second": round(shape.tokens / float(np.median(both)) * 1e3),
    }  # fmt: skip


def exchanges(device: str, rows: int = 32768, hidden: int = 7168, repeats: int = 20) -> dict[str, Any]:
    """Measure the all-to-all of rows in each format."""
    found: dict[str, Any] = {}
    widths = {"mxfp4": hidden * 17 // 32, "fp8": hidden + hidden // 128, "fp8, float32 scales": hidden * 33 // 32,
              "bf16": hidden * 2}  # fmt: skip
    for name, width in widths.items():
        given = torch.zeros(rows, width, dtype=torch.uint8, device=device)
        out = torch.empty_like(given)
        ms = timed(lambda out=out, given=given: dist.all_to_all_single(out, given), repeats, device)
        found[name] = {"bytes_a_row": width, "us": round(float(np.median(ms)) * 1e3, 1)}
        line(f"all-to-all of {rows} rows, {name}: {found[name]}")
    return found


def witnessed(shape: Shape, device: str, steps: int, folder: Path) -> dict[str, Any]:
    """Run steps under a witness that looks at everything it can, and measure what the default one costs."""
    found: dict[str, Any] = {}
    every = Witness(folder / f"witness{RANK}", rate=1.0, every=1, rows=4, share=1.0, seed=RANK)
    layer, given = make(shape, "mxfp4", device, "library", every), inputs(shape, RANK)
    for number in range(steps):
        every.step = number
        step(layer, given, device)
    found["everything"] = {"summary": every.summary(), "orders": dict(every.orders), "judged": dict(every.judged),
                           "mismatches": list(map(str, every.mismatches[:5]))}  # fmt: skip
    line(every.summary())
    usual = Witness(folder / f"witness{RANK}", seed=RANK)
    ms = {}
    for name, witness in (("without", None), ("with", usual), ("without again", None)):
        layer = make(shape, "mxfp4", device, "library", witness)
        x, experts, probs, grad = (one.to(device) for one in given)
        x = x.requires_grad_()
        begin = time.perf_counter()
        for number in range(1, 20 * steps):
            usual.step = number
            layer(x, (experts, probs)).backward(grad)
        if device != "cpu":
            torch.cuda.synchronize()
        ms[name] = (time.perf_counter() - begin) / (20 * steps - 1) * 1e3
    found["usual"] = {"ms": ms, "summary": usual.summary(), "spent_s": usual.spent}
    line(f"witness at its default rate: {found['usual']}")
    return found


def profile(shape: Shape, policy: str, device: str) -> list[dict[str, Any]]:
    """Return the kernels of a step by their time."""
    layer, given = make(shape, policy, device, "library"), [one.to(device) for one in inputs(shape, RANK)]
    x, experts, probs, grad = given
    x = x.requires_grad_()
    for _ in range(2):
        layer(x, (experts, probs)).backward(grad)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as run:
        layer(x, (experts, probs)).backward(grad)
        torch.cuda.synchronize()
    rows = [{"kernel": one.key[:120], "calls": one.count, "us": round(one.device_time_total, 1)}
            for one in run.key_averages() if one.device_time_total > 0]  # fmt: skip
    return sorted(rows, key=lambda row: -row["us"])[:40]


def strided(device: str) -> dict[str, Any]:
    """Say whether the library takes columns of several experts as they lie, without the copy that we make."""
    found = {}
    whole = [torch.randn(rows, 4096, device=device).to(torch.float8_e4m3fn) for rows in (2048, 1024)]
    cut = [one[:, 512:1536] for one in whole]
    scales = [torch.ones(8, len(one), device=device) for one in whole]
    for name, (a, b) in (("copied", [one.contiguous() for one in cut]), ("as they lie", cut)):
        with section(found, name):
            found[name] = torch._scaled_mm(a, b.t(), scales[0].t(), scales[1], out_dtype=torch.bfloat16).float()
    results = [one for one in found.values() if isinstance(one, torch.Tensor)]
    return {"taken": len(results) == 2, "equal": len(results) == 2 and torch.equal(*results),
            "errors": {name: one for name, one in found.items() if isinstance(one, dict)}}  # fmt: skip


@contextlib.contextmanager
def section(document: dict[str, Any], name: str) -> Iterator[None]:
    """Keep an error of a section in the document, so that the others run."""
    try:
        yield
    except Exception as error:  # whatever it is, the rest of the rented time is used
        document[name] = {"error": f"{type(error).__name__}: {error}"[:500], "trace": traceback.format_exc()[-2000:]}
        line(f"{name}: {document[name]['error']}")


def main() -> None:
    """Run the sections and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="small shapes")
    parser.add_argument(
        "--only", nargs="*", help="sections: traffic, checks, times, exchanges, witness, strided, profile"
    )
    given = parser.parse_args()
    device = "cpu" if given.device == "cpu" else f"cuda:{int(os.environ.get('LOCAL_RANK', 0))}"
    if device != "cpu":
        torch.cuda.set_device(device)
        library(device).cuda.Device(torch.cuda.current_device()).use()
    if RANKS > 1:
        dist.init_process_group("gloo" if device == "cpu" else "nccl", timeout=datetime.timedelta(seconds=180))
    given.out.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"ranks": RANKS, "torch": torch.__version__, "device": str(device)}
    if device != "cpu":
        document["device"] = torch.cuda.get_device_name()
    shapes = SMALL if given.small else CHECKED
    slow = (next(iter(SMALL.values())),) if given.small else TIMED
    sections: dict[str, Callable[[], Any]] = {
        "traffic": lambda: traffic(shapes["even"], device),
        "checks": lambda: checks(shapes, device),
        "times": lambda: times(slow, device, 2 if given.small else 10),
        "witness": lambda: witnessed(shapes["even"], device, 1 if given.small else 3, given.out),
    }
    if RANKS > 1:
        sections["exchanges"] = lambda: exchanges(device, *((64, 128, 2) if given.small else ()))
    if device != "cpu":
        sections["strided"] = lambda: strided(device)
        sections["profile"] = lambda: {policy: profile(slow[0], policy, device) for policy in ("mxfp4", "fp8", "bf16")}
    for name, run in sections.items():
        if given.only is None or name in given.only:
            with section(document, name):
                document[name] = run()
            _write(given.out, document)
    if RANKS > 1:
        dist.destroy_process_group()
    line("done")


def _write(folder: Path, document: dict[str, Any]) -> None:
    """Write what there is; every rank its own file, since each compared its own tensors."""
    path = folder / f"moe_layer_{RANKS}_{RANK}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(document, indent=1, default=str), encoding="utf-8")
    temporary.rename(path)


if __name__ == "__main__":
    main()
