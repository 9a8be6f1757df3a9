"""Orders of the column conversions by `amax` over experts that begin at any row, beside those that ship, on one GPU.

    python benchmarks/columns_trial.py --json trial.json

Every byte of every order is compared: of small ragged inputs with the golden model; of the timed arrays with the
shipped kernel, whose bytes are compared with the model. Outputs are poisoned first. Orders are timed by turns.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import statistics
import time
from pathlib import Path
from typing import Any

import columns_ragged as ragged
import cupy
from columns_ragged import BEGAN, LINES, SETS, K, M, check_large, copy_bandwidth, fitting, fp4, tuple_of

import refnum
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver
from refnum.gpu.ops import columns, rowwise
from refnum.gpu.ops.columns import Order

SHIPPED = "shipped"
TRIALS: dict[str, dict[str, Order]] = {
    "mxfp4_to_fp8_columns_amax": {
        SHIPPED: columns.RAGGED["mxfp4_to_fp8_columns_amax"],
        "6 x 10": Order(2, 6, ragged=1, strip=10),
        "6 x 19": Order(2, 6, ragged=1, strip=19),
        "7 x 8 b": Order(2, 7, ragged=1, strip=8, line=64),
        "7 x 16 b": Order(2, 7, ragged=1, strip=16, line=64),
        "8 x 7 b": Order(2, 8, ragged=1, strip=7, line=64),
    },
    "mxfp4_to_fp8_rows_columns_amax": {
        SHIPPED: columns.RAGGED["mxfp4_to_fp8_rows_columns_amax"],
        "5 x 12": Order(0, 5, ragged=1, strip=12),
        "5 x 24": Order(0, 5, ragged=1, strip=24),
        "6 x 10 b": Order(0, 6, ragged=1, strip=10, line=64),
        "7 x 8 b": Order(0, 7, ragged=1, strip=8, line=64),
        "6 x 19 b": Order(0, 6, ragged=1, strip=19, line=64),
    },
}
"""Function -> its orders: CTAs a multiprocessor and windows a strip; `b`: two windows in shared memory, not three."""
PLACES = ((64, 1), (256, 1), (256, 16))
"""Experts, and the number of which their first rows are odd multiples."""
ROUNDS, REPEATS = 6, 8


def take(name: str, order: Order) -> None:
    """Let a function's next calls have this order."""
    columns.RAGGED[name] = order
    plans.forget()


def prepare() -> None:
    """Compile what will be launched, several at a time; print what every order takes."""
    used = {name: (columns.TUNING[name], *orders.values()) for name, orders in TRIALS.items()}
    jobs = {(LINES[name][0], order.defines) for name, orders in used.items() for order in orders}
    jobs.add(("quantize_mxfp4", rowwise.TUNING["quantize_mxfp4"].defines))
    arch = build.architecture(driver().capability(0))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: build.compiled(job[0], arch, defines=job[1]), sorted(jobs)))
    print(f"{len(jobs)} compiled, {time.perf_counter() - BEGAN:.0f} s", flush=True)
    for name, orders in TRIALS.items():
        for label, order in orders.items():
            found = driver().resources(driver().function(LINES[name][0], name, 0, order.defines))
            print(f"  {name:32s} {label:8s} {found}")


def check_small() -> tuple[int, int]:
    """Compare every order with the model over small inputs: (elements compared, mismatches)."""
    compared = wrong = 0
    for name, orders in TRIALS.items():
        operation, options = LINES[name]
        for seed, (splits, k, kind, pad) in enumerate(ragged.small_cases()):
            rows = fitting(operation, list(splits))
            given = ragged.small_inputs(operation, sum(rows), k, kind, seed)
            wants = getattr(refnum, operation)(*given, rows, **options)
            on_device = [ragged.padded(x, pad) for x in given]
            for label, order in orders.items():
                take(name, order)
                outs = ragged.poisoned(wants)
                getattr(ops, operation)(*on_device, rows, **options, out=outs)
                bad = sum(int((got.get() != want).sum()) for got, want in zip(outs, wants, strict=True))
                if bad:
                    print(f"WRONG {name} {label} {len(rows)} experts {rows[:8]} K={k} {kind} pad {pad}: {bad}")
                wrong, compared = wrong + bad, compared + sum(want.size for want in wants)
        take(name, orders[SHIPPED])
    print(f"small: {compared} elements compared, {wrong} wrong, {time.perf_counter() - BEGAN:.0f} s", flush=True)
    return compared, wrong


