"""How much a policy's loss deviates from bf16's: several seeds of `refnum train`, several runs on each GPU at a time.

    python benchmarks/convergence.py RUNS [--seeds 5] [--first 0] [--steps 1526] [--jobs 15] [--limit 540]
        [--policies bf16 fp8 mxfp4 ...] [--together 1] [--results FOLDER] [--add convergence.json ...]
        [--fit 0] [--more 0]

Options that are not these go to `refnum train`, or to `side_by_side.py`, which takes so many seeds `together`, and
policies with commas between them, all in one process, a step of each in turn. Runs of a seed begin with the same
weights and read the same text, so deviations are taken seed by seed, over the same steps: those that both policies have
reached in all seeds. What has not ended at the limit is compared as far as it came; `convergence.json` has all curves,
and `--add` takes those of other calls. With `--fit` the speed is measured for so many seconds, once all runs are under
way: where the limit is too near, all begin again with fewer steps, so that their rates decay to the end; where there
is time, up to `--more` further seeds are begun, which count if all their runs end.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pace import Pace, fitted, room

from refnum.conformance.commands.fuzz.identity import revision
from refnum.conformance.reports.environment import command_line, environment
from refnum.conformance.reports.gpus import published
from refnum.training.data import write_corpus, write_whole
from refnum.training.metrics import NAME, draw_curves, read_metrics

POLICIES = ["bf16", "fp8", "mxfp4"]
"""What is trained unless told otherwise; the first is what the others are compared with."""
CLAIMS = {
    "rotation of weight gradients' operands helps NVFP4 (arXiv:2509.25149)": ("nvfp4", "nvfp4-no-rotation"),
    "stochastic rounding of gradients helps NVFP4 (arXiv:2509.25149)": ("nvfp4", "nvfp4-nearest"),
    "square blocks of weights help NVFP4 (arXiv:2509.25149)": ("nvfp4", "nvfp4-rows"),
    "stochastic rounding of gradients helps MXFP4": ("mxfp4-products-random", "mxfp4-products"),
    "Q-EMA helps TetraJet (arXiv:2502.20853)": ("tetrajet-ema", "tetrajet"),
    "LUQ without bias beats rounding to nearest (arXiv:2112.10769)": ("luq", "luq-nearest"),
    "the errors of radix 4's two phases cancel: they beat one phase (Sun et al., 2020)": ("tpr", "radix4-one-phase"),
    "DGE beats the straight-through estimator (arXiv:2501.17116)": ("vectors-dge", "vectors"),
    "OCC helps activations (arXiv:2501.17116)": ("vectors-occ", "vectors"),
    "Stable-SPAM beats Adam under FP4 (arXiv:2502.17055)": ("stable-spam", "mxfp4-products"),
}
"""What is said -> the policy that is said to have the lower loss, and the one without that part."""
FLIPS = {"Q-EMA lowers the flip rate of weights (arXiv:2502.20853)": ("tetrajet-ema", "tetrajet")}
"""What is said of the share of weights whose code changes in a step -> the policy with the lower one, and the other."""
ALLOWED = {"fp8": 0.0029, "mxfp4": 0.0061}
"""The recipe's deviations (arXiv:2603.02731)."""
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262,
       11: 2.228, 12: 2.201, 13: 2.179, 14: 2.160, 15: 2.145, 16: 2.131}  # fmt: skip
"""Seeds -> 97.5 % point of Student's t for that many deviations."""
LAST = 0.1
"""Share of the steps, the last, whose mean is a run's loss."""
START = time.monotonic()
Run = dict[str, Any]


def main() -> None:
    """Run what is not done yet, and say what there is."""
    given = _arguments()
    folder = Path(given.folder)
    seeds = range(given.first, given.first + given.seeds)
    parts = [seeds[at : at + given.together] for at in range(0, len(seeds), given.together)]
    groups = [group.split(",") for group in given.policies]
    jobs = [[f"{policy}-{seed}" for seed in part for policy in group] for part in parts for group in groups]
    names = [name for job in jobs for name in job]
    before: dict[str, Run] = {}
    for path in given.add:
        before |= json.loads(path.read_text())["runs"]
    later = range(seeds.stop, seeds.stop + given.more)
    more = [[[f"{policy}-{seed}" for policy in group] for group in groups] for seed in later]
    machine = {"date": time.strftime("%Y-%m-%d"), "command": command_line(), "commit": revision(), **environment(),
               "gpus": published()}  # fmt: skip

    def write() -> dict[str, Any]:
        """Write what there is until now."""
        ended = [name for seed in more for name in ended_of(folder, seed, given.steps)]
        found = {name: run_of(folder / name) for name in names + ended if (folder / name / NAME).exists()}
        document = {**machine, "steps": given.steps, "text": _text(folder / "corpus"), **report(before | found)}
        if given.results:
            given.results.mkdir(parents=True, exist_ok=True)
            write_whole(given.results / "convergence.json", (json.dumps(document) + "\n").encode())
        return document

    if names:
        folder.mkdir(parents=True, exist_ok=True)
        write_corpus(folder / "corpus", given.megabytes)
        _run_all(folder, jobs, more, given, write)
    document = write()
    for line in lines_of(document):
        print(line, flush=True)
    if given.results:
        curves = {name: run["losses"] for name, run in document["runs"].items()}
        draw_curves(curves, given.results / "convergence.svg")


