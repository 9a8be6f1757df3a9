"""Trial: column conversions by amax where the last segment in a sector stores all of it, on one GPU."""
import argparse, concurrent.futures, json, sys, time, traceback
from pathlib import Path

p = argparse.ArgumentParser()
p.add_argument("--json", type=Path, required=True)
p.add_argument("--seconds", type=float, default=150)
p.add_argument("--mxfp4", action="store_true", help="MXFP4 columns of the earlier trial's tree")
o = p.parse_args()
BEGAN = time.perf_counter()
sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import columns_ragged as ragged
import cupy
import refnum
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver
from refnum.gpu.ops import columns, rowwise
from refnum.gpu.ops.columns import Order

W, B = Order(2, 6, 256, turns=2, split=2), Order(0, 4, 256, cluster=2, split=2)
# line 64: marks are taken as bytes (no waiting; bits may be wrong); line 128: sectors in which segments meet are left out (wrong bits)
CAND = {
    "mxfp4_to_fp8_columns_amax": [W, W._replace(line=64), W._replace(line=128), W._replace(blocks=5), W._replace(across=1),
        W._replace(across=4), W._replace(across=0), Order(2, 6, 128, split=2), Order(4, 6, 128, split=2), Order(2, 5, 128, split=2),
        Order(2, 3, 256, split=2), W._replace(blocks=7)],
    "mxfp4_to_fp8_rows_columns_amax": [B, B._replace(line=64), B._replace(line=128), B._replace(cluster=1), B._replace(blocks=3),
        B._replace(cluster=1, across=2), B._replace(cluster=1, across=4), B._replace(across=2), Order(0, 7, 128, split=2)],
}
if o.mxfp4:
    F = Order(1, 3, 256, split=2)
    CAND = {"mxfp4_columns_amax": [F, F._replace(across=2), F._replace(across=0), Order(2, 5, 128, split=2), Order(2, 6, 128, split=2),
                                   Order(4, 5, 128, split=2), F._replace(blocks=2)]}
report = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), "rows": [], "small": {}}
say = lambda *a: print(*a, f"[{time.perf_counter() - BEGAN:.0f} s]", flush=True)
save = lambda: o.json.write_text(json.dumps(report, indent=1) + "\n")
left = lambda: o.seconds - (time.perf_counter() - BEGAN)


def choose(name, order):
    columns.SEGMENTS.pop(name, None)
    if order is not None:
        columns.SEGMENTS[name] = order
    plans.forget()


def tag(order):
    return "today" if order is None else " ".join(map(str, order))


arch, failed = build.architecture(driver().capability(0)), set()
def make(job):
    try:
        build.compiled(job[0], arch, defines=job[1])
    except Exception as e:
        failed.add(job)
        say("NOT COMPILED", job, str(e)[:300])
jobs = {(n.removesuffix("_amax"), q.defines) for n, qs in CAND.items() for q in [*qs, columns.TUNING[n], columns.RAGGED[n], columns.TUNING[n]._replace(split=1)]}
jobs |= {("quantize_mxfp4", rowwise.TUNING["quantize_mxfp4"].defines), ("column_places", ())}
with concurrent.futures.ThreadPoolExecutor() as pool:
    list(pool.map(make, sorted(jobs)))
say(len(jobs), "compiled,", len(failed), "failed")
copy = report["copy"] = ragged.copy_bandwidth()
say(f"{report['device']}, copy {copy / 1e12:.3f} TB/s; per experts/unit: us, share of a copy in %")
sets = [ragged.fp4(seed) for seed in range(ragged.SETS)]


def measure(name, order, cells, whole=False):
    operation, given = ragged.LINES[name]
    row = {"name": name, "order": order and order._asdict(), "tag": tag(order)}
    try:
        choose(name, order)
        if order:
            row |= driver().resources(driver().function(operation, name, 0, order.defines))
        text = ""
        for experts, unit in cells:
            splits = {"splits": ragged.splits_of(experts, unit)} if unit else {}
            line = row[f"{experts}/{unit}"] = ragged.time_line(operation, {**given, **splits}, sets, copy, 1024 if whole else 256)
            text += f"  {experts}/{unit} {line['us']:6.1f} {100 * line['share']:5.1f}{' WRONG %d' % line['mismatches'] if line['mismatches'] else ''}"
        say(f"{name:31s}{text}  {tag(order)}  {row.get('registers')} regs {row.get('local_bytes')} local")
    except Exception as e:
        row["error"] = repr(e)[:500]
        say(name, tag(order), "FAILED", repr(e)[:300])
        if "CUDA" in repr(e) and "rror" in repr(e): traceback.print_exc()
    report["rows"].append(row); save()
    cupy.get_default_memory_pool().free_all_blocks()
    return row


def small(name, order, every=1):
    operation, options = ragged.LINES[name]
    bad = compared = cases = 0
    try:
        choose(name, order)
        for seed, (splits, k, kind, pad) in enumerate(ragged.small_cases()):
            if seed % every or left() < 0: continue
            rows = ragged.fitting(operation, list(splits))
            rows.append(-sum(rows) % 32 + 32 * (seed % 2) + 16 * (seed % 3 == 0))
            given = ragged.small_inputs(operation, sum(rows), k, kind, seed)
            wants = getattr(refnum, operation)(*given, rows, **options)
            for again in range(3):
                outs = ragged.poisoned(wants)
                getattr(ops, operation)(*(ragged.padded(x, pad) for x in given), rows, **options, out=outs)
                these = sum(int((got.get() != want).sum()) for got, want in zip(outs, wants))
                compared += sum(w.size for w in wants)
                if these:
                    bad += these
                    say("WRONG", name, tag(order), rows[:8], k, kind, pad, these)
            cases += 1
    except Exception as e:
        bad = -1
        say(name, tag(order), "small FAILED", repr(e)[:300])
    report["small"][f"{name} {tag(order)}"] = [cases, compared, bad]; save()
    say(f"small {name} {tag(order)}: {cases} cases, {compared} compared, {bad} wrong")


odd = 2 if o.mxfp4 else 1
far = [(64, odd), (256, odd)]
for name, orders in CAND.items():
    measure(name, None, [*far, (64, 16), (256, 16), (256, 32), (256, 128), (1, 0)])
    measure(name, orders[0], [*far, (64, 16), (256, 16), (256, 4)])
for name, orders in CAND.items():
    small(name, orders[0], 2)
best = {}
for name, orders in CAND.items():
    for number, order in enumerate(orders[1:]):
        if left() < 25: break
        measure(name, order, far)
    rows = [r for r in report["rows"] if r["name"] == name and r["order"] and r["order"]["line"] == 32 and f"256/{odd}" in r
            and not any(r[k]["mismatches"] for k in r if "/" in k)]
    if rows: best[name] = max(rows, key=lambda r: sum(r[k]["share"] for k in (f"64/{odd}", f"256/{odd}")))
for name, r in best.items():
    order = Order(**r["order"])
    say("BEST", name, r["tag"])
    if left() < 0: break
    measure(name, order, [*far, (64, 8), (256, 8), (64, 2), (256, 2), (64, 4), (256, 16)], whole=left() > 20)
    if left() > 10 and order != CAND[name][0]: small(name, order, 3)
report["copy_again"] = ragged.copy_bandwidth(); save()
say(f"copy again {report['copy_again'] / 1e12:.3f}")
