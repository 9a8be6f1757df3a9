"""The training loop of one rank: batches, steps, checkpoints, metrics. The same bits on every run of the same ranks."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from refnum.errors import ArgumentError, FileError

from .checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from .collective import in_order, total, wait_for_all
from .data import Corpus, batch, read_corpus, write_corpus, write_whole
from .dispatch import Ranks
from .metrics import NAME, open_metrics, write_line
from .model import ByteModel
from .models import get_model
from .optimiser import Optimiser
from .policies import get_policy
from .spawn import local_device
from .witness import Witness

JUDGED = ("conversions", "products", "layer steps", "elements", "mismatches")
"""What a witness counts."""
WITNESS = "witness.json"
VALID_SEED = 2**63
"""Draws of validation batches, the same for every run."""


@dataclass(frozen=True)
class Run:
    """What is trained.

    Attributes:
        policy, model: names.
        steps: at the end of the run.
        batch: sequences of a step, of all ranks together.
        seed: of weights and batches.
        rate: the highest learning rate.
        device: `cpu` or `cuda`.
        folder: gets checkpoints and metrics.
        corpus: the folder of the text; gathered where there is none.
        save, check: steps between checkpoints, and between validations.
        megabytes: of text.
        seconds: how long ranks wait for each other.
        witness: probability that a conversion or a product is computed again and compared; 0 for none.
        whole: steps from one whole step of each layer that is computed again to the next; 0 for none.
        held: batches of text that is never trained on, read after the last step; one is read at other validations.
    """

    policy: str
    model: str
    steps: int
    batch: int
    seed: int
    rate: float
    device: str
    folder: Path
    corpus: Path
    save: int
    check: int
    megabytes: float
    seconds: float
    witness: float
    whole: int
    held: int = 1

    def identity(self, ranks: Ranks, corpus: Corpus) -> dict[str, Any]:
        """Return what a checkpoint must have in common with a run that goes on from it."""
        names = ("policy", "model", "batch", "seed", "rate", "device")
        return {name: getattr(self, name) for name in names} | {"ranks": ranks.count, "corpus": corpus.digest}


class Trainer:
    """One rank of a run: model, optimiser, text, and the step that they stand at."""

    def __init__(self, run: Run) -> None:
        self.run, self.ranks = run, Ranks(seconds=run.seconds)
        self.sizes = get_model(run.model)
        if run.batch % self.ranks.count:
            raise ArgumentError(
                f"{run.batch} sequences a step on {self.ranks.count} ranks; give a multiple of the ranks"
            )
        self.device = local_device(run.device)
        self.witness = Witness(
            run.folder / "witness", run.witness, run.whole, seed=self.ranks.rank,
            stop=get_policy(run.policy).on_mismatch == "stop",
        )  # fmt: skip
        self.model = ByteModel(self.sizes, run.policy, self.device, run.seed, self.witness, run.seconds)
        warm, rule = max(1, min(100, run.steps // 10)), get_policy(run.policy).optimiser
        self.optimiser = Optimiser(self.model, self.ranks, run.rate, warm, run.steps, rule=rule)
        if self.ranks.rank == 0:
            write_corpus(run.corpus, run.megabytes)
        wait_for_all(self.ranks)
        self.corpus = read_corpus(run.corpus)
        self.step = 0
        self.before = dict.fromkeys(JUDGED, 0)

    def resume(self) -> None:
        """Go on from the last checkpoint, or from the start where there is none."""
        found = load_checkpoint(self._checkpoints(), self.run.identity(self.ranks, self.corpus), self.ranks)
        if found is not None:
            self.step, self.before = found.step, found.counts
            self.optimiser.load(found.tensors)
            self.model.restore(found.tensors)

    def save(self) -> None:
        """Write a checkpoint of this step, and what the witness judged until now."""
        state, counts = self.run.identity(self.ranks, self.corpus), self.judged()
        found = Checkpoint(self.step, self.optimiser.tensors() | self.model.averages(), counts)
        save_checkpoint(self._checkpoints(), found, state, self.ranks)
        if self.ranks.rank == 0:
            write_whole(self.run.folder / WITNESS, json.dumps(counts, indent=1).encode())

    def judged(self) -> dict[str, int]:
        """Return what the witnesses of all ranks counted since the run's first step; what waits is judged."""
        self.witness.settle()
        found = self.witness.judged | {"elements": self.witness.elements, "mismatches": len(self.witness.mismatches)}
        sums = total(self.ranks, [found.get(name, 0) for name in JUDGED])
        return {name: self.before[name] + count for name, count in zip(JUDGED, sums, strict=True)}

    def train_step(self) -> dict[str, float]:
        """Take one step and return its loss, gradient norm and learning rate."""
        self.witness.step = self.step
        self.model.at_step(self.step)
        loss = self.model(self._tokens(self.corpus.train, self.run.seed, self.step))
        loss.backward()
        mean = self._mean(loss.detach())
        norm, rate = self.optimiser.step(self.step)
        self.step += 1
        found = {"loss": mean, "gradient_norm": norm, "rate": rate}
        flips = self.model.flips()
        return found if flips is None else found | {"flips": float(flips)}

    def valid_loss(self, batches: int = 1) -> float:
        """Return the mean loss of some batches of text that is never trained on, the same text each time."""
        found = []
        with torch.no_grad():
            for number in range(batches):
                found.append(self._mean(self.model(self._tokens(self.corpus.valid, VALID_SEED, number))))
        return sum(found) / batches

    def _tokens(self, text: np.ndarray, seed: int, step: int) -> torch.Tensor:
        """Return this rank's sequences of a step."""
        count = self.run.batch // self.ranks.count
        drawn = batch(text, self.sizes.sequence, self.run.batch, seed, step)
        mine = drawn[self.ranks.rank * count : (self.ranks.rank + 1) * count]
        return torch.from_numpy(mine.astype(np.int64)).to(self.device)

    def _mean(self, loss: torch.Tensor) -> float:
        return float(in_order(self.ranks, loss.double().reshape(1))) / self.ranks.count

    def _checkpoints(self) -> Path:
        return self.run.folder / "checkpoints"


