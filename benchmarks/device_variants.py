"""Stochastic rounding and scale layouts on one GPU: bits against the golden model, and time.

    python benchmarks/device_variants.py --json variants.json     check and time every line
    python benchmarks/device_variants.py --large                  more than 2**32 elements a call, compared in slices

Time and shares as benchmarks/device.py has them. Outputs are poisoned before the run that is compared.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import refnum
from benchmarks import device
from benchmarks.device import SETS, as_bits, copy_bandwidth, tuple_of
from benchmarks.device_cases import K, M, fp4, fp8, noise
from refnum import layouts
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver
from refnum.gpu.ops import rowwise

KEY = (0x0123456789ABCDEF, 7, 9)
STEP = 2048
LINES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "BF16 -> MXFP4": ("quantize_mxfp4", "bfloat16", {}),
    "BF16 -> MXFP4, stochastic, bits given": ("quantize_mxfp4", "bfloat16", {"profile": "STOCHASTIC", "rbits": True}),
    "BF16 -> MXFP4, stochastic, by key": ("quantize_mxfp4", "bfloat16", {"profile": "STOCHASTIC", "philox": KEY}),
    "FP16 -> MXFP4, stochastic, by key": ("quantize_mxfp4", "float16", {"profile": "STOCHASTIC", "philox": KEY}),
    "FP32 -> MXFP4, stochastic, by key": ("quantize_mxfp4", "float32", {"profile": "STOCHASTIC", "philox": KEY}),
    **{f"BF16 -> MXFP4, {to}": ("quantize_mxfp4", "bfloat16", {"layout_out": to}) for to in layouts.LAYOUTS[1:]},
    "MXFP4 -> BF16, packed_ue8m0": ("dequantize_mxfp4", "fp4", {"dtype": "bfloat16", "layout_in": "packed_ue8m0"}),
    "MXFP4 -> BF16, float32": ("dequantize_mxfp4", "fp4", {"dtype": "bfloat16", "layout_in": "float32"}),
    **{f"BF16 -> FP8, {to}": ("quantize_fp8_tiles", "bfloat16", {"layout_out": to}) for to in layouts.LAYOUTS[1:]},
    "BF16 -> FP8 128x128, float32": ("quantize_fp8_tiles", "bfloat16", {"tile": (128, 128), "layout_out": "float32"}),
    **{f"FP8 -> BF16, {at}": ("dequantize_fp8_tiles", "fp8", {"dtype": "bfloat16", "layout_in": at})
       for at in ("float32", "gemm_float32", "packed_ue8m0")},
    **{f"FP8 -> MXFP4, {at}": ("fp8_to_mxfp4", "fp8", {"layout_in": at, "layout_out": to})
       for at, to in (("float32", "bytes"), ("gemm_float32", "bytes"), ("packed_ue8m0", "packed_ue8m0"))},
    **{f"MXFP4 -> FP8, {to}": ("mxfp4_to_fp8", "fp4", {"layout_out": to})
       for to in ("float32", "gemm_float32", "packed_ue8m0")},
}  # fmt: skip
"""Name of the line -> (operation, what it reads, options); `rbits` stands for an array of random bytes."""


def make_inputs(what: str, options: dict[str, Any], seed: int) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """Return (inputs as the kernel takes them, the same with byte scales, random bytes or None)."""
    plain = (noise((M, K), what, seed),) if what not in ("fp8", "fp4") else fp8(seed) if what == "fp8" else fp4(seed)
    given, layout = plain, options.get("layout_in", "bytes")
    if layout != "bytes":
        given = (plain[0], layouts.scales_to_layout(plain[1], layout))
    rbits = None
    if options.get("rbits"):
        rbits = cupy.random.default_rng(seed).integers(0, 256, (M, K), dtype=np.uint8)
    return given, plain, rbits


def golden_slices(
    operation: str, plain: tuple[Any, ...], rbits: Any, options: dict[str, Any]
) -> Iterator[tuple[int, Any]]:
    """Yield (first row, the model's results in bytes) of STEP rows at a time."""
    rest = {name: value for name, value in options.items() if name not in ("layout_in", "layout_out", "rbits")}
    rows = plain[0].shape[0]
    for row in range(0, rows, STEP):
        more = dict(rest)
        if "philox" in rest:
            offset = row * plain[0].shape[1]
            more["philox"] = (*rest["philox"], offset)
        if rbits is not None:
            more["rbits"] = rbits[row : row + STEP]
        yield row, tuple_of(getattr(refnum, operation)(*(x[row : row + STEP] for x in plain), **more))


def mismatches(operation: str, plain: Any, rbits: Any, results: tuple[Any, ...], options: dict[str, Any]) -> int:
    """Compare codes slice by slice, and the scales in their layout at the end."""
    wrong, scales = 0, []
    for row, wants in golden_slices(operation, plain, rbits, options):
        mine = results[0][row : row + wants[0].shape[0]]
        wrong += int((as_bits(wants[0]) != as_bits(mine)).sum())
        scales += list(wants[1:])
    if scales:
        want = layouts.scales_to_layout(cupy.concatenate(scales), options.get("layout_out", "bytes"))
        wrong += int((as_bits(want) != as_bits(results[1])).sum())
    return wrong


def run(name: str, copy: float) -> dict[str, Any]:
    operation, what, options = LINES[name]
    sets = [make_inputs(what, options, seed) for seed in range(SETS)]
    calls = [{**options, **({} if rbits is None else {"rbits": rbits})} for _, _, rbits in sets]
    function = getattr(ops, operation)
    outs = [tuple_of(function(*given, **call)) for (given, _, _), call in zip(sets, calls, strict=True)]
    for out in outs:
        for x in out:
            as_bits(x)[...] = 0xA5
    timed: list[Callable[[], Any]] = [
        lambda given=given, call=call, out=out: function(*given, **call, out=out if len(out) > 1 else out[0])
        for (given, _, _), call, out in zip(sets, calls, outs, strict=True)
    ]
    for call in timed:
        call()
    wrong = sum(mismatches(operation, p, r, o, options) for (_, p, r), o in zip(sets, outs, strict=True))
    times = device.time_calls(timed)
    moved = sum(x.nbytes for x in sets[0][0]) + sum(x.nbytes for x in outs[0]) + (M * K if options.get("rbits") else 0)
    median = statistics.median(times)
    row = {
        "name": name, "operation": operation, "bytes": moved, "compared": M * K * SETS, "mismatches": wrong,
        "us": round(median, 2), "us_min": round(min(times), 2), "us_max": round(max(times), 2),
        "tb_s": round(moved / median * 1e-6, 3), "share": round(moved / (median * 1e-6) / copy, 4),
    }  # fmt: skip
    print(
        f"{name:40s} {row['us']:7.1f} us {row['tb_s']:.2f} TB/s {100 * row['share']:5.1f} % wrong {wrong}", flush=True
    )
    return row


LARGE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("quantize_mxfp4", "bfloat16", {}),
    ("quantize_mxfp4", "float32", {"layout_out": "packed_ue8m0"}),
    ("quantize_mxfp4", "bfloat16", {"profile": "STOCHASTIC", "philox": KEY}),
    ("quantize_fp8_tiles", "bfloat16", {}),
    ("quantize_fp8_tiles", "bfloat16", {"layout_out": "gemm_float32"}),
    ("quantize_fp8_tiles", "bfloat16", {"tile": (128, 128)}),
    ("dequantize_mxfp4", "fp4", {"dtype": "bfloat16"}),
    ("dequantize_fp8_tiles", "fp8", {"dtype": "bfloat16"}),
    ("fp8_to_mxfp4", "fp8", {}),
    ("fp8_to_mxfp4", "fp8", {"layout_out": "swizzled"}),
    ("mxfp4_to_fp8", "fp4", {"scale": "max"}),
    ("mxfp4_to_fp8", "fp4", {"scale": "amax"}),
)


