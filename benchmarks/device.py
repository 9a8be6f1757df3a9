"""Row-wise kernels on one GPU: bits against the golden model, then time against a device copy in the same run.

    python benchmarks/device.py --json rowwise.json            check and time the kernels as they ship
    python benchmarks/device.py --sweep --only fp8_to_mxfp4    time other grids (threads a CTA, chunks a thread)

Time is the median of 30 launches between CUDA events, all queued ahead of the device, on buffers larger than L2 in
turn. Bytes are inputs read once and outputs written once.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import refnum
from benchmarks.device_cases import CASES, K, M
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver
from refnum.gpu.ops import columns, rowwise

SETS, REPEATS = 2, 30
ORDERS = {
    "mxfp4_to_fp8_columns": [
        *(columns.Order(across, 8, 128, stream) for across in (1, 2) for stream in (0, 1)),
        *(columns.Order(across, blocks, 256) for across in (1, 2) for blocks in (3, 4, 5)),
        *(columns.Order(across, blocks, 256, turns=2) for across in (1, 2) for blocks in (5, 6, 7)),
    ],
    "mxfp4_to_fp8_rows_columns": [
        columns.Order(across, blocks, 256, 0, cluster)
        for across in (0, 1, 4)
        for blocks in (3, 4)
        for cluster in (1, 2, 4)
    ],
    "mxfp4_columns": [
        columns.Order(across, blocks * 256 // wide, wide)
        for across in (1, 2)
        for wide in (128, 256)
        for blocks in (2, 3)
    ],
    "fp8_columns": [
        columns.Order(across, blocks, 128, stream) for across in (1, 2) for blocks in (6, 8) for stream in (0, 1)
    ],
}
PARTS = {"quantize_mxfp4": (16, 32), "quantize_fp8_tiles": (8, 16), "fp8_to_mxfp4": (16, 32), "mxfp4_to_fp8": (16, 32)}


def grids(operation: str) -> list[rowwise.Grid]:
    """Return the grids that a sweep tries."""
    return [
        rowwise.Grid(threads, unroll, part, stream)
        for part in PARTS.get(operation, (8,)) for unroll in (1, 2, 4) if part * unroll <= 64
        for threads in (128, 256, 512, 1024) for stream in (0, 1)
    ]  # fmt: skip


def tuple_of(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def as_bits(x: Any) -> Any:
    return x.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[x.dtype.itemsize])


def column_mismatches(operation: str, inputs: tuple[Any, ...], results: tuple[Any, ...], options: Any) -> int:
    """Compare with the golden model, 1024 input columns at a time."""
    wrong, step = 0, 1024
    for column in range(0, K, step):
        part = [
            cupy.ascontiguousarray(x[:, column * x.shape[1] // K : (column + step) * x.shape[1] // K]) for x in inputs
        ]
        for want, got in zip(getattr(refnum, operation)(*part, **options), results, strict=True):
            first, last = (at * got.shape[1] // K for at in (column, column + step))
            mine = got[column : column + step] if got.shape[0] == K else got[:, first:last]
            wrong += int((want != mine).sum())
    return wrong


def mismatches(operation: str, inputs: tuple[Any, ...], results: tuple[Any, ...], options: dict[str, Any]) -> int:
    """Compare the whole result with the golden model run on the same device, rows at a time."""
    if operation in ORDERS:
        return column_mismatches(operation, inputs, results, options)
    wrong, step = 0, 2048
    tall = 128 if options.get("tile") == (128, 128) else 1
    for row in range(0, M, step):
        part = [x[row : row + step] for x in inputs]
        for want, got in zip(tuple_of(getattr(refnum, operation)(*part, **options)), results, strict=True):
            divisor = tall if got.shape[0] != M else 1
            mine = got[row // divisor : row // divisor + want.shape[0]]
            wrong += int((as_bits(want) != as_bits(mine)).sum())
    return wrong


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


def measure(inputs: list[tuple[Any, ...]], outs: list[tuple[Any, ...]], operation: str, options: dict[str, Any]) -> Any:
    function = getattr(ops, operation)
    return time_calls(
        [
            lambda x=x, out=out: function(*x, **options, out=out if len(out) > 1 else out[0])
            for x, out in zip(inputs, outs, strict=True)
        ]
    )


def copy_bandwidth(nbytes: int = 1 << 29) -> float:
    """Return bytes a second, read plus written, of a device-to-device copy."""
    pairs = [(cupy.zeros(nbytes, np.uint8), cupy.empty(nbytes, np.uint8)) for _ in range(SETS)]
    for source, _ in pairs:
        source[:] = cupy.random.default_rng(0).integers(0, 256, 1 << 20, dtype=np.uint8).repeat(nbytes >> 20)
    stream = cupy.cuda.get_current_stream().ptr
    runtime = cupy.cuda.runtime
    times = time_calls(
        [
            lambda a=a, b=b: runtime.memcpyAsync(b.data.ptr, a.data.ptr, nbytes, runtime.memcpyDeviceToDevice, stream)
            for a, b in pairs
        ]
    )
    return 2 * nbytes / (statistics.median(times) * 1e-6)


def fill_bandwidth(nbytes: int = 1 << 29) -> float:
    """Return bytes a second of filling memory: what a kernel that only writes can reach."""
    outs = [cupy.empty(nbytes, np.uint8) for _ in range(SETS)]
    times = time_calls([lambda out=out: out.data.memset_async(0x5A, nbytes) for out in outs])
    return nbytes / (statistics.median(times) * 1e-6)


def prepare(operations: set[str], sweep: bool) -> None:
    """Compile what will be launched, several at a time."""
    arch = build.architecture(driver().capability(0))
    along, turning = operations & set(rowwise.TUNING), operations & set(ORDERS)
    jobs = {(o, grid) for o in along for grid in [rowwise.TUNING[o], *(grids(o) if sweep else [])]}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: build.compiled(job[0], arch, defines=job[1].defines), jobs))
        turns = {(f.rpartition("_")[0], order) for f, order in columns.TUNING.items()}
        turns |= {(o, order) for o in turning for order in ORDERS[o] * sweep}
        list(pool.map(lambda job: build.compiled(job[0], arch, defines=job[1].defines), turns))


def show(name: str, entry: dict[str, Any], wrong: int | None) -> None:
    """Print one line of the table."""
    print(
        f"{name:20s} {entry['us']:7.1f} us ({entry['us_min']:.1f}..{entry['us_max']:.1f})  "
        f"{entry['tb_s']:.2f} TB/s {100 * entry['share']:5.1f} %  "
        f"{entry['registers']} registers {entry['local_bytes']} local"
        + (f"  {100 * entry['share_of_copy_of_same_bytes']:.1f} % of a copy as long" if name else "")
        + ("" if wrong is None else f"  mismatches {wrong}")
        + f"  {entry['grid']}",
        flush=True,
    )


def run(name: str, options: argparse.Namespace, copy: float) -> dict[str, Any]:
    operation, function, make, given = CASES[name]
    inputs = [make(seed) for seed in range(SETS)]
    outs = [tuple_of(getattr(ops, operation)(*x, **given)) for x in inputs]
    moved = sum(x.nbytes for x in inputs[0]) + sum(x.nbytes for x in outs[0])
    row: dict[str, Any] = {"name": name, "operation": operation, "bytes": moved, "elements": M * K}
    if not options.no_check:
        for out in outs:
            for x in out:
                as_bits(x)[...] = 0xA5
        outs = [
            tuple_of(getattr(ops, operation)(*x, **given, out=o if len(o) > 1 else o[0]))
            for x, o in zip(inputs, outs, strict=True)
        ]
        row["compared"] = M * K * SETS
        row["mismatches"] = sum(mismatches(operation, x, o, given) for x, o in zip(inputs, outs, strict=True))
    same = copy_bandwidth(moved // 2 & -(1 << 20))
    row["copy_of_same_bytes"] = round(same / 1e12, 3)
    tuning: dict[str, Any] = columns.TUNING if operation in ORDERS else rowwise.TUNING
    slot = function if operation in ORDERS else operation
    shipped, others = tuning[slot], ORDERS.get(operation) or grids(operation)
    for grid in [shipped, *(others if options.sweep else [])]:
        tuning[slot] = grid
        plans.forget()
        times = measure(inputs, outs, operation, given)
        median = statistics.median(times)
        share = moved / (median * 1e-6) / copy
        found = driver().function(operation, function, 0, grid.defines)
        entry = {
            "grid": " ".join(grid.defines),
            "us": round(median, 2),
            "us_min": round(min(times), 2),
            "us_max": round(max(times), 2),
            "tb_s": round(moved / median * 1e-6, 3),
            "share": round(share, 4),
            **driver().resources(found),
        }
        row.setdefault("sweep", []).append(entry)
        if grid is shipped:
            entry["share_of_copy_of_same_bytes"] = round(moved / (median * 1e-6) / same, 4)
            show(name, entry, row.get("mismatches"))
    for entry in sorted(row["sweep"], key=lambda e: e["us"])[:6] if options.sweep else []:
        show("", entry, None)
    tuning[slot] = shipped
    plans.forget()
    row.update(row["sweep"][0])
    if not options.sweep:
        del row["sweep"]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="operations to run")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--once", action="store_true", help="launch each once and leave: for a profiler")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [name for name, case in CASES.items() if not options.only or case[0] in options.only]
    prepare({CASES[name][0] for name in names} | {"quantize_mxfp4", "quantize_fp8_tiles"}, False)
    if options.sweep:
        prepare({CASES[name][0] for name in names}, True)
    if options.once:
        for name in names:
            operation, _, make, given = CASES[name]
            getattr(ops, operation)(*make(0), **given)
        cupy.cuda.Device().synchronize()
        return 0
    copy = copy_bandwidth()
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    about = {
        "device": properties["name"].decode(), "multiprocessors": properties["multiProcessorCount"],
        "l2_bytes": properties["l2CacheSize"], "driver_cuda": cupy.cuda.runtime.driverGetVersion(),
        "nvrtc": build.nvrtc().version, "cupy": cupy.__version__, "numpy": np.__version__,
        "python": platform.python_version(), "refnum": refnum.__version__, "date": datetime.date.today().isoformat(),
        "command": "python " + " ".join(["benchmarks/device.py", *sys.argv[1:]]), "shape": [M, K],
        "copy_bytes_per_second": copy,
    }  # fmt: skip
    about["fill_bytes_per_second"] = fill_bandwidth()
    print(
        f"{about['device']}, copy {copy / 1e12:.3f} TB/s (bytes read and written), "
        f"fill {about['fill_bytes_per_second'] / 1e12:.3f} TB/s",
        flush=True,
    )
    rows = []
    for name in names:
        rows.append(run(name, options, copy))
        cupy.get_default_memory_pool().free_all_blocks()
    again = copy_bandwidth()
    print(f"copy again {again / 1e12:.3f} TB/s")
    about["copy_again_bytes_per_second"] = again
    if options.json:
        options.json.write_text(json.dumps({"about": about, "kernels": rows}, indent=1) + "\n")
    return int(any(row.get("mismatches") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
