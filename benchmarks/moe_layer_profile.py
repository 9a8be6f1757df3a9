"""Where a layer's step spends its time, for `moe_layer.py`: kernels by kind, beside the least time that each needs.

The least time of a conversion is its bytes at the speed of a copy, that of a product its operations at the speed of the
best large product or its bytes, that of an exchange its bytes at the speed of the best exchange; all are measured here.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from moe_layer_costs import POLICIES, Bench, timed
from moe_layer_observers import Limits
from moe_layer_tools import RANKS, Shape, free, late, line, section

from refnum.training.policies import get_policy

KINDS = (
    ("exchange", r"nccl"),
    ("products", r"nvjet|gemm|cutlass|matmul|splitK|cublas"),
    ("swiglu_backward", r"swiglu_backward"),
    ("swiglu_quantize", r"swiglu"),
    ("columns, turned weights", r"columns|transpos"),
    ("permute_pad, permute_unpack", r"^permute_"),
    ("unpermute", r"unpermute"),
    ("quantize_payload", r"payload"),
    ("mxfp4_to_fp8", r"mxfp4_to_fp8|recast"),
    ("quantize_fp8_tiles", r"quantize_fp8|fp8_tiles"),
    ("quantize_mxfp4", r"quantize_mxfp4|mxfp4"),
)
"""Kind -> what its kernels' names have; the first that fits counts. What fits none is torch's own."""
NAMES = {"mxfp4_to_fp8_columns": "columns, turned weights", "fp8_columns": "columns, turned weights",
         "permute_pad": "permute_pad, permute_unpack", "permute_unpack": "permute_pad, permute_unpack",
         "dequantize_mxfp4": "quantize_mxfp4", "dequantize_fp8_tiles": "quantize_fp8_tiles"}  # fmt: skip
"""Operation -> kind, where they are not named alike."""
STEPS = 3


def profile(found: dict[str, Any], shape: Shape, device: str, limit: float) -> None:
    """Return the kernels of a step under each policy by their time, and the least times beside them."""
    with section(found, "speeds"):
        found["speeds"] = speeds(device)
        line(f"speeds: {found['speeds']}")
    found["shape"] = str(shape)
    for policy in POLICIES:
        if late(limit):
            found[policy] = "no time left"
            continue
        with section(found, policy):
            found[policy] = _profile(shape, policy, device, found["speeds"])
            line(f"{policy}: { {name: one for name, one in found[policy].items() if name != 'kernels'} }")
        free(device)


def speeds(device: str) -> dict[str, float]:
    """Return bytes a second of a copy (both ways) and of an exchange (sent to others), and operations a second."""
    size = 8192
    x, y = (torch.zeros(1 << 30, dtype=torch.uint8, device=device) for _ in range(2))
    found = {"copy": 2 * x.nbytes / _seconds(partial(y.copy_, x), device)}
    if RANKS > 1:
        part = x.nbytes * (RANKS - 1) / RANKS
        found["exchange"] = part / _seconds(partial(dist.all_to_all_single, y, x), device)
    a, b = (torch.randn((size, size), device=device, dtype=torch.bfloat16) for _ in range(2))
    found["bf16"] = 2 * size**3 / _seconds(lambda: a @ b.t(), device)
    codes = [one.to(torch.float8_e4m3fn) for one in (a, b)]
    one = torch.ones((), device=device)
    run = lambda: torch._scaled_mm(codes[0], codes[1].t(), one, one, out_dtype=torch.bfloat16)  # noqa: E731
    found["fp8"] = 2 * size**3 / _seconds(run, device)
    return found


def _seconds(run: Any, device: str) -> float:
    return float(np.median(timed(run, 5, device, 4))) / 1e3


def _profile(shape: Shape, policy: str, device: str, known: dict[str, float]) -> dict[str, Any]:
    bench = Bench(shape, policy, device)
    fp8 = get_policy(policy).operands == "fp8"
    limits = Limits(known["copy"], known["fp8" if fp8 else "bf16"])
    bench.layer.edges.observer = limits
    bench.whole()
    bench.layer.edges.observer = None
    if fp8:  # both weights are turned round, past the observer
        size = 2 * sum(one.numel() for one in (bench.layer.w1, bench.layer.w2))
        limits.bytes["columns, turned weights"] += size
        limits.least["columns, turned weights"] += size / known["copy"]
    for _ in range(2):
        bench.whole()
    wall = float(np.median(timed(bench.whole, 5, device)))
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as run:
        for _ in range(STEPS):
            bench.whole()
        torch.cuda.synchronize()
    rows = [{"kernel": one.key[:110], "calls": one.count / STEPS, "us": round(one.self_device_time_total / STEPS, 1)}
            for one in run.key_averages()
            if one.self_device_time_total > 0 and not one.key.startswith("nccl:")]  # fmt: skip
    rows.sort(key=lambda row: -row["us"])
    return {
        "wall_ms": round(wall, 3), "kernels_ms": round(sum(row["us"] for row in rows) / 1e3, 3),
        "kinds": _kinds(rows, limits, shape, policy, known), "kernels": rows[:30],
    }  # fmt: skip


def _kinds(
    rows: list[dict[str, Any]], limits: Limits, shape: Shape, policy: str, known: dict[str, float]
) -> dict[str, dict[str, float]]:
    """Return milliseconds of each kind of kernel, and its least milliseconds where it has any."""
    spent: Counter[str] = Counter()
    for row in rows:
        spent[kind_of(row["kernel"])] += row["us"] / 1e3
    least: Counter[str] = Counter()
    for name, seconds in limits.least.items():
        least["products" if name.startswith("products") else NAMES.get(name, name)] += seconds * 1e3
    if "exchange" in known:
        least["exchange"] = _exchanged(shape, policy) / known["exchange"] * 1e3
    return {name: {"ms": round(spent[name], 4), "least_ms": round(least[name], 4)}
            for name in sorted({*spent, *least}, key=lambda name: -spent[name])}  # fmt: skip


def kind_of(kernel: str) -> str:
    """Return the kind of a kernel by its name."""
    return next((kind for kind, words in KINDS if re.search(words, kernel)), "torch's own")


def _exchanged(shape: Shape, policy: str) -> float:
    """Return the bytes of payloads and gradients that a rank sends to others in a step, if each has all tokens."""
    wide = {"bfloat16": 2 * shape.hidden, "fp8": shape.hidden * 129 // 128, "mxfp4": shape.hidden * 17 // 32}
    forward = wide[get_policy(policy).dispatched]
    return (RANKS - 1) * shape.tokens * (forward + 3 * 2 * shape.hidden)
