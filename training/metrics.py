"""What a run wrote: a JSON line a step, and the curve of its loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from refnum.errors import UnsupportedError

from .data import write_whole

NAME = "metrics.jsonl"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, less a last one that a killed run left unfinished; none without a file."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0].splitlines()
    return [json.loads(line) for line in whole]


def open_metrics(folder: Path, step: int) -> IO[str]:
    """Return a run's file for lines that follow; those from `step` on, of work that is done again, are dropped."""
    path = folder / NAME
    kept = [line for line in read_metrics(path) if line["step"] < step]
    write_whole(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
    return open(path, "a", encoding="utf-8")


def write_line(file: IO[str], **values: Any) -> None:
    """Write one line, whole."""
    file.write(json.dumps(values) + "\n")
    file.flush()


def plot_losses(folders: list[Path], path: Path) -> None:
    """Draw the losses of runs, each under its folder's name; UnsupportedError without matplotlib."""
    runs = {folder.name: read_metrics(folder / NAME) for folder in folders}
    curves = {name: [line["loss"] for line in lines] for name, lines in runs.items()}
    held = {name: {line["step"]: line["valid_loss"] for line in lines if "valid_loss" in line}
            for name, lines in runs.items()}  # fmt: skip
    draw_curves(curves, path, held)


def draw_curves(curves: dict[str, list[float]], path: Path, valid: dict[str, dict[int, float]] | None = None) -> None:
    """Draw losses by step.

    Args:
        curves: name -> the loss of each step.
        path: of the picture; its suffix is the format.
        valid: name -> losses of validation by step, drawn as points.

    Raises:
        UnsupportedError: matplotlib is not there.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError("the loss curve needs matplotlib; install refnum[plot]") from error
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, losses in curves.items():
        axes.plot(losses, label=name)
        if points := (valid or {}).get(name):
            axes.plot(list(points), list(points.values()), "o", markersize=3, label=f"{name}, validation")
    axes.set(xlabel="step", ylabel="loss, nats a byte")
    axes.legend(frameon=False)
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, format=path.suffix[1:])
    partial.replace(path)
