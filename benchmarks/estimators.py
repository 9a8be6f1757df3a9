"""DGE, OCC and Stable-SPAM's step on one GPU: bits of large tensors against the model, and speed beside a copy.

    python benchmarks/estimators.py --out FILE.json [--tune]

The bits: 4096 x 7168 of several distributions on the device. The speed: at 32768 x 7168, bytes read and written a
second against those of a copy; with --tune under other cuts of the launches too.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np
from device_time import copy_rate, equal, seconds

import refnum
from refnum.gpu import ops
from refnum.gpu.device import plans
from refnum.gpu.ops import estimators, optimisers
from refnum.gpu.ops.rowwise import Grid

M, K = 32768, 7168
CUTS = [Grid(threads, unroll, 8, stream) for threads in (256, 512) for unroll in (1, 2, 4) for stream in (0, 1)]


class Timed(NamedTuple):
    """A call, bytes read and written for each element, and the kernel file whose cut may change."""

    call: Callable[[], Any]
    bytes: float
    kernel: str


def bfloat16(x: Any) -> Any:
    """float32 as bfloat16 bits, cut off."""
    return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def bits(report: dict[str, Any], rows: int = 4096) -> None:
    """Compare kernels with the model on the device."""
    rng, wrong, count = cupy.random.default_rng(1), [], 0
    normal = rng.standard_normal((rows, K), dtype=np.float32)
    every = rng.integers(0, 1 << 32, (rows // 4, K), dtype=np.uint32).view(np.float32)
    for x in (normal, 2 * normal, every, bfloat16(2 * normal), bfloat16(every)):
        for target in ("bfloat16", "float32"):
            for compat in ("paper", "ms-amp"):
                for k in (5, 3) if x is every else (5,):
                    given: dict[str, Any] = {"k": k, "target": target, "compat": compat}
                    count += 1
                    wrong += [] if equal(refnum.dge(x, **given), ops.dge(x, **given)) else [f"dge {x.dtype} {given}"]
        for axis in ("tensor", "token", "channel"):
            for alpha in ((99, 100), (999, 1000)):
                count += 1
                good = equal(refnum.occ(x[:1024], alpha, axis), ops.occ(x[:1024], alpha, axis))
                wrong += [] if good else [f"occ {x.dtype} {alpha} {axis}"]
    weight = normal[:1024]
    state = refnum.StableSpamState(0.1 * weight, weight * weight, 3, 3, np.float32(2), np.float32(9), np.float32(99))
    factors, _, _ = refnum.stable_spam_factors(state, every[:1024], norm=np.float32(2600), largest=np.float32(5))
    for forget in ("", "before", "after"):
        step = (2 * weight, weight, state.m, state.v, cupy.asarray(factors.array), forget)
        count += 1
        good = equal(refnum.stable_spam_apply(*step), optimisers.stable_spam_apply(*step))
        wrong += [] if good else [f"stable_spam {forget}"]
    report |= {"calls": count, "wrong": wrong}
    print(f"{count} calls compared, {len(wrong)} wrong", wrong[:5], flush=True)


def calls() -> dict[str, Timed]:
    """What is timed."""
    x = cupy.random.default_rng(1).standard_normal((M, K), dtype=np.float32)
    half = bfloat16(x)
    wide, narrow = [cupy.empty_like(x) for _ in range(3)], [cupy.empty_like(half) for _ in range(2)]
    found = {
        "dge BF16 -> BF16": Timed(lambda: ops.dge(half, out=narrow[0]), 4, "dge"),
        "dge BF16 -> FP32": Timed(lambda: ops.dge(half, target="float32", out=wide[0]), 6, "dge"),
        "dge FP32 -> BF16": Timed(lambda: ops.dge(x, out=narrow[0]), 6, "dge"),
        "dge FP32 -> FP32": Timed(lambda: ops.dge(x, target="float32", out=wide[0]), 8, "dge"),
        "dge FP32 -> FP32, ms-amp": Timed(
            lambda: ops.dge(x, target="float32", compat="ms-amp", out=wide[0]), 8, ""),
        "dge FP32 -> FP32, k = 3": Timed(lambda: ops.dge(x, 3, target="float32", out=wide[0]), 8, ""),
    }  # fmt: skip
    for axis, vectors in (("tensor", 1), ("token", M), ("channel", K)):
        for name, given, to in (("BF16", half, narrow), ("FP32", x, wide)):
            out = (*to[:2], cupy.empty((2, vectors), given.dtype))
            size = given.dtype.itemsize * 3
            found[f"occ {name}, {axis}"] = Timed(
                functools.partial(ops.occ, given, (99, 100), axis, out=out), size, "occ"
            )
    factors = cupy.asarray(np.array([1, 4, 4.5, 2, 2, 0.9, 0.1, 0.99, 0.01, 0.5, 1e-8, 1e-3], np.float32))
    state = 2 * x, 0.1 * x, x * x
    found["stable_spam"] = Timed(
        lambda: optimisers.stable_spam_apply(x, *state, factors, out=tuple(wide)), 28, "stable_spam"
    )
    return found


def with_cut(kernel: str, cut: Grid | None, call: Callable[[], Any]) -> float:
    """The seconds of a call, under another cut of its kernel."""
    shipped = dict(estimators.TUNING), optimisers.GRID
    if cut and kernel == "stable_spam":
        optimisers.GRID = cut._replace(part=4)
    elif cut:
        estimators.TUNING[kernel] = cut
    plans.forget()
    took = seconds(call)
    estimators.TUNING.update(shipped[0])
    optimisers.GRID = shipped[1]
    plans.forget()
    return took


def clamps(report: dict[str, Any]) -> None:
    """The parts of a call of OCC: how long the clamp takes by itself, from a profile of its launches."""
    half = bfloat16(cupy.random.default_rng(1).standard_normal((M, K), dtype=np.float32))
    launched: list[tuple[str, float]] = []
    fire = estimators._launch

    def timed(call: Any, name: str, blocks: int, arguments: Any) -> None:
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        fire(call, name, blocks, arguments)
        stop.record()
        stop.synchronize()
        launched.append((name, cupy.cuda.get_elapsed_time(start, stop) * 1e3))

    estimators._launch = timed
    for axis in ("tensor", "token", "channel"):
        for _ in range(2):
            launched.clear()
            plans.forget()
            ops.occ(half, (99, 100), axis)
        report[f"launches {axis}"] = list(launched)
        print(axis, ", ".join(f"{name} {us:.0f} us" for name, us in launched), flush=True)
    estimators._launch = fire


def speeds(report: dict[str, Any], tune: bool) -> None:
    """Share of a copy's bytes a second."""
    copy = copy_rate(M * K * 2)
    report |= {"copy": copy, "speeds": []}
    for label, timed in calls().items():
        for cut in (None, *(CUTS if tune and timed.kernel else ())):
            took = with_cut(timed.kernel, cut, timed.call)
            share = M * K * timed.bytes / took / copy
            words = " ".join(cut.defines) if cut else ""
            report["speeds"].append([label, words or "shipped", took, share])
            print(f"{label:26s} {took * 1e6:8.1f} us  {share:6.1%} of a copy  {words}", flush=True)


def main() -> None:
    """Run and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tune", action="store_true")
    chosen = parser.parse_args()
    report: dict[str, Any] = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()}
    bits(report)
    clamps(report)
    speeds(report, chosen.tune)
    chosen.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
