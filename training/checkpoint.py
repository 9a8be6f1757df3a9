"""Checkpoints: a folder a step, whole or not there at all.

Each rank writes its tensors into a folder with a temporary name; when all have, one rank writes the digests of their
files and renames the folder. A run that is killed at any point leaves the last whole folder as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from refnum.errors import ArgumentError, FileError

from .collective import wait_for_all
from .data import write_whole
from .dispatch import Ranks

KEPT = 2
"""Checkpoints that stay; older ones are deleted."""
_STATE = "state.json"


def name_of(step: int) -> str:
    """Return the name of a checkpoint's folder."""
    return f"step-{step:09d}"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint has for one rank: the steps done, its tensors, and what was counted until then."""

    step: int
    tensors: dict[str, torch.Tensor]
    counts: dict[str, int]


def save_checkpoint(folder: Path, found: Checkpoint, state: dict[str, Any], ranks: Ranks) -> None:
    """Write a checkpoint; every rank calls this at the same time.

    Args:
        folder: of all checkpoints.
        found: what this rank keeps; steps and counts are the same on every rank.
        state: JSON, the same on every rank: what the run is.
        ranks: those that write.
    """
    step = found.step
    partial = folder / f".{name_of(step)}"
    if ranks.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    wait_for_all(ranks)
    content = save({name: tensor.cpu().contiguous() for name, tensor in found.tensors.items()})
    write_whole(partial / f"rank-{ranks.rank}.safetensors", content)
    write_whole(partial / f"rank-{ranks.rank}.sha256", hashlib.sha256(content).hexdigest().encode())
    wait_for_all(ranks)
    if ranks.rank == 0:
        digests = [(partial / f"rank-{rank}.sha256").read_text() for rank in range(ranks.count)]
        write_whole(partial / _STATE, _document(found, digests, state))
        _rename(partial, folder / name_of(step))
        for old in _found(folder)[:-KEPT]:
            shutil.rmtree(old)
    wait_for_all(ranks)


def _document(found: Checkpoint, digests: list[str], state: dict[str, Any]) -> bytes:
    told = {"step": found.step, "counts": found.counts, "digests": digests, "run": state}
    return json.dumps(told, indent=1).encode()


def load_checkpoint(folder: Path, state: dict[str, Any], ranks: Ranks) -> Checkpoint | None:
    """Return what the last checkpoint has for this rank, or None without one.

    Args:
        folder: of all checkpoints.
        state: what the run is; that of the checkpoint must be the same.
        ranks: those that read.

    Raises:
        FileError: a file is missing or changed.
        ArgumentError: the checkpoint is of another run.
    """
    found = _found(folder)
    if not found:
        return None
    last = found[-1]
    try:
        told = json.loads((last / _STATE).read_bytes())
        digests, run = list(told["digests"]), dict(told["run"])
        _require_same(last, run, state)
        content = (last / f"rank-{ranks.rank}.safetensors").read_bytes()
        if hashlib.sha256(content).hexdigest() != digests[ranks.rank]:
            raise ValueError(f"the digest of rank {ranks.rank}'s tensors is not the one that was written")
        return Checkpoint(int(told["step"]), load(content), dict(told["counts"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError, SafetensorError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise FileError(
            f"the checkpoint {last} is corrupt: {error}; delete it to resume from the one before"
        ) from error


def _require_same(folder: Path, told: dict[str, Any], state: dict[str, Any]) -> None:
    for name, value in state.items():
        if told.get(name) != value:
            raise ArgumentError(
                f"the checkpoint {folder} is of a run with {name}={told.get(name)}, this one has {name}={value}; "
                "give the same, or another folder"
            )


def _found(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def _rename(partial: Path, whole: Path) -> None:
    """Rename a folder, over one of the same step, and see the new name on the disk."""
    shutil.rmtree(whole, ignore_errors=True)
    partial.rename(whole)
    place = os.open(whole.parent, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
