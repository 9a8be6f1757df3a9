"""Answers of peers as files: run the peers where the device is, judge them anywhere.

A folder with `peers.json` (who ran where, and what was skipped) and one compressed NumPy file a variant.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from refnum.errors import FileError

from ...reports import files
from ...reports.environment import environment
from ...subjects.subject import Subject
from . import inputs
from .run import Answer, Matrix, Variant, variants

HEAD = "peers.json"


def record(folder: Path, subjects: Sequence[Subject], operations: Sequence[str], told: Callable[[str], None]) -> Matrix:
    """Run the subjects and write their answers; nothing is judged."""
    folder.mkdir(parents=True, exist_ok=True)
    matrix = Matrix()
    for subject in subjects:
        for variant in variants(matrix, subject, operations, told):
            told(f"{variant.name} {variant.operation} {list(variant.params.values())} "
                 f"{' '.join(answer.words for answer in variant.answers.values())}".rstrip())  # fmt: skip
            _write(folder, variant)
        head = {"environment": environment(), "subjects": matrix.subjects, "skipped": matrix.skipped}
        files.write_json(folder / HEAD, head)
    return matrix


def _write(folder: Path, variant: Variant) -> None:
    runs: dict[str, Any] = {}
    meta = {"subject": variant.name, "claims": list(variant.claims), "operation": variant.operation,
            "params": variant.params, "rows": digest(variant.operation, variant.params), "runs": runs}  # fmt: skip
    arrays: dict[str, np.ndarray] = {}
    for number, (profile, answer) in enumerate(variant.answers.items()):
        runs[profile] = {"number": number, "words": answer.words, "outputs": list(answer.outputs)}
        arrays[f"{number}.taken"] = answer.taken
        arrays.update({f"{number}.{name}": array for name, array in answer.outputs.items()})
    text = json.dumps(meta, sort_keys=True)
    arrays["meta"] = np.frombuffer(text.encode(), np.uint8)
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    with (folder / f"{name}.npz").open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def digest(operation: str, params: Any) -> str:
    """Return SHA-256 (16 hex digits) of a variant's rows: an answer to other rows cannot be judged."""
    state = hashlib.sha256()
    for name, array in sorted(inputs.rows(operation, params).inputs.items()):
        state.update(name.encode() + np.ascontiguousarray(array).view(np.uint8).tobytes())
    return state.hexdigest()[:16]


def load(folder: Path, matrix: Matrix) -> Iterator[Variant]:
    """Yield the recorded variants in order of subject and operation; who ran and who was skipped goes to `matrix`.

    Raises FileError for a folder without a head, and for answers to other rows than this version's.
    """
    try:
        head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{folder} holds no recorded answers: {HEAD} cannot be read.") from error
    matrix.subjects += [{**entry, "environment": head["environment"]} for entry in head["subjects"]]
    matrix.skipped += head["skipped"]
    found = [_read(path) for path in sorted(folder.glob("*.npz"))]
    order = list(inputs.OPERATIONS)
    yield from sorted(found, key=lambda v: (v.name, order.index(v.operation), json.dumps(v.params)))


def _read(path: Path) -> Variant:
    try:
        with zipfile.ZipFile(path) as archive:
            files.check_archive(path, archive)
        return _variant(path)
    except files.ARRAY_DAMAGE as error:
        raise FileError(f"{path} holds no recorded answer: {type(error).__name__}: {error}.") from error


def _variant(path: Path) -> Variant:
    with np.load(path) as arrays:
        meta = json.loads(bytes(arrays["meta"]))
        if meta["rows"] != digest(meta["operation"], meta["params"]):
            raise FileError(f"{path} answers other inputs than this version of refnum asks; record it again.")
        answers = {
            profile: Answer({name: arrays[f"{run['number']}.{name}"] for name in run["outputs"]},
                            arrays[f"{run['number']}.taken"], run["words"])
            for profile, run in meta["runs"].items()
        }  # fmt: skip
    return Variant(meta["subject"], tuple(meta["claims"]), meta["operation"], meta["params"], answers)