def _text(corpus: Path) -> dict[str, int]:
    """Return the bytes of both splits of the text, where there is one."""
    return {path.stem: path.stat().st_size for path in sorted(corpus.glob("*.bin"))}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    numbers = (("seeds", 5), ("first", 0), ("steps", 1526), ("jobs", 15), ("limit", 540), ("megabytes", 128),
               ("together", 1), ("fit", 0), ("more", 0))  # fmt: skip
    for name, default in numbers:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--add", type=Path, nargs="*", default=[])
    given, words = parser.parse_known_args()
    return argparse.Namespace(**vars(given), words=words)


# ------------------------------------------------------------------------------------------------------------- runs


def _run_all(
    folder: Path, jobs: list[list[str]], more: list[list[list[str]]], given: argparse.Namespace,
    write: Callable[[], Any],
) -> None:  # fmt: skip
    """Run so many jobs at a time, each on the GPU that has fewest, until all have ended or the limit has come."""
    end = START + given.limit
    waiting = [job for job in jobs if min(_steps(folder / name) for name in job) < given.steps]
    running: dict[str, tuple[subprocess.Popen[bytes], str]] = {}
    told = time.monotonic()
    pace = Pace(partial(_steps_in, folder), waiting, given.fit)
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < given.jobs:
            job, gpu = waiting.pop(0), least_used(gpus(), [one for _, one in running.values()])
            running[job[0]] = _start(folder, job, gpu, given), gpu
        for name in [name for name, (process, _) in running.items() if process.poll() is not None]:
            status = running.pop(name)[0].returncode
            print(f"{name}: {_steps(folder / name)} steps, status {status}", flush=True)
            if status:
                print((folder / f"{name}.log").read_text()[-2000:], flush=True)
        if pace.measured():
            steps, further = fitted(pace, given.steps, end - time.monotonic(), len(more), len(jobs[0]) * len(more[0]))
            further = min(further, room(len(running)) // max(1, len(more[0]))) if further else 0
            print(f"{pace.rate:.2f} steps a second in all: {steps} steps, {further} further seeds", flush=True)
            if steps < given.steps:
                _kill(running)
                for name in pace.names:
                    shutil.rmtree(folder / name, ignore_errors=True)
                given.steps, waiting = steps, list(jobs)
            else:
                waiting += [job for seed in more[:further] for job in seed]
                given.jobs += sum(map(len, more[:further]))
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(
                f"{end - told:.0f} s left: {' '.join(f'{one}={_steps(folder / one)}' for one in running)}", flush=True
            )
            write()
        time.sleep(0.5)
    _kill(running)


def _kill(running: dict[str, tuple[subprocess.Popen[bytes], str]]) -> None:
    for process, _ in running.values():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    running.clear()


def ended_of(folder: Path, jobs: list[list[str]], steps: int) -> list[str]:
    """Return the runs of a further seed, none unless all have ended."""
    names = [name for job in jobs for name in job]
    return names if min(_steps(folder / name) for name in names) >= steps else []


def gpus() -> list[str]:
    """Return the numbers of the GPUs that may be used; one empty word where there is none."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return given.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())] or [""]


def least_used(devices: list[str], used: list[str]) -> str:
    """Return the device that is named least often."""
    return min(devices, key=used.count)


def _steps_in(folder: Path, name: str) -> int:
    return _steps(folder / name)


def _steps(folder: Path) -> int:
    lines = read_metrics(folder / NAME)
    return lines[-1]["step"] + 1 if lines else 0


def _start(folder: Path, job: list[str], gpu: str, given: argparse.Namespace) -> subprocess.Popen[bytes]:
    if len(job) > 1:
        words = [Path(__file__).with_name("side_by_side.py"), folder, *job, "--steps", given.steps]
    else:
        policy, _, seed = job[0].rpartition("-")
        words = ["-m", "refnum.conformance.cli", "train", "--policy", policy, "--seed", seed]
        words += ["--steps", given.steps, "--out", folder / job[0], "--resume", "--save", given.steps]
        words += ["--corpus", folder / "corpus"]
    with open(folder / f"{job[0]}.log", "ab") as log:
        command = [sys.executable, *map(str, [*words, *given.words])]
        paths = os.pathsep.join([sys.path[0], *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": gpu}
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)


def run_of(folder: Path) -> Run:
    """Return what a run has until now: losses, those of validation by step, seconds, tokens, what was judged."""
    lines = read_metrics(folder / NAME)
    judged = [line["judged"] for line in lines if "judged" in line]
    counted = bool(lines) and "flips" in lines[-1]
    flips = {"flips": [round(line.get("flips", 0.0), 8) for line in lines]} if counted else {}
    return {
        **flips,
        "losses": [round(line["loss"], 6) for line in lines],
        "valid": {str(line["step"]): line["valid_loss"] for line in lines if "valid_loss" in line},
        "seconds": round(sum(line["seconds"] for line in lines), 1),
        "tokens": lines[-1]["tokens"] if lines else 0,
        "witness": judged[-1] if judged else {},
    }


# ----------------------------------------------------------------------------------------------------------- report


def deviation(policy: list[float], base: list[float]) -> dict[str, Any]:
    """Return relative deviations seed by seed, their mean, and half of its 95 % confidence interval."""
    found = [one / other - 1 for one, other in zip(policy, base, strict=True)]
    mean = statistics.fmean(found)
    half = T95[len(found)] * statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return {"each": found, "mean": mean, "half": half}


def report(runs: dict[str, Run]) -> dict[str, Any]:
    """Compare every policy with bf16, and the policies of each claim, over the last steps that both have in all seeds.

    Args:
        runs: `<policy>-<seed>` -> what `run_of` gives, `bf16` among them; a seed that lacks a policy is left out.
    """
    short = too_short(runs)
    policies = [one for one in dict.fromkeys(name.rpartition("-")[0] for name in runs) if one not in short]
    seeds = sorted({int(name.rpartition("-")[2]) for name in runs})
    seeds = [seed for seed in seeds if all(runs.get(f"{policy}-{seed}", {}).get("losses") for policy in policies)]
    seeds = seeds if POLICIES[0] in policies and len(policies) > 1 else []
    document: dict[str, Any] = {"seeds": seeds, "left out": short, "runs": runs}
    if not seeds:
        return document
    used = {policy: [runs[f"{policy}-{seed}"] for seed in seeds] for policy in policies}
    document["policies"] = {
        policy: compared(of, used[POLICIES[0]]) | {"allowed": ALLOWED.get(policy)}
        for policy, of in used.items() if policy != POLICIES[0]
    }  # fmt: skip
    counted = {policy: of for policy, of in used.items() if all("flips" in run for run in of)}
    document["flips"] = {policy: _last(of, "flips", _steps_of(of)) for policy, of in counted.items()}
    claims = [(words, pair, "losses", used) for words, pair in CLAIMS.items()]
    claims += [(words, pair, "flips", counted) for words, pair in FLIPS.items()]
    document["claims"] = {
        words: answered(compared(of[pair[0]], of[pair[1]], key)) | {"pair": list(pair)}
        for words, pair, key, of in claims if {*pair} <= {*of}
    }  # fmt: skip
    return document


def compared(ours: list[Run], base: list[Run], key: str = "losses") -> dict[str, Any]:
    """Return how far the mean of the last common steps deviates, with the last common validation, seed by seed."""
    steps = _steps_of([*ours, *base])
    means = [_last(of, key, steps) for of in (ours, base)]
    told = deviation(*means) | {"steps": steps, "steps of the mean": _share(steps), "means": means}
    checked = set.intersection(*({*map(int, run["valid"])} for run in (*ours, *base)))
    if checked and key == "losses":
        at = str(max(checked))
        told["valid"] = deviation(*([run["valid"][at] for run in of] for of in (ours, base))) | {"step": max(checked)}
    return told


def _steps_of(runs: list[Run]) -> int:
    return min(len(run["losses"]) for run in runs)


def _share(steps: int) -> int:
    return max(1, round(LAST * steps))


def _last(runs: list[Run], key: str, steps: int) -> list[float]:
    """Return of each run the mean of the last of so many steps."""
    return [statistics.fmean(run[key][steps - _share(steps) : steps]) for run in runs]


def too_short(runs: dict[str, Run]) -> list[str]:
    """Return the policies with a run of less than a tenth of the steps of the longest run."""
    most = max((len(run["losses"]) for run in runs.values()), default=0)
    short = {name.rpartition("-")[0] for name, run in runs.items() if 10 * len(run["losses"]) < most}
    return sorted(short)


def answered(told: dict[str, Any]) -> dict[str, Any]:
    """Return a comparison with its answer: `yes` if the whole interval is below 0, `no` if it is above."""
    low, high = told["mean"] - told["half"], told["mean"] + told["half"]
    return told | {"answer": "yes" if high < 0 else "no" if low > 0 else "not decided"}


def lines_of(document: dict[str, Any]) -> list[str]:
    """Return what a report says."""
    found = [f"{name}: {len(run['losses'])} steps, {run['tokens']:,} tokens" for name, run in document["runs"].items()]
    found += [f"{policy}: left out, its runs have less than a tenth of the steps" for policy in document["left out"]]
    for policy, told in document.get("policies", {}).items():
        limit = "" if told["allowed"] is None else f" (allowed {told['allowed']:+.2%})"
        for kind, one in (("training", told), ("validation", told.get("valid"))):
            if one:
                each = " ".join(f"{value:+.2%}" for value in one["each"])
                mean = f"{one['mean']:+.3%} +- {one['half']:.3%}{limit}"
                found.append(f"{policy}, {kind}: {mean}, {len(one['each'])} seeds at {told['steps']} steps: {each}")
    for words, told in document.get("claims", {}).items():
        found.append(f"{told['answer']}: {words}: {told['mean']:+.3%} +- {told['half']:.3%} at {told['steps']} steps")
    return found


if __name__ == "__main__":
    main()
