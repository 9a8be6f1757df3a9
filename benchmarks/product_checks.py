"""torch's products and ours under `refnum check`, side by side, each until a time is over.

python benchmarks/product_checks.py --out DIR [--seconds 150]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SUBJECTS = "benchmarks/torch_products.py"
CHECKS = {
    "torch._scaled_mm": ("matmul_fp8", f"{SUBJECTS}:scaled_mm", 2),
    "torch._scaled_mm, any order": ("matmul_fp8", f"{SUBJECTS}:scaled_mm_any", 2),
    "torch.mm": ("matmul_bf16", f"{SUBJECTS}:mm", 1),
    "torch.mm, any order": ("matmul_bf16", f"{SUBJECTS}:mm_any", 1),
    "gpu": ("matmul*", "gpu", 6),
}
"""What is judged -> operation, subject, and processes, which judge variants of their own: few, for they take turns on
the GPU."""


def started(out: Path) -> dict[str, tuple[subprocess.Popen[bytes], Path]]:
    """Start the checks and return each with the path of its report."""
    found = {}
    for name, (operation, subject, workers) in CHECKS.items():
        stem = "check-" + name.replace(".", "").replace(", ", "-").replace(" ", "-")
        path = out / f"{stem}.json"
        command = [sys.executable, "-m", "refnum.conformance.cli", "check", "-o", operation, "-s", subject]
        options = ["--no-isolate", "--workers", str(workers), "--report", str(path)]
        log = (out / f"{stem}.txt").open("wb")
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


def main() -> None:
    """Run the checks until a time is over, write what they found, and print it in a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=150)
    given, start = parser.parse_args(), time.perf_counter()
    given.out.mkdir(parents=True, exist_ok=True)
    found = checked(given.out, start + given.seconds)
    temporary = given.out / "product_checks.json.tmp"
    temporary.write_text(json.dumps(found, indent=1))
    temporary.rename(given.out / "product_checks.json")
    for name, one in found.items():
        print(f"{name}: {one['verdict']}", flush=True)


if __name__ == "__main__":
    main()
