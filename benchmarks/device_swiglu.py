"""SwiGLU on one GPU: bits against the golden model, then time against a device copy in the same run.

    python benchmarks/device_swiglu.py --json swiglu.json      check and time the kernels as they ship
    python benchmarks/device_swiglu.py --sweep                 time other cuts
    python benchmarks/device_swiglu.py --once                  launch each once and leave: for a profiler

Time and bytes as in `device.py`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import refnum
from benchmarks.device import REPEATS, SETS, as_bits, copy_bandwidth, fill_bandwidth, time_calls
from benchmarks.device_cases import K, M, noise
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver
from refnum.gpu.ops import swiglu

CUTS = {
    "swiglu_quantize": [swiglu.Stay(*cut) for cut in ((384, 2), (256, 3), (512, 2), (256, 4), (1024, 1, 0), (512, 1))],
    "swiglu_backward": [
        swiglu.Stay(threads, blocks, ahead, stream)
        for threads, blocks in ((256, 3), (256, 4), (256, 5), (256, 6), (512, 2), (512, 3))
        for ahead in (0, 1) for stream in (0, 1)
    ],
}  # fmt: skip


class Case(NamedTuple):
    """One line: operation, kernel function, arrays from a seed, options."""

    operation: str
    function: str
    make: Callable[[int], tuple[Any, ...]]
    options: dict[str, Any]


def bf16(seed: int) -> Any:
    return noise((M, K), "bfloat16", seed)


def prob(seed: int) -> Any:
    return cupy.random.default_rng(seed).random(M, np.float32)


def forward(seed: int) -> tuple[Any, ...]:
    return bf16(2 * seed), bf16(2 * seed + 1)


def padding(seed: int) -> tuple[Any, ...]:
    return cupy.zeros((M, K), np.uint16), bf16(seed)


def pruned(seed: int) -> tuple[Any, ...]:
    gate, up = forward(seed)
    gate *= cupy.random.default_rng(seed).integers(0, 2, (M, K), dtype=np.uint16)
    return gate, up


def halves(seed: int) -> tuple[Any, ...]:
    both = noise((M, 2 * K), "bfloat16", seed)
    return both[:, :K], both[:, K:]


def weighted(make: Callable[[int], tuple[Any, ...]]) -> Callable[[int], tuple[Any, ...]]:
    return lambda seed: (*make(seed), prob(seed))


def backward(dtype: str) -> Callable[[int], tuple[Any, ...]]:
    return lambda seed: (noise((M, K), dtype, 50 + seed), *forward(seed))


FP8, MXFP4 = {"to": "fp8"}, {"to": "mxfp4"}
OCP = {"to": "mxfp4", "profile": "OCP"}
Q, B = "swiglu_quantize", "swiglu_backward"
CASES = {
    "SwiGLU -> FP8": Case(Q, "swiglu_quantize_fp8", forward, FP8),
    "SwiGLU -> FP8, prob": Case(Q, "swiglu_quantize_fp8_weighted", weighted(forward), FP8),
    "SwiGLU -> FP8, gate and up in one array": Case(Q, "swiglu_quantize_fp8", halves, FP8),
    "SwiGLU -> FP8, half the gates zero": Case(Q, "swiglu_quantize_fp8", pruned, FP8),
    "SwiGLU -> FP8, all gates zero": Case(Q, "swiglu_quantize_fp8", padding, FP8),
    "SwiGLU -> MXFP4": Case(Q, "swiglu_quantize_mxfp4", forward, MXFP4),
    "SwiGLU -> MXFP4, prob": Case(Q, "swiglu_quantize_mxfp4_weighted", weighted(forward), MXFP4),
    "SwiGLU -> MXFP4, floor": Case(Q, "swiglu_quantize_mxfp4_saturate", forward, OCP),
    "SwiGLU -> MXFP4, gate and up in one array": Case(Q, "swiglu_quantize_mxfp4", halves, MXFP4),
    "SwiGLU -> MXFP4, half the gates zero": Case(Q, "swiglu_quantize_mxfp4", pruned, MXFP4),
    "SwiGLU -> MXFP4, all gates zero": Case(Q, "swiglu_quantize_mxfp4", padding, MXFP4),
    "gradients, BF16": Case(B, "swiglu_backward_bfloat16", backward("bfloat16"), {}),
    "gradients, BF16, prob": Case(B, "swiglu_backward_bfloat16_weighted", weighted(backward("bfloat16")), {}),
    "gradients, FP32": Case(B, "swiglu_backward_float32", backward("float32"), {}),
    "gradients, FP32, prob": Case(B, "swiglu_backward_float32_weighted", weighted(backward("float32")), {}),
}


def arrays(results: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x for x in results if x is not None)


def mismatches(case: Case, inputs: tuple[Any, ...], results: tuple[Any, ...]) -> int:
    """Compare all elements with the golden model run on the same device, rows at a time."""
    wrong, step = 0, 1024
    for row in range(0, M, step):
        part = [x[row : row + step] for x in inputs]
        for want, got in zip(arrays(getattr(refnum, case.operation)(*part, **case.options)), results, strict=True):
            wrong += int((as_bits(want) != as_bits(got[row : row + step])).sum())
    return wrong


def run(name: str, options: argparse.Namespace, copy: float) -> dict[str, Any]:
    case = CASES[name]
    function = getattr(ops, case.operation)
    inputs = [case.make(seed) for seed in range(SETS)]
    outs = [arrays(function(*x, **case.options)) for x in inputs]
    moved = sum(x.size * x.itemsize for x in inputs[0]) + sum(x.nbytes for x in outs[0])
    row: dict[str, Any] = {"name": name, "operation": case.operation, "bytes": moved, "elements": M * K}
    if not options.no_check:
        for x in (x for out in outs for x in out):
            as_bits(x)[...] = 0xA5
        for x, out in zip(inputs, outs, strict=True):
            function(*x, **case.options, out=out)
        row["compared"] = SETS * sum(x.size for x in outs[0])
        row["mismatches"] = sum(mismatches(case, x, out) for x, out in zip(inputs, outs, strict=True))
    same = copy_bandwidth(moved // 2 & -(1 << 20))
    calls = [lambda x=x, out=out: function(*x, **case.options, out=out) for x, out in zip(inputs, outs, strict=True)]
    shipped = swiglu.TUNING[case.operation]
    for cut in [shipped, *(CUTS[case.operation] if options.sweep else [])]:
        swiglu.TUNING[case.operation] = cut
        plans.forget()
        times = time_calls(calls)
        median = statistics.median(times)
        entry = {
            "cut": " ".join(cut.defines),
            "us": round(median, 2), "us_min": round(min(times), 2), "us_max": round(max(times), 2),
            "tb_s": round(moved / median * 1e-6, 3), "share": round(moved / (median * 1e-6) / copy, 4),
            "share_of_copy_of_same_bytes": round(moved / (median * 1e-6) / same, 4),
            **driver().resources(driver().function(case.operation, case.function, 0, cut.defines)),
        }  # fmt: skip
        row.setdefault("sweep", []).append(entry)
    for entry in row["sweep"][:1] + sorted(row["sweep"][1:], key=lambda e: e["us"])[:7]:
        print(
            f"{name:42s} {entry['us']:7.1f} us ({entry['us_min']:.1f}..{entry['us_max']:.1f}) {entry['tb_s']:.2f} TB/s "
            f"{100 * entry['share']:5.1f} % {100 * entry['share_of_copy_of_same_bytes']:5.1f} % of a copy as long "
            f"{entry['registers']} registers {entry['local_bytes']} local mismatches {row.get('mismatches')} "
            f"{entry['cut']}",
            flush=True,
        )
    swiglu.TUNING[case.operation] = shipped
    plans.forget()
    row.update(row["sweep"][0])
    if not options.sweep:
        del row["sweep"]
    return row


def jobs(sweep: bool) -> Iterator[tuple[str, swiglu.Stay]]:
    for kernel, cut in swiglu.TUNING.items():
        yield from ((kernel, each) for each in {cut, *(CUTS[kernel] if sweep else [])})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="lines to run, by name or operation")
    for flag in ("--sweep", "--no-check", "--once"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [name for name, case in CASES.items() if not options.only or {name, case.operation} & set(options.only)]
    arch = build.architecture(driver().capability(0))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: build.compiled(job[0], arch, defines=job[1].defines), jobs(options.sweep)))
    if options.once:
        for name in names:
            case = CASES[name]
            getattr(ops, case.operation)(*case.make(0), **case.options)
        cupy.cuda.Device().synchronize()
        return 0
    copy, properties = copy_bandwidth(), cupy.cuda.runtime.getDeviceProperties(0)
    about = {
        "device": properties["name"].decode(), "multiprocessors": properties["multiProcessorCount"],
        "driver_cuda": cupy.cuda.runtime.driverGetVersion(), "nvrtc": build.nvrtc().version,
        "cupy": cupy.__version__, "numpy": np.__version__, "python": platform.python_version(),
        "refnum": refnum.__version__, "date": datetime.date.today().isoformat(), "shape": [M, K],
        "command": "python " + " ".join(["benchmarks/device_swiglu.py", *sys.argv[1:]]), "repeats": REPEATS,
        "copy_bytes_per_second": copy, "fill_bytes_per_second": fill_bandwidth(),
    }  # fmt: skip
    print(f"{about['device']}, copy {copy / 1e12:.3f} TB/s, fill {about['fill_bytes_per_second'] / 1e12:.3f} TB/s")
    rows = []
    for name in names:
        rows.append(run(name, options, copy))
        cupy.get_default_memory_pool().free_all_blocks()
    about["copy_again_bytes_per_second"] = copy_bandwidth()
    print(f"copy again {about['copy_again_bytes_per_second'] / 1e12:.3f} TB/s")
    if options.json:
        options.json.write_text(json.dumps({"about": about, "kernels": rows}, indent=1) + "\n")
    return int(any(row.get("mismatches") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
