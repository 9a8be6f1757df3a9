"""torch's products and ours under `refnum check`, side by side, each until a time is over."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CHECKS = {
    "torch-bf16": ("matmul_bf16", "benchmarks/torch_products.py", 2),
    "torch-fp8": ("matmul_fp8", "benchmarks/torch_products.py", 9),
    "gpu": ("matmul*", "gpu", 1),
}
"""What is judged -> operation, subjects, and processes: a variant is one's work, and the model of one variant is shared
by all subjects of a file."""


def started(out: Path) -> dict[str, tuple[subprocess.Popen[bytes], Path]]:
    """Start the checks and return each with the path of its report."""
    found = {}
    for name, (operation, subject, workers) in CHECKS.items():
        path = out / f"check-{name}.json"
        command = [sys.executable, "-m", "refnum.conformance.cli", "check", "-o", operation, "-s", subject]
        options = ["--no-isolate", "--workers", str(workers), "--report", str(path)]
        log = (out / f"check-{name}.txt").open("wb")
        found[name] = subprocess.Popen([*command, *options], cwd=ROOT, stdout=log, stderr=log), path
    return found


def finished(check: subprocess.Popen[bytes], path: Path, end: float) -> dict[str, Any]:
    """Return what a check found; one that is not done in time is interrupted, and writes what it has."""
    try:
        check.wait(max(end - time.perf_counter(), 1))
    except subprocess.TimeoutExpired:
        check.send_signal(signal.SIGINT)
        try:
            check.wait(15)
        except subprocess.TimeoutExpired:
            check.kill()
            check.wait()
    if not path.is_file():
        return {"verdict": f"no report, exit status {check.returncode}"}
    document = json.loads(path.read_text())
    names = ("subject", "variant", "outcome", "words", "level", "compared", "refused", "evidence")
    return {
        "verdict": document["footer"]["verdict"],
        "environment": document["header"]["environment"],
        "results": [{name: row[name] for name in names} for row in document["results"]],
    }


def checked(out: Path, end: float) -> dict[str, Any]:
    """Run every check until a time of `time.perf_counter` and return what each found."""
    return {name: finished(check, path, end) for name, (check, path) in started(out).items()}
