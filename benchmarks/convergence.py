"""How much a policy's loss deviates from bf16's: several seeds of `refnum train`, several runs on a device at a time.

    python benchmarks/convergence.py RUNS [--seeds 5] [--steps 3052] [--jobs 5] [--limit 540] [--results FOLDER]

Options that are not these go to `refnum train`. Runs of a seed begin with the same weights and read the same text, so
deviations are taken seed by seed. What has not ended at the limit goes on from its last checkpoint when the same
command is given again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refnum.training.data import write_corpus
from refnum.training.metrics import NAME, plot_losses, read_metrics

POLICIES = ("bf16", "fp8", "mxfp4")
ALLOWED = {"fp8": 0.0029, "mxfp4": 0.0061}
"""The recipe's deviations (arXiv:2603.02731)."""
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Seeds -> 97.5 % point of Student's t for that many deviations."""
LAST = 0.05
"""Share of the steps, the last, whose mean is a run's loss."""


def main() -> None:
    """Run what is not done yet, and say what there is."""
    given = _arguments()
    folder, end = Path(given.folder), time.monotonic() + given.limit
    folder.mkdir(parents=True, exist_ok=True)
    write_corpus(folder / "corpus", given.megabytes)
    names = [f"{policy}-{seed}" for seed in range(given.seeds) for policy in POLICIES]
    waiting = [name for name in names if _steps(folder / name) < given.steps]
    running: dict[str, subprocess.Popen[bytes]] = {}
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < given.jobs:
            name = waiting.pop(0)
            running[name] = _start(folder, name, given)
        for name in [name for name, process in running.items() if process.poll() is not None]:
            print(f"{name}: {_steps(folder / name)} steps, status {running.pop(name).returncode}", flush=True)
        time.sleep(0.5)
    for process in running.values():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    _report(folder, names, given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    for name, default in (("seeds", 5), ("steps", 3052), ("jobs", 5), ("limit", 540), ("megabytes", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--results", type=Path)
    given, words = parser.parse_known_args()
    return argparse.Namespace(**vars(given), words=words)


def _steps(folder: Path) -> int:
    lines = read_metrics(folder / NAME)
    return lines[-1]["step"] + 1 if lines else 0


def _start(folder: Path, name: str, given: argparse.Namespace) -> subprocess.Popen[bytes]:
    policy, seed = name.split("-")
    words = ["--policy", policy, "--seed", seed, "--steps", given.steps, "--out", folder / name, "--resume"]
    words += ["--corpus", folder / "corpus", "--save", 250, *given.words]
    with open(folder / f"{name}.log", "ab") as log:
        command = [sys.executable, "-m", "refnum.conformance.cli", "train", *map(str, words)]
        environment = os.environ | {"PYTHONPATH": sys.path[0]}
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)


def loss(lines: list[dict[str, float]]) -> float:
    """Return a run's loss: the mean of its last steps."""
    return statistics.fmean(line["loss"] for line in lines[-max(1, round(LAST * len(lines))) :])


def deviation(policy: list[float], base: list[float]) -> dict[str, float]:
    """Return the mean relative deviation of losses, seed by seed, and half of its 95 % confidence interval."""
    found = [one / other - 1 for one, other in zip(policy, base, strict=True)]
    mean = statistics.fmean(found)
    if len(found) < 2:
        return {"mean": mean, "half": math.inf}
    return {"mean": mean, "half": T95[len(found)] * statistics.stdev(found) / math.sqrt(len(found))}


def _report(folder: Path, names: list[str], given: argparse.Namespace) -> None:
    done = {name: read_metrics(folder / name / NAME) for name in names if _steps(folder / name) == given.steps}
    seeds = [seed for seed in range(given.seeds) if all(f"{policy}-{seed}" in done for policy in POLICIES)]
    document = {"seeds": seeds, "steps": given.steps, "runs": {name: _run(folder / name) for name in done}}
    for policy in POLICIES[1:] if seeds else ():
        pairs = [[loss(done[f"{one}-{seed}"]) for seed in seeds] for one in (policy, POLICIES[0])]
        document[policy] = deviation(*pairs) | {"allowed": ALLOWED[policy]}
        told = document[policy]
        print(
            f"{policy}: {told['mean']:+.3%} +- {told['half']:.3%} (allowed {told['allowed']:+.2%}), {len(seeds)} seeds"
        )
    left = [f"{name} ({_steps(folder / name)} of {given.steps})" for name in names if name not in done]
    print(f"not done: {', '.join(left) or 'nothing'}")
    if given.results:
        given.results.mkdir(parents=True, exist_ok=True)
        (given.results / "convergence.json").write_text(json.dumps(document, indent=1) + "\n")
        for name in done:
            shutil.copy(folder / name / NAME, given.results / f"{name}.jsonl")
        if done:
            plot_losses([folder / name for name in done], given.results / "convergence.svg")


def _run(folder: Path) -> dict[str, object]:
    lines = read_metrics(folder / NAME)
    witness = json.loads((folder / "witness.json").read_text())
    seconds = sum(line["seconds"] for line in lines)
    last = {name: lines[-1][name] for name in ("tokens", "valid_loss")}
    return {"loss": loss(lines), "seconds": seconds, "witness": witness} | last


if __name__ == "__main__":
    main()
