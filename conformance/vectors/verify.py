"""Verification: schema and lint, manifest, a rebuild in another process, and the second oracle.

A vector that only reproduces from the code that made it proves nothing; so the answers are also computed by
brute force over exact rationals, wherever the oracle has the operation (N15).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import refnum

from ..reports.terminal.watch import Watch
from . import oracle
from .build import manifest
from .errors import VectorFileError, VectorMismatchError
from .folder import MANIFEST, data_files
from .lint import lint
from .load import document_vectors, load_vectors, read_document

ORACLE_ROWS = 16
"""Rows of a row-wise tensor that the oracle answers by default; it answers every inline vector in full."""


@dataclass
class Verification:
    """What a verification found in order: the number of vectors, and of those the oracle answered."""

    vectors: int = 0
    by_oracle: int = 0
    rebuilt_files: int = 0
    without_oracle: Counter[str] = field(default_factory=Counter)


def verify(
    folder: Path, rebuild: bool = True, oracle_rows: int | None = ORACLE_ROWS, watch: Watch | None = None
) -> Verification:
    """Verify a vectors folder.

    rebuild: regenerate it into an empty folder by another process and compare byte for byte. oracle_rows: rows
    of each tensor that the oracle checks, None for all of them, 0 to leave the oracle out. watch: is told how far
    it is. Raises VectorFileError for what is malformed, VectorMismatchError for what is well formed and wrong.
    """
    watch = watch or Watch()
    watch.enter("schema and lint")
    found = Verification(vectors=lint(folder))
    if rebuild:
        watch.enter("rebuild in another process")
        with tempfile.TemporaryDirectory(prefix="refnum-vectors-") as temporary:
            fresh = Path(temporary) / "vectors"
            _rebuild(folder, fresh)
            found.rebuilt_files = compare(folder, fresh)
    require_manifest(folder)
    if oracle_rows != 0:
        watch.enter("second oracle", found.vectors)
        check_oracle(folder, oracle_rows, found, watch)
    return found


def _rebuild(folder: Path, fresh: Path) -> None:
    root = str(Path(refnum.__file__).parents[1])  # these packages, whatever else the working folder holds
    command = [
        sys.executable,
        "-P",
        "-m",
        "refnum.conformance.commands.vectors",
        "build",
        "--out",
        str(fresh),
        "--source",
        str(folder),
    ]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=found)
    if result.returncode != 0:
        raise VectorFileError(f"The rebuild failed: {(result.stderr or result.stdout).strip()[-400:]}")


def compare(folder: Path, fresh: Path) -> int:
    """Compare every file with its rebuilt twin; return their number. Raises VectorMismatchError."""
    names, twins = data_files(folder), data_files(fresh)
    if names != twins:
        odd = sorted(set(names) ^ set(twins))[0]
        where = "is not generated any more" if odd in names else "is missing"
        raise VectorMismatchError(f"{odd} {where}; run `refnum vectors build`.")
    for name in names:
        if (folder / name).read_bytes() != (fresh / name).read_bytes():
            raise VectorMismatchError(_first_difference(folder, fresh, name))
    return len(names)


def _first_difference(folder: Path, fresh: Path, name: str) -> str:
    if not name.endswith(".json"):
        return f"{name}: differs from the rebuilt file."
    ours = {v.id: v for v in document_vectors(read_document(folder / name), folder, name)}
    theirs = {v.id: v for v in document_vectors(read_document(fresh / name), fresh, name)}
    for identity in sorted(set(ours) & set(theirs)):
        wrong = oracle.agrees(ours[identity], theirs[identity].outputs)
        if wrong:
            return f"{name}: vector {identity}: output {wrong!r} differs from the rebuilt one."
        if (ours[identity].flags, ours[identity].comment) != (theirs[identity].flags, theirs[identity].comment):
            return f"{name}: vector {identity}: flags or comment differ from the rebuilt ones."
    odd = sorted(set(ours) ^ set(theirs))
    if odd:
        return f"{name}: vector {odd[0]} is in only one of the folder and its rebuild."
    return f"{name}: differs from the rebuilt file."


def require_manifest(folder: Path) -> None:
    """Raise unless MANIFEST.sha256 is exactly that of the folder's files."""
    path = folder / MANIFEST
    if not path.is_file():
        raise VectorFileError(f"{folder} has no {MANIFEST}.")
    try:
        listed, right = path.read_text(encoding="ascii").splitlines(), manifest(folder).splitlines()
    except UnicodeDecodeError as error:
        raise VectorFileError(f"{path} is no ASCII text: {error}.") from error
    for line in sorted(set(listed) ^ set(right), key=lambda text: text[66:]):
        raise VectorMismatchError(f"{MANIFEST}: the line of {line[66:]} is not the digest of that file.")
    if listed != right:
        raise VectorMismatchError(f"{MANIFEST}: the lines are not in the order of the names.")


def check_oracle(folder: Path, rows: int | None, found: Verification, watch: Watch | None = None) -> None:
    """Raise VectorMismatchError for the first vector whose outputs are not the oracle's."""
    with oracle.remembered():
        for vector in load_vectors(folder=folder):
            (watch or Watch()).step()
            part = vector if rows is None else oracle.sampled(vector, rows)
            expected = oracle.expected_by_oracle(part)
            if expected is None:
                found.without_oracle[vector.operation] += 1
                continue
            wrong = oracle.agrees(part, expected)
            if wrong:
                raise VectorMismatchError(f"{vector.file}: vector {vector.id}: output {wrong!r} is not the oracle's.")
            found.by_oracle += 1
