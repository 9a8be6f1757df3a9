"""Every kernel under compute-sanitizer, without CuPy's memory pool, each answer compared with the golden model's.

    python benchmarks/device_sanitizer.py --largest 16384 --seconds 60 --workers 12 --json sanitizer.json

One process an operation and tool. An operation is asked what mutants of whole kernels are asked: frozen vectors,
corners and samples of up to `--largest` elements, on every way that a launcher takes by size, keys, scale layouts, and
the probes of the calling contract but CUDA graphs, in which no memory can be had without a pool. `--seconds` bounds
one process: the JSON says how many questions each was asked, and how many were left. Each tool must find the fault of
a small control kernel first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

TOOLS = {
    "memcheck": ("--leak-check", "no"),
    "initcheck": (),
    "racecheck": (),
    "synccheck": (),
}
"""Tool of compute-sanitizer -> its options."""
PROFILES = ("HOPPER", "TE", "STOCHASTIC")
"""One profile of each kind of rounding: others run the same code with other arguments."""
CONTROLS = {
    "memcheck": "out[1 << 24] = 1;",
    "initcheck": "out[threadIdx.x] += 1;",
    "racecheck": "__shared__ int told[64]; told[threadIdx.x] = threadIdx.x; out[threadIdx.x] = told[63 - threadIdx.x];",
    "synccheck": "__syncwarp(0xFFFF); out[threadIdx.x] = 1;",
}
"""Tool -> the body of a kernel of two warps, given memory that nobody has written: a fault that the tool must find."""
PATIENCE = 600
"""CPU seconds that one question may take under a tool."""
NEEDS_A_POOL = "graph capture"
FOUND = 86
"""Exit status of compute-sanitizer when it has something to say."""
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


def control(tool: str) -> None:
    """Run the control kernel of a tool in this process."""
    import cupy

    cupy.cuda.set_allocator(None)
    out = cupy.empty(64, "int32")
    source = f'extern "C" __global__ void control(int *out) {{ {CONTROLS[tool]} }}'
    cupy.RawKernel(source, "control")((1,), (64,), (out,))
    cupy.cuda.Device().synchronize()


def ask(operation: str, largest: int, seconds: float) -> dict[str, Any]:
    """Ask one operation in this process, without a pool; return how many questions were asked and what is wrong."""
    import cupy

    from refnum.conformance.commands.mutate import kernels_ask
    from refnum.conformance.subjects.loading.discover import installed
    from refnum.conformance.verdicts import probes

    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)
    probes.PROBES = tuple(probe for probe in probes.PROBES if probe.name != NEEDS_A_POOL)
    subject = next(subject for subject in installed()[0] if subject.name == "gpu")
    begun, counts = time.monotonic(), {"asked": 0, "left": 0, "elements": 0}

    def chosen(_number: int, one: Any) -> bool:
        late = time.monotonic() - begun > seconds
        counts["left" if late else "asked"] += 1
        counts["elements"] += 0 if late else one.case.elements
        return not late

    wrong = kernels_ask.ask(subject, operation, kernels_ask.Bounds(PROFILES, largest, PATIENCE), chosen)
    cupy.cuda.Device().synchronize()
    return {**counts, "wrong": wrong, "seconds": round(time.monotonic() - begun, 1)}


def under(tool: str, operation: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one operation under one tool in a process of its own; return the tool's summary and the process's counts."""
    given = ["--operation", operation, "--largest", str(arguments.largest), "--seconds", str(arguments.seconds)]
    status, errors, text = _run(tool, given, arguments.seconds * 3 + 60)
    lines = (line for line in text.splitlines() if line.startswith('{"asked"'))
    told: dict[str, Any] = json.loads(next(lines, "{}"))
    row = {"tool": tool, "operation": operation, "status": status, "errors": errors, **told}
    clean = errors == 0 and status == 0 and told and not told["wrong"]
    return row if clean else {**row, "end": text[-2000:]}