def spoil(outs: list[tuple[Any, ...]]) -> None:
    for out in outs:
        for y in out:
            y[...] = 0xA5


Times = dict[str, list[float]]


def time_rounds(name: str, orders: dict[str, Order], sets: Any, outs: Any, given: dict[str, Any]) -> Times:
    """Return microseconds of every order's launches, the orders by turns."""
    function = getattr(ops, LINES[name][0])
    times: Times = {label: [] for label in orders}
    for _ in range(ROUNDS):
        for label, order in orders.items():
            take(name, order)
            calls = [lambda x=x, out=out: function(*x, **given, out=out) for x, out in zip(sets, outs, strict=True)]
            for call in calls * 2:
                call()
            events = [(cupy.cuda.Event(), cupy.cuda.Event()) for _ in range(REPEATS)]
            for number, (start, stop) in enumerate(events):
                start.record()
                calls[number % len(calls)]()
                stop.record()
            cupy.cuda.Device().synchronize()
            times[label] += [1000 * cupy.cuda.get_elapsed_time(start, stop) for start, stop in events]
    return times


def run(name: str, sets: list[tuple[Any, ...]], copy: float) -> list[dict[str, Any]]:
    """Check and time one function's orders: dense as shipped, then over experts."""
    operation, options = LINES[name]
    orders, found = TRIALS[name], []
    take(name, orders[SHIPPED])
    for experts, unit in ((1, 0), *PLACES):
        given = {**options, **({"splits": ragged.splits_of(experts, unit)} if unit else {})}
        these = orders if unit else {SHIPPED: orders[SHIPPED]}
        take(name, orders[SHIPPED])
        outs = [tuple_of(getattr(ops, operation)(*x, **given)) for x in sets]
        spoil(outs)
        getattr(ops, operation)(*sets[0], **given, out=outs[0])
        compared, wrong = check_large(operation, given, sets[0], outs[0], 1024 if (experts, unit) == (256, 1) else 256)
        rights = [y.copy() for y in outs[0]]
        moved = sum(y.nbytes for y in sets[0]) + sum(y.nbytes for y in outs[0])
        differ = {SHIPPED: wrong}
        for label, order in these.items():
            if label == SHIPPED:
                continue
            take(name, order)
            spoil(outs)
            getattr(ops, operation)(*sets[0], **given, out=outs[0])
            differ[label] = sum(int((mine != right).sum()) for mine, right in zip(outs[0], rights, strict=True))
        times = time_rounds(name, these, sets, outs, given)
        for label in these:
            median = statistics.median(times[label])
            found.append({"name": name, "order": label, "experts": experts, "unit": unit, "us": round(median, 2),
                          "us_min": round(min(times[label]), 2), "share": round(moved / (median * 1e-6) / copy, 4),
                          "compared": compared, "mismatches": differ[label]})  # fmt: skip
    take(name, orders[SHIPPED])
    print(f"{name}: per cent of a copy (us), dense, then {', '.join(f'{e} x odd {u}' for e, u in PLACES)}; wrong bytes")
    for label in orders:
        rows = [row for row in found if row["order"] == label]
        cells = "  ".join(f"{100 * row['share']:5.1f} ({row['us']:6.1f})" for row in rows)
        wrong = sum(row["mismatches"] for row in rows)
        print(f"  {label:8s} {'' if label == SHIPPED else ' ' * 16}{cells}  {wrong}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-check", action="store_true", help="leave the small inputs out")
    options = parser.parse_args()
    prepare()
    report: dict[str, Any] = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
                              "nvrtc": build.nvrtc().version, "shape": [M, K]}  # fmt: skip
    wrong = 0
    if not options.no_check:
        report["small_compared"], wrong = check_small()
    copy = report["copy_bytes_per_second"] = copy_bandwidth()
    print(f"{report['device']}, copy {copy / 1e12:.3f} TB/s", flush=True)
    sets = [fp4(seed) for seed in range(SETS)]
    report["orders"] = {
        name: {key: order._asdict() for key, order in orders.items()} for name, orders in TRIALS.items()
    }
    report["lines"] = []
    for name in TRIALS:
        report["lines"] += run(name, sets, copy)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    report["copy_again_bytes_per_second"] = copy_bandwidth()
    wrong += sum(row["mismatches"] for row in report["lines"])
    print(f"copy again {report['copy_again_bytes_per_second'] / 1e12:.3f} TB/s, wrong {wrong}, "
          f"{time.perf_counter() - BEGAN:.0f} s", flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
