"""`refnum train`: a small model under a policy, on ranks of this machine or those of `torchrun`."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer

from refnum.errors import ArgumentError

from .loop import WITNESS, Run
from .loop import train as train_rank
from .metrics import NAME, plot_losses, read_metrics
from .models import get_model
from .policies import POLICIES, get_policy
from .spawn import run_ranks
from .witness import WitnessError

DEVICES = ("cpu", "cuda")
MISMATCH = 1
"""Exit status of a run in which a result differs from the model."""


@dataclass(frozen=True)
class Default:
    """What a device trains unless told otherwise."""

    model: str
    steps: int
    batch: int
    rate: float
    megabytes: float
    whole: int


DEFAULTS = {"cpu": Default("tiny", 20, 4, 3e-3, 4, 10), "cuda": Default("small", 3052, 64, 1e-3, 128, 250)}
"""Device -> defaults; on CUDA 100 million tokens."""


def train(
    policy: Annotated[
        str, typer.Option(help=f"One of {', '.join(POLICIES)}, with changes as in mxfp4+fc2_input=store.")
    ] = "mxfp4",
    ranks: Annotated[int, typer.Option(help="Processes that share the experts; torchrun starts its own.", min=1)] = 1,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: cuda where torch finds one.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the whole run.", min=1)] = None,
    model: Annotated[
        str | None,
        typer.Option(help="tiny, small, medium, survey or dense. Default: tiny on cpu, small on cuda."),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Sequences of a step, of all ranks together.", min=1)] = None,
    rate: Annotated[float | None, typer.Option(help="Highest learning rate.", min=0)] = None,
    seed: Annotated[int, typer.Option(help="Of weights and batches.", min=0, max=2**31 - 1)] = 0,
    megabytes: Annotated[float | None, typer.Option(help="Text to gather, in 10**6 bytes.", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: .refnum/train/POLICY-SEED.")] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Folder of the text. Default: corpus, in the run's folder.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's last checkpoint.")] = False,
    save: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 100,
    check: Annotated[int, typer.Option(help="Steps between validations.", min=1)] = 100,
    witness: Annotated[
        float, typer.Option(help="Probability that a conversion or product is computed again.", min=0, max=1)
    ] = 1 / 64,
    whole: Annotated[
        int | None, typer.Option(help="Steps between whole layer steps that are computed again; 0: none.", min=0)
    ] = None,
    held: Annotated[
        int, typer.Option(help="Batches of text that is never trained on, read after the last step.", min=1)
    ] = 1,
    seconds: Annotated[float, typer.Option(help="How long ranks wait for each other.", min=1)] = 300,
) -> None:
    """Train a small mixture-of-experts model on Python sources, bit for bit the same on every run."""
    place = _device(device)
    default = DEFAULTS[place]
    folder = out or Path(".refnum") / "train" / f"{get_policy(policy).name}-{seed}"
    run = Run(
        get_policy(policy).name, model or default.model, steps or default.steps, batch or default.batch, seed,
        default.rate if rate is None else rate, place, folder, corpus or folder / "corpus", save, check,
        default.megabytes if megabytes is None else megabytes, seconds, witness,
        default.whole if whole is None else whole, held,
    )  # fmt: skip
    _require_ranks(run, ranks)
    try:
        run_ranks(train_rank, (run, resume), ranks, place, seconds)
    except WitnessError as error:
        print(f"refnum: {error}", file=sys.stderr)
        raise typer.Exit(MISMATCH) from error
    if os.environ.get("RANK", "0") == "0":
        _end(run)


def _device(given: str | None) -> str:
    found = given or ("cuda" if torch.cuda.is_available() else "cpu")
    if found not in DEVICES:
        raise ArgumentError(f"device {found!r} is not known; choose from {', '.join(DEVICES)}")
    if found == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("torch finds no CUDA device; give --device cpu")
    return found


def _require_ranks(run: Run, ranks: int) -> None:
    experts = get_model(run.model).experts
    if experts % ranks:
        raise ArgumentError(f"{experts} experts on {ranks} ranks; give a number of ranks that divides the experts")
    if run.batch % ranks:
        raise ArgumentError(f"{run.batch} sequences a step on {ranks} ranks; give a multiple of the ranks")
    if run.device == "cuda" and ranks > torch.cuda.device_count():
        raise ArgumentError(f"{ranks} ranks on {torch.cuda.device_count()} GPUs; give at most one rank a GPU")


def _end(run: Run) -> None:
    """Print where everything is, and how the loss went."""
    lines = read_metrics(run.folder / NAME)
    if importlib.util.find_spec("matplotlib"):
        plot_losses([run.folder], run.folder / "loss.svg")
    last = lines[-1]
    print(f"{run.folder}: {', '.join(sorted(path.name for path in run.folder.iterdir()))}")
    print(
        f"{len(lines)} steps, {last['tokens']:,} tokens: loss {lines[0]['loss']:.4f} to {last['loss']:.4f}, "
        f"validation {last['valid_loss']:.4f}"
    )
    counts = json.loads((run.folder / WITNESS).read_bytes())
    print(
        f"witness: {counts['conversions']:,} conversions, {counts['products']:,} products and "
        f"{counts['layer steps']:,} layer steps judged, {counts['mismatches']:,} mismatches"
    )
    if counts["mismatches"]:
        raise typer.Exit(MISMATCH)
