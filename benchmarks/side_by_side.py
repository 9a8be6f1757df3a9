"""Several runs in one process, a step of each in turn: one start and one context of the GPU for all.

    python benchmarks/side_by_side.py FOLDER POLICY-SEED [POLICY-SEED ...] --steps N [--model survey] [--device cuda]
        [--batch 16] [--rate 0.001] [--check 100] [--whole 0] [--witness 0.015625] [--megabytes 32] [--held 1]

Each run's folder is FOLDER/POLICY-SEED, with the same files as that of `refnum train`, and the same bits.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refnum.training.loop import Run, Trainer, advance, make_deterministic
from refnum.training.metrics import open_metrics


def main() -> None:
    """Take steps until every run has ended."""
    given = _arguments()
    make_deterministic(given.device)
    with contextlib.ExitStack() as files:
        runs = []
        for name in given.runs:
            folder = Path(given.folder) / name
            folder.mkdir(parents=True, exist_ok=True)
            trainer = Trainer(_run(given, name, folder))
            trainer.resume()
            runs.append((trainer, files.enter_context(open_metrics(folder, trainer.step))))
        while left := [pair for pair in runs if pair[0].step < given.steps]:
            for trainer, file in left:
                advance(trainer, file)


def _run(given: argparse.Namespace, name: str, folder: Path) -> Run:
    policy, _, seed = name.rpartition("-")
    return Run(
        policy, given.model, given.steps, given.batch, int(seed), given.rate, given.device, folder,
        Path(given.folder) / "corpus", given.steps, given.check, given.megabytes, 300.0, given.witness, given.whole,
        given.held,
    )  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--model", default="survey")
    parser.add_argument("--device", default="cuda")
    for name, default in (("steps", 1000), ("batch", 16), ("check", 100), ("whole", 0), ("megabytes", 32), ("held", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, number in (("rate", 1e-3), ("witness", 1 / 64)):
        parser.add_argument(f"--{name}", type=float, default=number)
    return parser.parse_args()


if __name__ == "__main__":
    main()
