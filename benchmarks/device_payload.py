"""Payload kernels on one GPU: bits against the golden model, then time against a device copy in the same run.

    python benchmarks/device_payload.py --json payload.json    check and time the kernels as they ship
    python benchmarks/device_payload.py --sweep                time other grids too

Time and bytes as in benchmarks/device.py; padding rows count as written. Shapes are (tokens, experts, hidden, top-k).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import refnum
from benchmarks.device import as_bits, copy_bandwidth, time_calls, tuple_of
from benchmarks.device_cases import noise
from refnum.gpu import ops
from refnum.gpu.device import compile as build
from refnum.gpu.device import plans
from refnum.gpu.device.driver import driver
from refnum.gpu.ops import payload_sum, rowwise

ROUTES = ((4096, 64, 1280, 7), (4096, 64, 2048, 6), (4096, 160, 5120, 6), (4096, 256, 7168, 8), (32768, 256, 7168, 1),
          (32768, 256, 7168, 8))  # fmt: skip
LOCAL = ((4096, 8, 2048, 512), (32768, 16, 7168, 1024))
"""(Tokens, local experts, hidden, rows that those experts have of them)."""
FILE = {"quantize_payload": "payload_quantize", "fp8_to_payload": "payload_quantize", "unpermute": "permute_sum"}
"""Operation -> kernel file, where it is not `payload_rows`."""
GRIDS = {
    "payload_rows": [rowwise.Grid(t, u, 16, s) for t in (64, 128, 256, 512) for u in (4, 8) for s in (0, 1)],
    "payload_quantize": [rowwise.Grid(t, u, 32, s) for t in (128, 256, 512) for u in (1, 2) for s in (0, 1)],
    "permute_sum": [rowwise.Grid(t, u, 4, s) for t in (128, 256) for u in (4, 8) for s in (0, 1)],
}
ENOUGH = 400 << 20
"""Bytes that the buffer sets of a line have together, several times the L2."""


class Line(NamedTuple):
    """One line of the table; `separate`: the operations that a user would run one after another instead."""

    name: str
    operation: str
    make: Callable[[int], tuple[Any, ...]]
    separate: Callable[..., Any] | None = None
    columns: bool = False


def routing(tokens: int, experts: int, top: int, seed: int) -> tuple[Any, list[int]]:
    """Return (row map int32, splits) of tokens that each pick `top` different experts at random."""
    score = cupy.random.default_rng(seed).random((tokens, experts), np.float32)
    picked = cupy.argpartition(score, top, axis=1)[:, :top].reshape(-1)
    token = cupy.repeat(cupy.arange(tokens, dtype=np.int64), top)
    order = cupy.argsort(picked * tokens + token)
    return token[order].astype(np.int32), cupy.bincount(picked, minlength=experts).tolist()


def octets(rows: int, width: int, seed: int) -> Any:
    return cupy.random.default_rng(seed).integers(0, 256, (rows, width), dtype=np.uint8)


def gathered(tokens: int, experts: int, hidden: int, top: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda seed: (octets(tokens, hidden // 32 * 17, seed), *routing(tokens, experts, top, seed))


def summed(dtype: str, tokens: int, experts: int, hidden: int, top: int) -> Callable[[int], tuple[Any, ...]]:
    def make(seed: int) -> tuple[Any, ...]:
        row_map, splits = routing(tokens, experts, top, seed)
        rows = noise((sum(-(-m // 32) * 32 for m in splits), hidden), dtype, seed)
        weights = cupy.random.default_rng(seed).random(row_map.size, np.float32)
        return rows, row_map, splits, weights, tokens

    return make


def summed_local(tokens: int, experts: int, hidden: int, rows: int) -> Callable[[int], tuple[Any, ...]]:
    """Rows of the few experts that one rank has, of tokens that mostly went elsewhere."""

    def make(seed: int) -> tuple[Any, ...]:
        picked = cupy.random.default_rng(seed).permutation(tokens)[:rows].astype(np.int32)
        splits = [rows // experts] * experts
        return noise((rows, hidden), "bfloat16", seed), picked, splits, None, tokens

    return make


def lines() -> Iterator[Line]:
    """Yield the lines: 32768 x 7168 first, then every route."""
    m, k = 32768, 7168
    yield Line("pack", "pack_payload", lambda seed: (octets(m, k // 2, seed), octets(m, k // 32, seed + 9)))
    yield Line("unpack", "unpack_payload", lambda seed: (octets(m, k // 32 * 17, seed),))
    for dtype in ("bfloat16", "float16", "float32"):
        yield Line(
            f"{dtype} -> payload", "quantize_payload", lambda seed, d=dtype: (noise((m, k), d, seed),),
            lambda x: ops.pack_payload(*ops.quantize_mxfp4(x)),
        )  # fmt: skip
    yield Line(
        "FP8 -> payload", "fp8_to_payload", lambda seed: ops.quantize_fp8_tiles(noise((m, k), "bfloat16", seed)),
        lambda codes, scales: ops.pack_payload(*ops.fp8_to_mxfp4(codes, scales)),
    )  # fmt: skip
    for route in ROUTES:
        yield Line(f"permute + pad {route}", "permute_pad", gathered(*route))
        yield Line(
            f"permute + pad + unpack {route}", "permute_unpack", gathered(*route),
            lambda *x: ops.unpack_payload(ops.permute_pad(*x)[0]),
        )  # fmt: skip
    for route in ROUTES:
        yield Line(f"unpermute BF16 {route}", "unpermute", summed("bfloat16", *route), columns=True)
    for local in LOCAL:
        yield Line(f"unpermute BF16 local {local}", "unpermute", summed_local(*local), columns=True)
    yield Line(f"unpermute FP32 {ROUTES[3]}", "unpermute", summed("float32", *ROUTES[3]), columns=True)


def mismatches(line: Line, inputs: tuple[Any, ...], results: tuple[Any, ...]) -> tuple[int, int]:
    """Compare with the golden model on the same device -> (elements compared, unlike ones)."""
    golden, compared, wrong = getattr(refnum, line.operation), 0, 0
    if line.columns:  # columns of `unpermute` do not meet
        step = 512
        for column in range(0, inputs[0].shape[1], step):
            want = golden(cupy.ascontiguousarray(inputs[0][:, column : column + step]), *inputs[1:])
            wrong += int((as_bits(want) != as_bits(results[0][:, column : column + step])).sum())
        return results[0].size, wrong
    step = inputs[0].shape[0] if isinstance(inputs[-1], list) else 2048
    for row in range(0, inputs[0].shape[0], step):
        part = [x[row : row + step] for x in inputs] if step == 2048 else inputs
        for want, got in zip(tuple_of(golden(*part)), results, strict=True):
            mine = got[row : row + step] if step == 2048 else got
            compared, wrong = compared + want.size, wrong + int((want != mine).sum())
    return compared, wrong


def run(line: Line, sweep: bool, check: bool, copy: float) -> dict[str, Any]:
    """Check and time one line."""
    file, function = FILE.get(line.operation, "payload_rows"), getattr(ops, line.operation)
    inputs = [line.make(0)]
    outs = [tuple_of(function(*inputs[0]))]
    read = [x for x in inputs[0] if isinstance(x, cupy.ndarray)]
    moved = sum(x.nbytes for x in read) + sum(x.nbytes for x in outs[0])
    if line.columns:  # padding rows are not read
        moved -= (inputs[0][0].shape[0] - inputs[0][1].size) * inputs[0][0].shape[1] * inputs[0][0].itemsize
    row: dict[str, Any] = {"name": line.name, "operation": line.operation, "bytes": moved}
    for number in range(1, max(2, -(-ENOUGH // moved))):
        inputs.append(line.make(number))
        outs.append(tuple_of(function(*inputs[-1])))
    if check:
        for out in outs[:2]:
            for x in out:
                x.view(np.uint8)[...] = 0xA5
        row["compared"] = row["mismatches"] = 0
        for x, out in zip(inputs[:2], outs[:2], strict=True):
            function(*x, out=out if len(out) > 1 else out[0])
            compared, wrong = mismatches(line, x, out)
            row["compared"] += compared
            row["mismatches"] += wrong
    calls = [
        lambda x=x, out=out: function(*x, out=out if len(out) > 1 else out[0])
        for x, out in zip(inputs, outs, strict=True)
    ]
    same = copy_bandwidth(max(moved // 2 & -(1 << 20), 1 << 20))
    shipped = rowwise.TUNING[file]
    for grid in [shipped, *(GRIDS[file] if sweep else [])]:
        for columns in (payload_sum.COLUMNS, *((512, 1024, 1792) if sweep and file == "permute_sum" else ())):
            kept, payload_sum.COLUMNS, rowwise.TUNING[file] = payload_sum.COLUMNS, columns, grid
            plans.forget()
            times = time_calls(calls)
            payload_sum.COLUMNS = kept
            median = statistics.median(times)
            entry = {"grid": " ".join(grid.defines) + (f" {columns}" if file == "permute_sum" else ""),
                     "us": round(median, 2), "us_min": round(min(times), 2), "us_max": round(max(times), 2),
                     "tb_s": round(moved / median * 1e-6, 3), "share": round(moved / median * 1e6 / copy, 4),
                     "share_of_copy_as_long": round(moved / median * 1e6 / same, 4)}  # fmt: skip
            row.setdefault("sweep", []).append(entry)
    rowwise.TUNING[file] = shipped
    plans.forget()
    row |= row["sweep"][0]
    if line.separate is not None:
        apart = [lambda x=x: line.separate(*x) for x in inputs]
        row["separate_us"] = round(statistics.median(time_calls(apart)), 2)
    print(
        f"{line.name:48s} {row['us']:7.1f} us ({row['us_min']:.1f}..{row['us_max']:.1f}) {row['tb_s']:.2f} TB/s "
        f"{100 * row['share']:5.1f} % {100 * row['share_of_copy_as_long']:5.1f} % of a copy as long"
        + (f", separate {row['separate_us']}" if "separate_us" in row else "")
        + (f", {row['mismatches']} of {row['compared']} unlike" if check else ""),
        flush=True,
    )
    for entry in sorted(row["sweep"], key=lambda e: e["us"])[:5] if sweep else []:
        print(f"    {entry['us']:7.1f} us {100 * entry['share']:5.1f} %  {entry['grid']}", flush=True)
    if not sweep:
        del row["sweep"]
    return row


def prepare(sweep: bool) -> None:
    """Compile what will be launched, several at a time."""
    arch = build.architecture(driver().capability(0))
    jobs = {(file, grid) for file, grids in GRIDS.items() for grid in [rowwise.TUNING[file], *(grids if sweep else [])]}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: build.compiled(job[0], arch, defines=job[1].defines), jobs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="beginnings of the names of the lines to run")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    prepare(options.sweep)
    copy = copy_bandwidth()
    about = {
        "device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), "nvrtc": build.nvrtc().version,
        "command": "python " + " ".join(["benchmarks/device_payload.py", *sys.argv[1:]]),
        "copy_bytes_per_second": copy,
    }  # fmt: skip
    print(f"{about['device']}, copy {copy / 1e12:.3f} TB/s (bytes read and written)", flush=True)
    rows = []
    for line in lines():
        if options.only and not line.name.startswith(tuple(options.only)):
            continue
        try:
            rows.append(run(line, options.sweep, not options.no_check, copy))
        except cupy.cuda.memory.OutOfMemoryError as error:
            print(f"{line.name}: {error}", flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
    about["copy_again_bytes_per_second"] = copy_bandwidth()
    if options.json:
        options.json.write_text(json.dumps({"about": about, "kernels": rows}, indent=1) + "\n")
    return int(any(row.get("mismatches") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
