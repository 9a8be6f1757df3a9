"""Elements a second of the golden model and of public implementations, on the same arrays, in one run.

    python benchmarks/golden.py [--rows 2048] [--columns 2048] [--rounds 9] [--json]
                                [--out FILE.json] [--markdown FILE.md]

Everything runs in one process. The contenders of a row take turns inside each round, so a disturbance meets them
all; a figure is the median over the rounds, a ratio the median of the rounds' ratios. The model and NumPy use one
core; torch libraries are timed with one thread and, where the machine has more, with as many as they take. One
thread is compared by its own CPU time, which other processes hardly lengthen; more threads by the wall clock.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import contenders as c
import ml_dtypes
import numpy as np
from golden_page import markdown, show, write
from rich.console import Console

import refnum

SETTLE = 0.25
"""Seconds of rest after a call with several threads: its workers spin on, and would slow the next contender down."""
SMALL_ROWS = 64
"""Rows that gfloat is given: it takes one block a call, so the rate is what counts."""


@dataclass
class Contender:
    """One implementation in one row: `make(rows)` prepares it on the first `rows` rows and returns the call."""

    name: str
    make: Callable[[int], Callable[[], object]]
    note: str = ""
    small: bool = False
    comparable: bool = False


@dataclass
class Row:
    """One operation and who does it; the first contender is the model."""

    name: str
    contenders: list[Contender] = field(default_factory=list)


def rows_of(x, b, shape):
    """The table of what is timed. x float32, b bfloat16, both [M, K]."""
    packed, scales = refnum.quantize_mxfp4(b)
    codes, tiles = refnum.quantize_fp8_tiles(b)

    def ours(function, *arrays, **keywords):
        return Contender("refnum", lambda n: c.model(function, *(array[:n] for array in arrays), **keywords))

    def peer(library, make, *arrays, note="", small=False, comparable=False, **keywords):
        def prepared(n):
            return make(*(np.ascontiguousarray(array[:n]) for array in arrays), **keywords)

        return Contender(library, prepared, note, small, comparable)

    mx = "returns values, not codes"
    f32 = "float32 scales"
    return [
        Row("float32 -> MXFP4, rceil", [
            ours("quantize_mxfp4", x), peer("torchao", c.torchao_quantize, x, mode="RCEIL", comparable=True)]),
        Row("float32 -> MXFP4, floor", [
            ours("quantize_mxfp4", x, profile="OCP"),
            peer("torchao", c.torchao_quantize, x, mode="FLOOR", comparable=True),
            peer("microxcaling", c.microxcaling_quantize, x, note=mx),
            peer("gfloat", c.gfloat_quantize, x, small=True, comparable=True)]),
        Row("bfloat16 -> MXFP4, rceil", [
            ours("quantize_mxfp4", b), peer("torchao", c.torchao_quantize, b, mode="RCEIL", comparable=True)]),
        Row("bfloat16 -> MXFP4, floor", [
            ours("quantize_mxfp4", b, profile="OCP"),
            peer("torchao", c.torchao_quantize, b, mode="FLOOR", comparable=True),
            peer("microxcaling", c.microxcaling_quantize, b, note=mx),
            peer("gfloat", c.gfloat_quantize, b, small=True, comparable=True)]),
        Row("float32 -> E4M3, no scale", [
            Contender("refnum", lambda n: lambda: (refnum.encode("E4M3", x[:n]),)),
            peer("gfloat", c.gfloat_cast, x, small=True, comparable=True),
            peer("ml_dtypes", c.ml_dtypes_cast, x, note="C++", comparable=True),
            peer("torch", c.torch_cast, x, note="C++", comparable=True)]),
        Row("float32 -> FP8 1x128", [
            ours("quantize_fp8_tiles", x), peer("torchao", c.torchao_fp8_tiles, x, note=f32),
            peer("torch", c.torch_fp8_tiles, x, note="plain operations", comparable=True)]),
        Row("bfloat16 -> FP8 1x128", [
            ours("quantize_fp8_tiles", b), peer("torchao", c.torchao_fp8_tiles, b, note=f32),
            peer("torch", c.torch_fp8_tiles, b, note="plain operations", comparable=True)]),
        Row("MXFP4 -> float32", [
            ours("dequantize_mxfp4", packed, scales),
            peer("torchao", c.torchao_dequantize, packed, scales, comparable=True)]),
        Row("FP8 1x128 -> float32", [
            ours("dequantize_fp8_tiles", codes, tiles),
            peer("torch", c.torch_fp8_dequantize, codes, tiles, note="plain operations", comparable=True)]),
        Row("FP8 1x128 -> MXFP4", [
            ours("fp8_to_mxfp4", codes, tiles),
            peer("torchao", c.torchao_fp8_to_mxfp4, codes, tiles, note="through float32", comparable=True)]),
        Row("MXFP4 -> FP8 1x128", [
            ours("mxfp4_to_fp8", packed, scales),
            peer("torchao", c.torchao_mxfp4_to_fp8, packed, scales, note=f"through float32, {f32}")]),
        Row("MXFP4 -> FP8 columns", [
            ours("mxfp4_to_fp8_columns", packed, scales),
            peer("torchao", c.torchao_mxfp4_to_fp8, packed, scales, columns=True, note=f"through float32, {f32}")]),
        Row("FP8 -> FP8 columns", [
            ours("fp8_columns", codes, tiles),
            peer("torchao", c.torch_fp8_columns, codes, tiles, note=f"through float32, {f32}")]),
        Row("MXFP4 columns", [ours("mxfp4_columns", packed, scales)]),
    ]  # fmt: skip


def threads_of(library):
    """The numbers of threads a library is timed with."""
    if library not in c.THREADED:
        return [1]
    most = os.cpu_count() or 1
    return [1] if most == 1 else [1, most]


def set_threads(library, count):
    if library in c.THREADED:
        import torch

        torch.set_num_threads(count)


def measure(row, shape, rounds):
    """Time every contender of a row, taking turns; return one record each, the model first."""
    entries = []
    for contender in row.contenders:
        if contender.name != "refnum" and c.installed(contender.name) is None:
            continue
        n = min(SMALL_ROWS, shape[0]) if contender.small else shape[0]
        call = contender.make(n)
        for threads in threads_of(contender.name):
            fresh = {"contender": contender, "threads": threads, "elements": n * shape[1], "call": call}
            entries.append({**fresh, "wall": [], "cpu": []})
    results = [warm(entry) for entry in entries]
    for _ in range(rounds):
        for entry in entries:
            set_threads(entry["contender"].name, entry["threads"])
            clock = time.thread_time if entry["threads"] == 1 else time.process_time
            wall, cpu = time.perf_counter(), clock()
            entry["call"]()
            entry["cpu"].append((clock() - cpu) / entry["elements"])
            entry["wall"].append((time.perf_counter() - wall) / entry["elements"])
            if entry["threads"] > 1:
                time.sleep(SETTLE)
    return [record(entry, entries[0], result, results[0]) for entry, result in zip(entries, results, strict=True)]


def warm(entry):
    set_threads(entry["contender"].name, entry["threads"])
    entry["call"]()
    return entry["call"]()


def record(entry, first, result, reference):
    """The figures of one contender; `first` is the model's entry, `reference` its results."""
    contender = entry["contender"]
    clock = "cpu" if entry["threads"] == 1 else "wall"
    ratios = [theirs / ours for theirs, ours in zip(entry[clock], first[clock], strict=True)]
    return {
        "library": contender.name, "threads": entry["threads"], "note": contender.note,
        "elements": entry["elements"],
        "elements_per_second": round(1 / statistics.median(entry["wall"])),
        "elements_per_cpu_second": round(1 / statistics.median(entry["cpu"])),
        "model_is_faster_by": round(statistics.median(ratios), 2), "compared_by": clock,
        "same_bytes": same(result, reference) if contender.comparable else None,
    }  # fmt: skip


