"""Trial: column conversions by `amax` over experts that begin at any row, today's order beside others, on one GPU.

    python benchmarks/columns_segments.py --json segments.json [--seconds 140] [--small 2]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import time
from pathlib import Path
from typing import Any

import columns_ragged as ragged
import cupy

import refnum
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver
from refnum.gpu.ops import columns, rowwise
from refnum.gpu.ops.columns import Order

CANDIDATES: dict[str, list[Order]] = {
    "mxfp4_to_fp8_columns_amax": [
        Order(2, 6, 256, turns=2, split=2), Order(2, 6, 256, turns=2, split=3), Order(2, 7, 256, turns=2, split=3),
        Order(2, 5, 256, turns=2, split=3), Order(2, 6, split=3), Order(2, 8, split=3),
        Order(2, 6, 256, turns=2, split=4),
    ],
    "mxfp4_columns_amax": [
        Order(1, 3, 256, split=2), Order(2, 3, 256, split=2), Order(2, 6, split=2), Order(2, 5, split=2),
        Order(1, 3, 256, split=4),
    ],
    "mxfp4_to_fp8_rows_columns_amax": [
        Order(0, 4, 256, cluster=2, split=2), Order(0, 4, 256, cluster=2, split=3), Order(0, 4, 256, split=3),
        Order(0, 3, 256, cluster=2, split=3), Order(0, 4, 256, cluster=4, split=3),
        Order(0, 4, 256, cluster=2, split=4),
    ],
}
"""Orders to be timed. Split 4 is 3 (2) without the ends of segments: wrong bits, to show what those cost."""


def choose(name: str, order: Order | None) -> None:
    """Launch a function by an order, or (None) as it ships."""
    columns.SEGMENTS.pop(name, None)
    if order is not None:
        columns.SEGMENTS[name] = order
    plans.forget()


def small(name: str, order: Order, every: int) -> int:
    """Return mismatches over small inputs."""
    operation, options = ragged.LINES[name]
    choose(name, order)
    bad = compared = 0
    for seed, (splits, k, kind, pad) in enumerate(ragged.small_cases()):
        if seed % every:
            continue
        rows = ragged.fitting(operation, list(splits))
        given = ragged.small_inputs(operation, sum(rows), k, kind, seed)
        wants = getattr(refnum, operation)(*given, rows, **options)
        outs = ragged.poisoned(wants)
        getattr(ops, operation)(*(ragged.padded(x, pad) for x in given), rows, **options, out=outs)
        these = sum(int((got.get() != want).sum()) for got, want in zip(outs, wants, strict=True))
        compared += sum(want.size for want in wants)
        if these:
            bad += these
            print(f"WRONG {name} {order.defines} {rows[:8]} K={k} {kind} pad {pad}: {these}", flush=True)
    print(f"small {name} split={order.split}: {compared} compared, {bad} wrong, "
          f"{time.perf_counter() - ragged.BEGAN:.0f} s", flush=True)  # fmt: skip
    return bad


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--small", type=int, default=2, help="one small case of so many")
    options = parser.parse_args()
    jobs = {(name.removesuffix("_amax"), order.defines) for name, orders in CANDIDATES.items() for order in orders}
    for table in (columns.TUNING, columns.RAGGED):
        jobs |= {(name.removesuffix("_amax"), table[name].defines) for name in CANDIDATES}
    jobs |= {(name.removesuffix("_amax"), columns.TUNING[name]._replace(split=1).defines)
             for name in CANDIDATES if name != "mxfp4_columns_amax"}  # fmt: skip
    jobs.add(("quantize_mxfp4", rowwise.TUNING["quantize_mxfp4"].defines))
    arch = build.architecture(driver().capability(0))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: build.compiled(job[0], arch, defines=job[1]), sorted(jobs)))
    print(f"{len(jobs)} compiled, {time.perf_counter() - ragged.BEGAN:.0f} s", flush=True)
    wrong = 0
    for name, orders in CANDIDATES.items():
        for split in sorted({order.split for order in orders} - {4}):
            wrong += small(name, next(order for order in orders if order.split == split), options.small)
    report: dict[str, Any] = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), "rows": []}
    copy = report["copy"] = ragged.copy_bandwidth()
    print(f"{report['device']}, copy {copy / 1e12:.3f} TB/s; us and share of a copy in %", flush=True)
    sets = [ragged.fp4(seed) for seed in range(ragged.SETS)]
    for name, orders in CANDIDATES.items():
        operation, given = ragged.LINES[name]
        odd = 2 if operation == "mxfp4_columns" else 1
        shipped: list[Order | None] = [None, *orders]
        for order in shipped:
            if time.perf_counter() - ragged.BEGAN > options.seconds:
                print("no time left", flush=True)
                break
            choose(name, order)
            row: dict[str, Any] = {"name": name, "order": order and order._asdict()}
            if order:
                row |= driver().resources(driver().function(operation, name, 0, order.defines))
            cells = [(64, odd), (256, odd), (256, 16)] + ([(1, 0), (256, 32)] if order is None else [])
            for experts, unit in cells:
                splits = {"splits": ragged.splits_of(experts, unit)} if unit else {}
                whole = 1024 if order in orders[:2] and (experts, unit) == (256, odd) else 256
                row[f"{experts}/{unit}"] = ragged.time_line(operation, {**given, **splits}, sets, copy, whole)
            report["rows"].append(row)
            lines = {key: row[key] for key in (f"{e}/{u}" for e, u in cells)}
            shares = " ".join(f"{key} {line['us']:6.1f} {100 * line['share']:5.1f}" for key, line in lines.items())
            bad = sum(line["mismatches"] for line in lines.values())
            wrong += bad if order is None or order.split != 4 else 0
            what = " ".join(map(str, order)) if order else "today"
            print(f"{name:31s} {shares} [{what}] {row.get('registers')} regs wrong {bad} "
                  f"{time.perf_counter() - ragged.BEGAN:.0f} s", flush=True)  # fmt: skip
            options.json.write_text(json.dumps(report, indent=1) + "\n")
            cupy.get_default_memory_pool().free_all_blocks()
    report["copy_again"] = ragged.copy_bandwidth()
    print(f"copy again {report['copy_again'] / 1e12:.3f}, wrong {wrong}, "
          f"{time.perf_counter() - ragged.BEGAN:.0f} s", flush=True)  # fmt: skip
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
