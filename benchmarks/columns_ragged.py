"""Column conversions over experts that begin at any row, on one GPU: bits against the golden model, then time.

    python benchmarks/columns_ragged.py --json ragged.json       check and time the kernels as they ship
    python benchmarks/columns_ragged.py --sweep --json ...       time other orders of the ragged kernels too

Outputs are poisoned before the run that is compared.
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
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver
from refnum.gpu.ops import columns, rowwise
from refnum.gpu.ops.columns import Order

BEGAN = time.perf_counter()
M, K, SETS, REPEATS = 32768, 7168, 2, 30
EXPERTS = (64, 256)
UNITS = (128, 32, 16, 8, 4, 2, 1)
"""Boundaries of experts are odd multiples of each."""
LINES: dict[str, tuple[str, dict[str, str]]] = {
    "mxfp4_to_fp8_columns_max": ("mxfp4_to_fp8_columns", {"scale": "max"}),
    "mxfp4_to_fp8_columns_amax": ("mxfp4_to_fp8_columns", {"scale": "amax"}),
    "mxfp4_to_fp8_rows_columns_max": ("mxfp4_to_fp8_rows_columns", {"scale": "max"}),
    "mxfp4_to_fp8_rows_columns_amax": ("mxfp4_to_fp8_rows_columns", {"scale": "amax"}),
    "fp8_columns_rne": ("fp8_columns", {"underflow": "rne"}),
    "fp8_columns_te": ("fp8_columns", {"underflow": "te"}),
    "mxfp4_columns_max": ("mxfp4_columns", {"scale": "max"}),
    "mxfp4_columns_amax": ("mxfp4_columns", {"scale": "amax"}),
}
"""Function -> its operation and options."""
SWEEP: dict[str, list[Order]] = {
    "mxfp4_to_fp8_columns_max": [Order(across, blocks, 256, turns=2) for across in (1, 2) for blocks in (5, 6)],
    "mxfp4_to_fp8_columns_amax": [
        *(Order(2, 5, strip=strip, ahead=1) for strip in (6, 8, 12, 24)),
        *(Order(2, 6, strip=strip, ahead=1) for strip in (10, 19)),
    ],
    "mxfp4_to_fp8_rows_columns_max": [Order(0, blocks, 256, cluster=2) for blocks in (3, 4)],
    "mxfp4_to_fp8_rows_columns_amax": [
        *(Order(0, 5, strip=strip, ahead=1, line=line) for strip in (4, 8, 12, 24) for line in (32, 64)),
        Order(0, 4, strip=15, ahead=1),
    ],
    "fp8_columns_rne": [Order(across, blocks) for across in (2, 4) for blocks in (6, 8)],
    "fp8_columns_te": [Order(across, blocks) for across in (2, 4) for blocks in (6, 8)],
    "mxfp4_columns_max": [Order(across, blocks, strip=4) for across in (1, 2, 4) for blocks in (6, 7)],
    "mxfp4_columns_amax": [Order(2, blocks, strip=strip) for blocks in (4, 5) for strip in (7, 14, 29, 57)],
}
"""Function -> orders that a sweep tries."""
SMALL: tuple[tuple[int, ...], ...] = (
    (129, 0, 131, 1, 255, 3, 121), (1,) * 150, (5, 7, 3, 0, 1, 9, 2, 6, 31, 33, 17, 4, 8, 23, 1, 130),
    (8, 136, 24, 200, 64, 48), (260, 4, 132, 100, 16), (77, 400, 163), (384, 1), (112, 144, 128, 128), (640,),
    (32,) * 30, (3,) * 900, (1, 700, 2, 900, 0, 5), (16, 48, 256, 80), (300,) * 8,
)  # fmt: skip


def tuple_of(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def time_calls(calls: list[Callable[[], Any]]) -> list[float]:
    """Return microseconds of each of REPEATS launches, taking the calls in turn."""
    for call in calls * 3:
        call()
    events = [(cupy.cuda.Event(), cupy.cuda.Event()) for _ in range(REPEATS)]
    for number, (start, stop) in enumerate(events):
        start.record()
        calls[number % len(calls)]()
        stop.record()
    cupy.cuda.Device().synchronize()
    return [1000 * cupy.cuda.get_elapsed_time(start, stop) for start, stop in events]


def copy_bandwidth(nbytes: int = 1 << 29) -> float:
    """Return bytes a second, read plus written, of a device-to-device copy."""
    pairs = [(cupy.zeros(nbytes, np.uint8), cupy.empty(nbytes, np.uint8)) for _ in range(SETS)]
    for source, _ in pairs:
        source[:] = cupy.random.default_rng(0).integers(0, 256, 1 << 20, dtype=np.uint8).repeat(nbytes >> 20)
    stream, runtime = cupy.cuda.get_current_stream().ptr, cupy.cuda.runtime
    times = time_calls([
        lambda a=a, b=b: runtime.memcpyAsync(b.data.ptr, a.data.ptr, nbytes, runtime.memcpyDeviceToDevice, stream)
        for a, b in pairs
    ])  # fmt: skip
    return 2 * nbytes / (statistics.median(times) * 1e-6)


def values(seed: int) -> Any:
    """Return standard normal values, each row at its own power of two, as bfloat16 bits."""
    rng, out = cupy.random.default_rng(seed), cupy.empty((M, K), np.uint16)
    for row in range(0, M, 4096):
        part = rng.standard_normal((4096, K), np.float32)
        part *= cupy.exp2(rng.integers(-4, 4, (4096, 1)).astype(np.float32))
        bits = part.view(np.uint32)
        out[row : row + 4096] = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return out


def fp8(seed: int) -> tuple[Any, ...]:
    return ops.quantize_fp8_tiles(values(seed))


def fp4(seed: int) -> tuple[Any, ...]:
    return ops.quantize_mxfp4(values(seed))


def splits_of(experts: int, unit: int, m: int = M) -> list[int]:
    """Return rows of experts, unequal, that begin at odd multiples of `unit`; the last ends at `m`."""
    rng = np.random.default_rng(experts + unit)
    cuts = np.cumsum(rng.dirichlet(np.full(experts, 4.0)))[:-1] * (m // unit)
    ends = np.unique(np.floor(cuts).astype(np.int64) // 2 * 2 + 1) * unit
    return np.diff(np.concatenate([[0], ends[ends < m], [m]])).tolist()


def fitting(operation: str, splits: list[int]) -> list[int]:
    return [n + n % 2 for n in splits] if operation == "mxfp4_columns" else splits


def small_inputs(operation: str, m: int, k: int, kind: str, seed: int) -> tuple[Any, Any]:
    """Codes and scale bytes: within a few binades, of any bytes with NaN, or mostly zeros under uneven bytes."""
    rng, wide = np.random.default_rng(seed), 1 if operation == "fp8_columns" else 2
    codes = rng.integers(0, 256, (m, k // wide)).astype(np.uint8)
    low, above = {"near": (118, 10), "any": (0, 256), "sparse": (100, 40), "zeros": (120, 9)}[kind]
    scales = rng.integers(low, low + above, (m, -(-k // 128) if wide == 1 else k // 32)).astype(np.uint8)
    if kind == "sparse":
        codes[rng.random(codes.shape) < 0.97] = 0
    if kind == "zeros":  # rows of zeros under the largest bytes
        rows = rng.random(m) < 0.5
        codes[rows] &= 0x88 if wide == 2 else 0x80
        scales[rows] = 140
    return codes, scales


def padded(x: Any, pad: int) -> Any:
    """Return an array on the device whose rows lie `pad` bytes into wider ones."""
    store = cupy.full((x.shape[0], x.shape[1] + 2 * pad), 77, np.uint8)
    store[:, pad : pad + x.shape[1]] = cupy.asarray(x)
    return store[:, pad : pad + x.shape[1]]


def poisoned(likes: Any) -> tuple[Any, ...]:
    return tuple(cupy.full(x.shape, 0xA5, np.uint8) for x in likes)


def small_cases() -> Iterator[tuple[tuple[int, ...], int, str, int]]:
    """Yield (splits, K, kind of inputs, bytes by which rows are shifted)."""
    kinds = ("near", "any", "sparse", "zeros")
    for number, splits in enumerate(SMALL):
        for turn, kind in enumerate(kinds):
            yield (
                splits,
                (32, 96, 256, 288, 512, 1152)[(number + turn) % 6],
                kind,
                (0, 0, 1, 4, 16)[(number + turn) % 5],
            )
    for unit in UNITS:
        for turn, experts in enumerate((3, 20, 200)):
            yield tuple(splits_of(experts, unit, 4096)), (512, 256, 288)[turn], kinds[(unit + turn) % 4], 0


def check_small() -> tuple[int, int]:
    """Return (elements compared, mismatches) over small inputs."""
    compared = wrong = 0
    for name, (operation, options) in LINES.items():
        bad = 0
        for seed, (splits, k, kind, pad) in enumerate(small_cases()):
            rows = fitting(operation, list(splits))
            given = small_inputs(operation, sum(rows), k, kind, seed)
            wants = getattr(refnum, operation)(*given, rows, **options)
            outs = poisoned(wants)
            getattr(ops, operation)(*(padded(x, pad) for x in given), rows, **options, out=outs)
            these = sum(int((got.get() != want).sum()) for got, want in zip(outs, wants, strict=True))
            if these:
                print(f"WRONG {name} {len(rows)} experts {rows[:8]} K={k} {kind} pad {pad}: {these}", flush=True)
            bad, compared = bad + these, compared + sum(want.size for want in wants)
        wrong += bad
    print(f"small: {compared} elements compared, {wrong} wrong, {time.perf_counter() - BEGAN:.0f} s", flush=True)
    return compared, wrong


def check_large(operation: str, options: dict[str, Any], x: tuple[Any, ...], outs: Any, step: int) -> tuple[int, int]:
    """Compare the first and last `step` columns of the timed arrays, or all, with the model: (compared, mismatches)."""
    compared = wrong = 0
    for column in range(0, K, step) if step == 1024 else (0, K - step):
        part = [cupy.ascontiguousarray(y[:, column * y.shape[1] // K : (column + step) * y.shape[1] // K]) for y in x]
        for want, got in zip(getattr(refnum, operation)(*part, **options), outs, strict=True):
            first, last = (at * got.shape[1] // K for at in (column, column + step))
            mine = got[column : column + step] if got.shape[0] == K else got[:, first:last]
            wrong += int((want != mine).sum())
            compared += want.size
    return compared, wrong


def time_line(operation: str, options: dict[str, Any], sets: list[tuple[Any, ...]], copy: float, step: int) -> Any:
    """Return the record of one call: time, share of a copy, mismatches of the first set."""
    function = getattr(ops, operation)
    outs = [tuple_of(function(*x, **options)) for x in sets]
    for out in outs:
        for y in out:
            y[...] = 0xA5
    moved = sum(y.nbytes for y in sets[0]) + sum(y.nbytes for y in outs[0])
    calls = [lambda x=x, out=out: function(*x, **options, out=out) for x, out in zip(sets, outs, strict=True)]
    times = time_calls(calls)
    median = statistics.median(times)
    compared, wrong = check_large(operation, options, sets[0], outs[0], step)
    return {
        "us": round(median, 2), "us_min": round(min(times), 2), "us_max": round(max(times), 2), "bytes": moved,
        "share": round(moved / (median * 1e-6) / copy, 4), "compared": compared, "mismatches": wrong,
    }  # fmt: skip


def run_lines(name: str, sets: list[tuple[Any, ...]], copy: float) -> list[dict[str, Any]]:
    """Time one function dense and over experts that begin anywhere."""
    operation, options = LINES[name]
    found = [{"name": name, "experts": 1, "unit": 0, **time_line(operation, options, sets, copy, 256)}]
    for experts in EXPERTS:
        for unit in UNITS:
            if operation == "mxfp4_columns" and unit == 1:
                continue
            given = {**options, "splits": splits_of(experts, unit)}
            whole = 1024 if (experts, unit) == (256, 2) else 256
            found.append({"name": name, "experts": experts, "unit": unit,
                          **time_line(operation, given, sets, copy, whole)})  # fmt: skip
    cells = {(row["experts"], row["unit"]): f"{100 * row['share']:5.1f}" for row in found}
    print(f"{name:32s} dense {cells[1, 0]}", flush=True)
    for experts in EXPERTS:
        print(f"{experts:28d} exp " + " ".join(cells.get((experts, u), "    -") for u in UNITS), flush=True)
    return found


def orders(name: str) -> list[Order]:
    """Return the shipped order of a ragged function, then those that a sweep tries."""
    others = [order._replace(ragged=1) for order in SWEEP[name]]
    return list(dict.fromkeys([columns.RAGGED[name], *others]))


def run_sweep(name: str, sets: list[tuple[Any, ...]], copy: float) -> list[dict[str, Any]]:
    """Time one ragged function under other orders, where experts begin at odd (even) rows and at multiples of 16."""
    operation, options = LINES[name]
    shipped, found = columns.RAGGED[name], []
    smallest = 2 if operation == "mxfp4_columns" else 1
    for order in orders(name):
        columns.RAGGED[name] = order
        plans.forget()
        function = driver().function(operation, name, 0, order.defines)
        row: dict[str, Any] = {"name": name, "order": order._asdict(), **driver().resources(function)}
        for experts, unit in ((64, smallest), (256, smallest), (256, 16)):
            line = time_line(operation, {**options, "splits": splits_of(experts, unit)}, sets, copy, 256)
            row[f"{experts}/{unit}"] = line
        found.append(row)
    columns.RAGGED[name] = shipped
    plans.forget()
    keys = [key for key in found[0] if "/" in key]
    found.sort(key=lambda row: -sum(row[key]["share"] for key in keys))
    for row in found[:5]:
        shares = " ".join(f"{key} {100 * row[key]['share']:.1f}" for key in keys)
        order = " ".join(str(value) for value in row["order"].values())
        wrong = sum(row[key]["mismatches"] for key in keys)
        print(f"  {name:32s} {shares}  [{order}] {row['registers']} regs {row['local_bytes']} local wrong {wrong}",
              flush=True)  # fmt: skip
    return found


def prepare(swept: bool) -> None:
    """Compile what will be launched, several at a time."""
    jobs = {
        (LINES[name][0], order.defines) for table in (columns.TUNING, columns.RAGGED) for name, order in table.items()
    }
    if swept:
        jobs |= {(LINES[name][0], order.defines) for name in LINES for order in orders(name)}
    jobs |= {(name, rowwise.TUNING[name].defines) for name in ("quantize_mxfp4", "quantize_fp8_tiles")}
    arch = build.architecture(driver().capability(0))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: build.compiled(job[0], arch, defines=job[1]), sorted(jobs)))
    print(f"{len(jobs)} compiled, {time.perf_counter() - BEGAN:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="words that a function's name must hold")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--no-check", action="store_true", help="leave the small inputs out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    prepare(options.sweep)
    report: dict[str, Any] = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
                              "nvrtc": build.nvrtc().version, "shape": [M, K]}  # fmt: skip
    wrong = 0
    if not options.no_check:
        report["small_compared"], wrong = check_small()
    copy = report["copy_bytes_per_second"] = copy_bandwidth()
    print(f"{report['device']}, copy {copy / 1e12:.3f} TB/s; shares of a copy in %, experts begin at odd multiples of "
          + " ".join(map(str, UNITS)), flush=True)  # fmt: skip
    report["lines"], report["sweep"] = [], []
    for make, kind in ((fp4, "mxfp4"), (fp8, "fp8")):
        sets = [make(seed) for seed in range(SETS)]
        for name in LINES:
            if name.startswith(kind) and (not options.only or any(word in name for word in options.only)):
                report["lines"] += run_lines(name, sets, copy)
                report["sweep"] += run_sweep(name, sets, copy) if options.sweep else []
                cupy.get_default_memory_pool().free_all_blocks()
                if options.json:
                    options.json.write_text(json.dumps(report, indent=1) + "\n")
        del sets
        cupy.get_default_memory_pool().free_all_blocks()
    report["copy_again_bytes_per_second"] = copy_bandwidth()
    wrong += sum(row["mismatches"] for row in report["lines"])
    print(f"copy again {report['copy_again_bytes_per_second'] / 1e12:.3f} TB/s, wrong {wrong}, "
          f"{time.perf_counter() - BEGAN:.0f} s", flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
