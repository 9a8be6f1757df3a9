"""An exam of `refnum mutate triggers` over every operation on many processors, for so many seconds.

    python benchmarks/trigger_exam.py OUT.json [--seconds 1500] [--workers 24] [--count 20] [--seed N]
        [--operations 12] [--campaign 120]

One job is one operation with one seed, in a process of its own that ends with the exam. Operations come in turn, those
that took longest first, then all again with the next seed, until the time is over. After each job everything known is
written to OUT.json: verdicts, rates of each operation, jobs that failed or were cut off, the commit and the seeds.
Without --seed the first seed is drawn by the system when the exam begins, so that nobody can have tuned for it.
With --operations so many operations, drawn by the seed, are asked once. With --campaign the mutants have one condition
each, and a campaign of so many CPU seconds judges each of them in place of the check (trigger_campaign.py).
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from refnum.conformance.cases.operation import OPERATIONS

DEAR = ("unpermute", "swiglu_backward", "occ", "matmul_fp8", "hadamard_quantize_nvfp4", "hadamard16", "luq",
        "quantize_nvfp4", "q_ema", "quantize_tetrajet", "matmul_bf16", "dge", "permute_pad", "fp8_columns")  # fmt: skip
"""Operations whose jobs take longest: they begin first."""
ONE, TWO = "one condition", "two conditions"


def main() -> None:
    """Sit the exam and print a table of rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=1500)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--count", type=int, default=20, help="mutants of each operation and seed")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(100_000, 1_000_000))
    parser.add_argument("--operations", type=int, help="operations that are drawn by the seed and asked once")
    parser.add_argument("--campaign", type=float, help="CPU seconds of the campaign that judges a mutant")
    given = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    ).stdout.strip()
    found: dict[str, Any] = {"commit": commit, "count": given.count, "seconds": given.seconds, "workers": given.workers,
                             "campaign": given.campaign, "first seed": given.seed, "jobs": []}  # fmt: skip
    end = time.monotonic() + given.seconds
    order = [*DEAR, *(name for name in OPERATIONS if name not in DEAR)]
    if given.operations:
        order = random.Random(given.seed).sample(list(OPERATIONS), given.operations)
    jobs = iter([(name, given.seed + turn) for turn in range(1 if given.operations else 1000) for name in order])
    with ThreadPoolExecutor(given.workers) as pool:
        running: set[Future[dict[str, Any]]] = set()
        while True:
            while len(running) < given.workers and time.monotonic() < end and (job := next(jobs, None)):
                running.add(pool.submit(judged, *job, given.count, end, given.campaign))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            found["jobs"] += [one.result() for one in done]
            written(given.out, found)
    show(found)


def judged(operation: str, seed: int, count: int, end: float, campaign: float | None) -> dict[str, Any]:
    """Return the document of one job, or why there is none."""
    start, job = time.monotonic(), {"operation": operation, "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "exam.json"
        command = [sys.executable, "-m", "refnum.conformance.cli", "mutate", "triggers", "-o", operation, "--seed",
                   str(seed), "--count", str(count), "--workers", "1", "--json", str(out)]  # fmt: skip
        if campaign:
            script = Path(__file__).with_name("trigger_campaign.py").resolve()
            command = [sys.executable, str(script), operation, str(seed), str(count), str(campaign), str(out)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        try:
            ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False,
                                   timeout=max(1.0, end - start))  # fmt: skip
        except subprocess.TimeoutExpired:
            return {**job, "failed": "cut off by the end of the exam"}
        wall = round(time.monotonic() - start, 1)
        if not out.exists():
            return {**job, "wall": wall, "failed": f"exit {ended.returncode}: {ended.stderr.strip()[-600:]}"}
        told = json.loads(out.read_text())
        return {**job, "wall": wall, "cpu": told["seconds"], "discarded": told["discarded"], "mutants": told["mutants"]}


def rates(found: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    """Return operation -> one condition or two -> [killed, asked]; `all` last."""
    table: dict[str, dict[str, list[int]]] = {}
    for job in found["jobs"]:
        for mutant in job.get("mutants", ()):
            for name in (mutant["operation"], "all"):
                counted = table.setdefault(name, {ONE: [0, 0], TWO: [0, 0]})[(ONE, TWO)[len(mutant["conditions"]) > 1]]
                counted[0] += mutant["killed"]
                counted[1] += 1
    return {name: table[name] for name in sorted(table, key=lambda name: (name == "all", name))}


def survivors(found: dict[str, Any]) -> list[str]:
    """Return the surviving mutants in words."""
    return [f"{one['operation']} {one['id']}: {one['words']} ({one['shown']})"
            for job in found["jobs"] for one in job.get("mutants", ()) if not one["killed"]]  # fmt: skip


def written(out: Path, found: dict[str, Any]) -> None:
    """Write everything known so far, whole or not at all."""
    beside = out.with_suffix(".part")
    beside.write_text(json.dumps({**found, "rates": rates(found), "survivors": survivors(found)}, indent=1) + "\n")
    beside.replace(out)


def show(found: dict[str, Any]) -> None:
    """Print the rates, the survivors and the jobs without a verdict."""
    for name, of in rates(found).items():
        print(f"{name:28s}", *(f"{killed:5d}/{asked:<5d} {100 * killed / max(1, asked):6.2f} %"
                               for killed, asked in of.values()))  # fmt: skip
    for line in survivors(found):
        print("survived", line)
    for job in found["jobs"]:
        if "failed" in job:
            print("no verdict", job["operation"], job["seed"], job["failed"])


if __name__ == "__main__":
    main()