def _run(tool: str, given: list[str], seconds: float) -> tuple[int, int | None, str]:
    """Run this file under a tool; return the exit status, the tool's count of errors, and what was printed.

    One that is late has status -1 and no count. It is ended with all of its session: the tool's end is not its child's.
    """
    checked = ["compute-sanitizer", "--tool", tool, *TOOLS[tool], "--error-exitcode", str(FOUND)]
    own = [sys.executable, __file__, *given]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:  # a pipe is open as long as any child is
        process = subprocess.Popen([*checked, *own], stdout=out, stderr=err, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        text = "".join(_read(file) for file in (out, err))
    if status is None:
        return -1, None, text
    found = SUMMARY.search(text)
    return status, int(found[1]) if found else None, text


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def environment() -> dict[str, str]:
    """Return device, driver, compiler and versions."""
    import cupy
    import numpy

    from refnum.gpu.subjects import describe_gpu

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    tool = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True, check=True).stdout
    version = next(line for line in tool.splitlines() if "ersion" in line)
    found = {"device": card, "compute-sanitizer": version.strip(), "cupy": cupy.__version__, "numpy": numpy.__version__}
    return {**found, **describe_gpu()}


def arguments_of(words: list[str] | None) -> argparse.Namespace:
    """Return what is asked for in words, those of the command line for None."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=1 << 14, help="elements of the largest case")
    parser.add_argument("--seconds", type=float, default=60, help="time for the questions of one process")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--tool", action="append", choices=TOOLS, help="only these tools")
    parser.add_argument("--json", type=Path, help="where the result goes")
    parser.add_argument("--operation", help="ask one operation in this process, under no tool")
    parser.add_argument("--control", choices=TOOLS, help="run the kernel with a fault in this process, under no tool")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run every operation under every tool; 1 when a tool found something or an answer is wrong."""
    from refnum.conformance.commands.mutate.corpus import LAYOUTS
    from refnum.conformance.reports.environment import command_line
    from refnum.gpu.operations import LAUNCHED

    arguments = arguments_of(words)
    if arguments.control:
        control(arguments.control)
        return 0
    if arguments.operation:
        print(json.dumps(told := ask(arguments.operation, arguments.largest, arguments.seconds)), flush=True)
        return bool(told["wrong"])
    begun, tools = time.monotonic(), arguments.tool or list(TOOLS)
    controls = {tool: _run(tool, ["--control", tool], 120)[1] for tool in tools}
    blind = [tool for tool in tools if not controls[tool]]
    for tool in blind:
        print(f"{tool} found nothing wrong with a kernel that has a fault: it judges nothing.", file=sys.stderr)
    tools = [tool for tool in tools if tool not in blind]
    tasks = [(tool, name) for name in (*LAUNCHED, LAYOUTS) for tool in tools]
    with ThreadPoolExecutor(arguments.workers) as pool:
        rows = list(pool.map(lambda task: under(task[0], task[1], arguments), tasks))
    bad = [row for row in rows if row.get("end") is not None]
    for tool in dict.fromkeys(row["tool"] for row in rows):
        of = [row for row in rows if row["tool"] == tool]
        asked, left, elements = (sum(row.get(key, 0) for row in of) for key in ("asked", "left", "elements"))
        errors = sum(row["errors"] or 0 for row in of)
        print(f"{tool:10s} {len(of)} operations, {asked:,} questions asked, {left:,} left, {elements:,} elements:"
              f" {errors} errors, {sum(row in bad for row in of)} runs not clean")  # fmt: skip
    for row in bad:
        print(json.dumps(row)[:1500], file=sys.stderr)
    if arguments.json:
        head = {"command": " ".join(command_line()), "seconds": round(time.monotonic() - begun, 1)}
        document = {**head, "environment": environment(), "errors found in controls": controls, "rows": rows}
        written = arguments.json.with_suffix(".part")
        written.write_text(json.dumps(document, indent=1) + "\n")
        written.replace(arguments.json)
    return bool(bad or blind)


if __name__ == "__main__":
    sys.exit(main())
