"""Exports of the vectors for readers without Python: C headers, NumPy archives, $readmemh files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..errors import VectorFileError
from ..load import Vector, load_vectors
from . import c, npz, readmemh

Writer = Callable[[Iterable[Vector]], Mapping[str, bytes]]
FORMATS: dict[str, Writer] = {"c": c.headers, "npz": npz.archives, "readmemh": readmemh.memories}
"""Name of a format -> its writer: vectors to files by name."""


def export_vectors(
    format: str,
    out: Path,
    operation: str | None = None,
    profile: str | None = None,
    tensors: bool = False,
    folder: Path | None = None,
) -> int:
    """Write the selected vectors to `out`, whole or not at all, and return the number of files.

    tensors: whether to include the vectors that are stored as safetensors. Raises VectorFileError for an unknown
    format, a selection without vectors, or an `out` that is not empty.
    """
    if format not in FORMATS:
        raise VectorFileError(f"--format {format!r} is not one of {', '.join(FORMATS)}.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise VectorFileError(f"{out} is not empty; name a new folder.")
    chosen = [v for v in load_vectors(operation, profile, folder) if tensors or v.tensor is None]
    files = FORMATS[format](chosen)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        fresh = Path(temporary) / "out"
        for name, data in files.items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).write_bytes(data)
        if out.exists():
            out.rmdir()
        fresh.rename(out)
    return len(files)