def same(result, reference):
    """Whether a contender's bytes are the model's, as far as its rows go."""
    for theirs, ours in zip(result, reference, strict=True):
        theirs = np.asarray(theirs)
        part = np.ascontiguousarray(ours[: theirs.shape[0]])
        if theirs.shape != part.shape or theirs.tobytes() != part.tobytes():
            return False
    return True


def processor():
    """The CPU's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def load_average():
    return [round(part, 2) for part in os.getloadavg()]


def document(arguments, results, load):
    versions = {library: c.installed(library) for library in c.LIBRARIES}
    return {
        "schema": "refnum.bench-golden/1", "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": f"python benchmarks/golden.py --rows {arguments.rows} --columns {arguments.columns} "
                   f"--rounds {arguments.rounds}",
        "cpu": processor(), "cores": os.cpu_count(), "load_average": load,
        "load_average_after": load_average(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "refnum": refnum.__version__,
                     **{library: version for library, version in versions.items() if version}},
        "absent": sorted(library for library, version in versions.items() if not version),
        "data": f"normal(0, 1) float32 [{arguments.rows}, {arguments.columns}], seed 0; bfloat16 of it",
        "rounds": arguments.rounds, "results": results,
    }  # fmt: skip


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2048, help="a multiple of 128")
    parser.add_argument("--columns", type=int, default=2048, help="a multiple of 128")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    parser.add_argument("--markdown", type=Path, help="also write a page here")
    arguments = parser.parse_args(argv)
    sides = (arguments.rows, arguments.columns)
    if min(sides) < 128 or any(side % 128 for side in sides) or arguments.rounds < 1:
        parser.error("--rows and --columns are multiples of 128, --rounds at least 1")
    rng = np.random.default_rng(0)
    shape = (arguments.rows, arguments.columns)
    x = rng.standard_normal(shape, dtype=np.float32)
    b = x.astype(ml_dtypes.bfloat16)
    chosen = [row for row in rows_of(x, b, shape) if arguments.only in row.name]
    if not chosen:
        parser.error(f"no row's name contains {arguments.only!r}")
    load = load_average()
    results = [{"operation": row.name, "contenders": measure(row, shape, arguments.rounds)} for row in chosen]
    made = document(arguments, results, load)
    if arguments.out:
        write(arguments.out, json.dumps(made, indent=1) + "\n")
    if arguments.markdown:
        write(arguments.markdown, markdown(made))
    if arguments.json:
        print(json.dumps(made, indent=1))
    else:
        show(made, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