def train(given: tuple[Run, bool]) -> None:
    """Train one rank to the end of a run.

    Args:
        given: the run, and whether it goes on from the last checkpoint.

    Raises:
        RefnumError: in one sentence, what cannot be done or has failed.
    """
    run, resumed = given
    make_deterministic(run.device)
    if not resumed and Ranks().rank == 0 and (run.folder / NAME).exists():
        raise ArgumentError(f"{run.folder} holds a run; give --resume to go on with it, or another --out")
    _make_folder(run.folder)
    trainer = Trainer(run)
    if resumed:
        trainer.resume()
    if trainer.ranks.rank == 0:
        with open_metrics(run.folder, trainer.step) as file, _progress() as progress:
            _steps(trainer, file, progress)
    else:
        _steps(trainer, None, None)


def make_deterministic(device: str) -> None:
    """Make torch take deterministic kernels only; on processors with one thread, whose sums have one order."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_deterministic_debug_mode("error")  # as use_deterministic_algorithms, which imports a compiler besides
    torch._C._set_deterministic_fill_uninitialized_memory(False)
    if device == "cpu":
        torch.set_num_threads(1)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be made: {error.strerror}; give another --out") from error


def _progress() -> Progress:
    columns = (TextColumn("train"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)


def _steps(trainer: Trainer, file: IO[str] | None, progress: Progress | None) -> None:
    run = trainer.run
    task = progress.add_task("", total=run.steps, completed=trainer.step) if progress else None
    while trainer.step < run.steps:
        loss = advance(trainer, file)
        if progress is not None and task is not None:
            progress.update(task, completed=trainer.step, description=f"loss {loss:.4f}")


def advance(trainer: Trainer, file: IO[str] | None) -> float:
    """Take one step, with its validation and checkpoint where they are due, write its line, and return its loss."""
    run = trainer.run
    start = time.perf_counter()
    number = trainer.step
    values: dict[str, Any] = dict(trainer.train_step())
    seconds = time.perf_counter() - start
    if run.device == "cuda":
        values["peak_bytes"] = torch.cuda.max_memory_allocated()
    if trainer.step % run.check == 0 or trainer.step == run.steps:
        batches = run.held if trainer.step == run.steps else 1
        values |= {"valid_loss": trainer.valid_loss(batches), "judged": trainer.judged()}
    if file is not None:
        tokens = run.batch * trainer.sizes.sequence
        write_line(file, step=number, **values, tokens=tokens * trainer.step, seconds=seconds)
    if trainer.step % run.save == 0 or trainer.step == run.steps:
        trainer.save()
    return float(values["loss"])
