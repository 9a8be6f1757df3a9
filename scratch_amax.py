"""Trial: column conversions by amax whose shared sectors a second launch writes, on one GPU."""
import argparse, concurrent.futures, json, sys, time, traceback
from pathlib import Path

p = argparse.ArgumentParser()
p.add_argument("--json", type=Path, required=True)
p.add_argument("--seconds", type=float, default=55)
o = p.parse_args()
BEGAN = time.perf_counter()
sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import columns_ragged as ragged
import cupy
import numpy as np
import refnum
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver
from refnum.gpu.ops import columns, rowwise
from refnum.gpu.ops.columns import Order

W, B = Order(2, 6, 256, turns=2, split=2), Order(0, 4, 256, cluster=2, split=2)
# (order, macros of column_seams); seams None: pass 1 alone, whose outputs lack the sectors in which segments meet
S = ()
CAND = {
    "mxfp4_to_fp8_columns_amax": [(W, S), (W, None), (W, ("ROUTE=1",)), (W, ("ROUTE=2",)), (W, ("BLOCKS=5",)), (W, ("BLOCKS=7",)),
        (W._replace(across=4), S), (W._replace(across=1), S), (Order(2, 6, 128, split=2), S)],
    "mxfp4_to_fp8_rows_columns_amax": [(B, S), (B, None), (B, ("ROUTE=1",)), (B, ("ROUTE=2",)), (B, ("BLOCKS=7",)), (B._replace(cluster=1), S),
        (B._replace(across=2), S)],
}
report = {"device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), "rows": [], "small": {}}
say = lambda *a: print(*a, f"[{time.perf_counter() - BEGAN:.0f} s]", flush=True)
save = lambda: o.json.write_text(json.dumps(report, indent=1) + "\n")
left = lambda: o.seconds - (time.perf_counter() - BEGAN)


real, columns.CROWDED = columns._launch_seams, 1000
def choose(name, order, seams=()):
    columns.SEGMENTS.pop(name, None)
    if order is not None:
        columns.SEGMENTS[name] = order
    columns.SEAM_DEFINES = seams or ()
    columns._launch_seams = real if seams is not None else lambda *a: None
    plans.forget()


def tag(order, seams=()):
    return "today" if order is None else " ".join(map(str, order)) + (" PASS 1 ONLY" if seams is None else " " + " ".join(seams))


arch, failed = build.architecture(driver().capability(0)), set()
def make(job):
    try:
        build.compiled(job[0], arch, defines=job[1])
    except Exception as e:
        failed.add(job)
        say("NOT COMPILED", job, str(e)[:300])
jobs = {(n.removesuffix("_amax"), q.defines) for n, qs in CAND.items() for q in [*(q for q, _ in qs), columns.TUNING[n], columns.RAGGED[n], columns.TUNING[n]._replace(split=1)]}
jobs |= {("column_seams", d) for qs in CAND.values() for _, d in qs if d is not None}
jobs |= {("quantize_mxfp4", rowwise.TUNING["quantize_mxfp4"].defines)}
with concurrent.futures.ThreadPoolExecutor() as pool:
    list(pool.map(make, sorted(jobs)))
say(len(jobs), "compiled,", len(failed), "failed")
copy = report["copy"] = ragged.copy_bandwidth()
say(f"{report['device']}, copy {copy / 1e12:.3f} TB/s; per experts/unit: us, share of a copy in %")
sets = [ragged.fp4(seed) for seed in range(ragged.SETS)]


def measure(name, order, cells, seams=(), whole=False):
    operation, given = ragged.LINES[name]
    row = {"name": name, "order": order and order._asdict(), "seams": seams, "tag": tag(order, seams)}
    try:
        choose(name, order, seams)
        if order:
            row |= driver().resources(driver().function(operation, name, 0, order.defines))
            if seams is not None: row["seam_kernel"] = driver().resources(driver().function("column_seams", "column_seams", 0, seams))
        text = ""
        for experts, unit in cells:
            splits = {"splits": ragged.splits_of(experts, unit)} if unit else {}
            line = row[f"{experts}/{unit}"] = ragged.time_line(operation, {**given, **splits}, sets, copy, 1024 if whole else 256)
            text += f"  {experts}/{unit} {line['us']:6.1f} {100 * line['share']:5.1f}{' WRONG %d' % line['mismatches'] if line['mismatches'] else ''}"
        say(f"{name:31s}{text}  {tag(order, seams)}  {row.get('registers')} regs {row.get('local_bytes')} local, seams {row.get('seam_kernel')}")
    except Exception as e:
        row["error"] = repr(e)[:500]
        say(name, tag(order, seams), "FAILED", repr(e)[:300])
        traceback.print_exc()
    report["rows"].append(row); save()
    cupy.get_default_memory_pool().free_all_blocks()
    return row


def small(name, order, every=1):
    operation, options = ragged.LINES[name]
    bad = compared = cases = taken = 0
    try:
        choose(name, order)
        for seed, (splits, k, kind, pad) in enumerate(ragged.small_cases()):
            if seed % every or left() < 0: continue
            rows = ragged.fitting(operation, list(splits))
            rows.append(-sum(rows) % 32 + 32 * (seed % 2) + 16 * (seed % 3 == 0))
            taken += columns._cut(name, np.cumsum([n for n in rows if n]).tolist(), columns.Shape(), 16)[0].split == 2
            given = ragged.small_inputs(operation, sum(rows), k, kind, seed)
            wants = getattr(refnum, operation)(*given, rows, **options)
            for again in range(2):
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
        say(name, tag(order), "small FAILED", repr(e)[:300]); traceback.print_exc()
    plans.forget()
    report["small"][f"{name} {tag(order)}"] = [cases, taken, compared, bad]; save()
    say(f"small {name} {tag(order)}: {cases} cases, {taken} by segments, {compared} compared, {bad} wrong")


far, also = [(64, 1), (256, 1)], [(64, 16), (256, 16)]
for name, pairs in CAND.items():
    measure(name, None, [*far, *also, (512, 1), (1024, 1), (256, 32), (256, 128), (1, 0)])
    measure(name, pairs[0][0], [*far, *also, (512, 1), (1024, 1), (256, 4)], whole=name == "mxfp4_to_fp8_columns_amax")
    measure(name, *[pairs[1][0]], [*far, *also], None)
for name, pairs in CAND.items():
    small(name, pairs[0][0], 2)
for name, pairs in CAND.items():
    for order, seams in pairs[2:]:
        if left() < 4: break
        measure(name, order, far, seams)
report["copy_again"] = ragged.copy_bandwidth(); save()
say(f"copy again {report['copy_again'] / 1e12:.3f}")
