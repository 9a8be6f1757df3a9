"""Trial: column conversions by `amax` over experts that begin at any row, today's order beside others, on one GPU.

python benchmarks/columns_segments.py --json segments.json [--seconds 200] [--small 3]
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

WIDE = Order(2, 6, 256, turns=2, split=5)
BOTH = Order(0, 4, 256, split=5)
FOUR = Order(1, 3, 256, split=5)
CANDIDATES: dict[str, list[Order]] = {
    "mxfp4_to_fp8_columns_amax": [
        WIDE._replace(split=2), WIDE._replace(split=6), *(WIDE._replace(cluster=n) for n in (1, 2, 4, 8)),
        *(WIDE._replace(cluster=n, line=64) for n in (4, 8)), *(WIDE._replace(cluster=8, across=n) for n in (0, 1, 4)),
        WIDE._replace(cluster=8, blocks=5), WIDE._replace(cluster=8, blocks=7),
        *(Order(2, blocks, split=5, cluster=n) for blocks in (5, 6, 8) for n in (4, 8)),
    ],
    "mxfp4_columns_amax": [
        FOUR._replace(split=2), FOUR._replace(split=6), *(FOUR._replace(cluster=n) for n in (1, 2, 4, 8)),
        *(FOUR._replace(cluster=n, across=2) for n in (4, 8)),
        *(Order(2, blocks, split=5, cluster=n) for blocks in (5, 6, 7) for n in (2, 4, 8)),
        Order(4, 5, split=5, cluster=4), Order(1, 5, split=5, cluster=4),
    ],
    "mxfp4_to_fp8_rows_columns_amax": [
        BOTH._replace(split=2, cluster=2), BOTH._replace(split=6, cluster=2),
        *(BOTH._replace(cluster=n) for n in (1, 2, 4, 8)),
        *(BOTH._replace(cluster=n, line=64) for n in (2, 4, 8)), BOTH._replace(cluster=4, blocks=3),
        BOTH._replace(cluster=4, across=2), BOTH._replace(cluster=4, across=4),
    ],
}  # fmt: skip
"""Orders to be timed. Split 2: bytes at ends; 5: ends joined in a cluster; 6: no sectors at ends, wrong bits."""
WRONG, CUT = 6, columns._cut


def forced(name: str) -> Any:
    """Return `columns._cut` that cuts aligned experts as others."""

    def cut(own: str, ends: Any, shape: Any) -> Any:
        return columns.SEGMENTS[name], (columns._block_parts if shape.tall == 32 else columns._whole_parts)(ends, shape)

    return cut


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
    print(f"small {name} {tuple(order)}: {compared} compared, {bad} wrong, "
          f"{time.perf_counter() - ragged.BEGAN:.0f} s", flush=True)  # fmt: skip
    return bad


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--small", type=int, default=3, help="one small case of so many")
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
        seen = set()
        for order in orders:
            if order.split == 5 and (order.wide, order.cluster, order.line) not in seen:
                seen.add((order.wide, order.cluster, order.line))
                wrong += small(name, order, options.small)
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
            aligned = [(256, 32), (1, 0)] if order in (None, *orders[:6]) else []
            cells = [(64, odd), (256, odd), (256, 16), *aligned]
            for experts, unit in cells:
                columns._cut = forced(name) if order and (experts, unit) in aligned else CUT
                splits = {"splits": ragged.splits_of(experts, unit)} if unit else {}
                whole = 1024 if order in orders[4:6] and (experts, unit) == (256, odd) else 256
                row[f"{experts}/{unit}"] = ragged.time_line(operation, {**given, **splits}, sets, copy, whole)
            columns._cut = CUT
            report["rows"].append(row)
            lines = {key: row[key] for key in (f"{e}/{u}" for e, u in cells)}
            shares = " ".join(f"{key} {line['us']:6.1f} {100 * line['share']:5.1f}" for key, line in lines.items())
            bad = sum(line["mismatches"] for line in lines.values())
            wrong += bad if order is None or order.split != WRONG else 0
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