def large_inputs(what: str, rows: int, k: int) -> tuple[Any, ...]:
    """Return inputs of random bits; scale bytes are near one so that few results saturate."""
    rng = cupy.random.default_rng(3)

    def filled(shape: tuple[int, int], dtype: Any, mask: int, put: int) -> Any:
        out = cupy.empty(shape, dtype)
        step = 1 << 14
        for row in range(0, shape[0], step):
            part = out[row : row + step].view(np.uint8)
            part[...] = rng.integers(0, 256, part.shape, dtype=np.uint8)
            out[row : row + step] &= dtype(mask)
            out[row : row + step] |= dtype(put)
        return out

    if what == "bfloat16":
        return (filled((rows, k), np.uint16, 0x83FF, 0x3C00),)  # 2**-7 to 2**0, both signs
    if what == "float32":
        return (filled((rows, k), np.uint32, 0x81FFFFFF, 0x3E000000).view(np.float32),)
    scales = filled((rows, k // (32 if what == "fp4" else 128)), np.uint8, 0x0F, 0x70)
    return filled((rows, k // (2 if what == "fp4" else 1)), np.uint8, 0xFF if what == "fp4" else 0xBF, 0), scales


def run_large(budget: float) -> list[dict[str, Any]]:
    """Compare calls of more than 2**32 elements with the model in slices."""
    k, found = K, []
    rows = ((1 << 32) // k // 128 + 1) * 128 + 8  # a short last tile of rows
    for operation, what, options in LARGE:
        start = time.perf_counter()
        if start - BEGAN > budget:
            print("no time for", operation, options, flush=True)
            continue
        given = large_inputs(what, rows, k)
        results = tuple_of(getattr(ops, operation)(*given, **options))
        wrong = mismatches(operation, given, None, results, options)
        found.append({"operation": operation, "input": what, "options": str(options), "elements": rows * k,
                      "mismatches": wrong})  # fmt: skip
        print(f"{operation} {what} {options}: {rows * k} elements, wrong {wrong}, {time.perf_counter() - start:.1f} s",
              flush=True)  # fmt: skip
        del given, results
        cupy.get_default_memory_pool().free_all_blocks()
    return found


BEGAN = time.perf_counter()
THREADS, UNROLLS = (64, 128, 256), (1, 2)


def prepare(names: list[str], swept: bool) -> None:
    """Compile what will be launched, several at a time."""
    jobs = {("quantize_mxfp4_stochastic", rowwise.TUNING["quantize_mxfp4_stochastic"].defines)}
    for operation, _, options in [LINES[name] for name in names]:
        layout = options.get("layout_in", "bytes"), options.get("layout_out", "bytes")
        jobs.add((operation, (*rowwise.TUNING[operation].defines, *rowwise.layout_defines(layout))))
        jobs.add((operation, rowwise.TUNING[operation].defines))
    if swept:
        grids = [rowwise.Grid(t, u, part) for t in THREADS for u in UNROLLS for part in (16, 32)]
        jobs |= {("quantize_mxfp4_stochastic", grid.defines) for grid in grids}
    arch = build.architecture(driver().capability(0))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: build.compiled(job[0], arch, defines=job[1]), jobs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="words that a line's name must hold")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--sweep", action="store_true", help="time the stochastic kernel under other grids")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which --large starts nothing more")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {}
    if options.large:
        report["large"] = run_large(options.budget)
    else:
        copy = copy_bandwidth()
        report["copy_bytes_per_second"] = copy
        print(f"copy {copy / 1e12:.3f} TB/s", flush=True)
        names = [name for name in LINES if not options.only or any(word in name for word in options.only)]
        prepare(names, options.sweep)
        report["lines"] = []
        for name in names:
            report["lines"].append(run(name, copy))
            cupy.get_default_memory_pool().free_all_blocks()
        if options.sweep:
            sweep(copy)
        report["copy_again_bytes_per_second"] = copy_bandwidth()
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(any(row["mismatches"] for row in report.get("lines", report.get("large", []))))


def sweep(copy: float) -> None:
    """Time the stochastic kernel under other grids."""
    shipped = rowwise.TUNING["quantize_mxfp4_stochastic"]
    for name in ("BF16 -> MXFP4, stochastic, by key", "BF16 -> MXFP4, stochastic, bits given",
                 "FP32 -> MXFP4, stochastic, by key"):  # fmt: skip
        _, what, options = LINES[name]
        sets = [make_inputs(what, options, seed) for seed in range(SETS)]
        calls = [{**options, **({} if rbits is None else {"rbits": rbits})} for _, _, rbits in sets]
        outs = [ops.quantize_mxfp4(*given, **call) for (given, _, _), call in zip(sets, calls, strict=True)]
        moved = sets[0][0][0].nbytes + sum(x.nbytes for x in outs[0]) + (M * K if options.get("rbits") else 0)
        found = []
        for part in (32,) if what == "float32" else (16, 32):
            for threads in THREADS:
                for unroll in UNROLLS:
                    rowwise.TUNING["quantize_mxfp4_stochastic"] = rowwise.Grid(threads, unroll, part)
                    plans.forget()
                    times = device.time_calls([
                        lambda g=g, c=c, o=o: ops.quantize_mxfp4(*g, **c, out=o)
                        for (g, _, _), c, o in zip(sets, calls, outs, strict=True)
                    ])  # fmt: skip
                    median = statistics.median(times)
                    found.append((median, threads, unroll, part, moved / (median * 1e-6) / copy))
        for median, threads, unroll, part, share in sorted(found)[:6]:
            print(f"  {name}: {median:.1f} us {100 * share:.1f} % threads {threads} unroll {unroll} part {part}")
        rowwise.TUNING["quantize_mxfp4_stochastic"] = shipped
        plans.forget()


if __name__ == "__main__":
    raise SystemExit(main())
