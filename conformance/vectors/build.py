"""Freezing: every draft gets its answer and its id, every file its one text, the folder its manifest."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from refnum.profiles import Profile, get_profile

from ..bugs import earned
from ..cases.primitives import VECTOR_OPERATIONS, answer, make_case
from . import history
from .cases import questions
from .draft import Draft
from .errors import VectorFileError
from .folder import AUTHORED, FOREIGN, MANIFEST, data_files, vectors_folder
from .record import array_record, canonical, profile_record, vector_id
from .safetensors import write_safetensors

ARGUMENTS = ("splits", "tokens", "signs", "rows", "columns")
"""Parameters that belong to one vector, not to its group."""


def build(out: Path, source: Path | None = None) -> int:
    """Write the whole folder to `out`, whole or not at all, and return the number of vectors.

    source: the folder whose authored files are taken over, the installed one when None. An existing `out` is
    replaced when it is a vectors folder; ids that it froze must still be there (see `history`).
    Raises VectorFileError.
    """
    source = vectors_folder() if source is None else source
    out = out.resolve()  # a link stays, and what it names is replaced
    if out.exists() and any(out.iterdir()) and not (out / "notes.json").is_file():
        raise VectorFileError(f"{out} is not empty and no vectors folder; name a new one.")
    files, count = generated_files()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        fresh = Path(temporary) / "vectors"
        fresh.mkdir()
        _take_over(source, fresh)
        for name, data in files.items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).write_bytes(data)
        (fresh / MANIFEST).write_text(manifest(fresh), encoding="ascii")
        if out.exists():
            history.require_kept(out, fresh)
            for name in FOREIGN:
                if (out / name).is_dir():
                    shutil.copytree(out / name, fresh / name)
            out.rename(Path(temporary) / "old")
        fresh.rename(out)
    return count


def _take_over(source: Path, fresh: Path) -> None:
    for name in AUTHORED:
        if (source / name).is_dir():
            shutil.copytree(source / name, fresh / name)
        elif (source / name).is_file():
            shutil.copyfile(source / name, fresh / name)


def manifest(folder: Path) -> str:
    """Return the text of MANIFEST.sha256: what `sha256sum -c` reads, sorted by name."""
    return "".join(
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in data_files(folder)
    )


def generated_files(operations: Iterable[str] = tuple(VECTOR_OPERATIONS)) -> tuple[dict[str, bytes], int]:
    """Return every generated file of some operations by its path in the folder, and the number of vectors."""
    files: dict[str, bytes] = {}
    total = 0
    for operation in operations:
        for name in questions(operation).profiles:
            document, tensors = _document(operation, get_profile(name))
            if document["count"]:
                files[f"{operation}/{name}.json"] = canonical(document).encode()
                files.update(tensors)
                total += document["count"]
    return files, total


def _document(operation: str, profile: Profile) -> tuple[dict[str, Any], dict[str, bytes]]:
    groups: dict[str, dict[str, Any]] = {}
    tensors: dict[str, bytes] = {}
    seen: set[str] = set()
    for draft, outputs in _answered(operation, profile):
        entry = _entry(operation, profile, draft, outputs, tensors)
        if entry["id"] in seen:
            raise VectorFileError(f"{operation}/{profile.name}: two drafts ask the same question: {draft.comment!r}.")
        seen.add(entry["id"])
        shared = {k: v for k, v in draft.params.items() if k not in ARGUMENTS}
        groups.setdefault(canonical(shared), {"params": shared, "vectors": []})["vectors"].append(entry)
    document = {
        "schema": "refnum.vectors/1",
        "operation": operation,
        "clause": VECTOR_OPERATIONS[operation].clause,
        "profile": profile_record(profile),
        "count": len(seen),
        "groups": list(groups.values()),
    }
    return document, tensors


def _answered(operation: str, profile: Profile) -> Iterator[tuple[Draft, dict[str, np.ndarray]]]:
    """Yield each draft with its answer; a profile that is not `WHOLE` gets only what differs from HOPPER's."""
    asked = questions(operation)
    everything = profile.name in asked.whole
    for draft in asked.drafts(profile):
        outputs = answer(make_case(operation, profile.name, draft.params, draft.inputs))
        if not everything:
            usual = answer(make_case(operation, "HOPPER", draft.params, draft.inputs))
            if all(np.array_equal(outputs[name], usual[name]) for name in outputs):
                continue
        yield draft, outputs


def _entry(
    operation: str, profile: Profile, draft: Draft, outputs: dict[str, np.ndarray], tensors: dict[str, bytes]
) -> dict[str, Any]:
    asked = {name: array_record(array) for name, array in draft.inputs.items()}
    answered = {name: array_record(array) for name, array in outputs.items()}
    literal = profile_record(profile)
    identity = vector_id(operation, literal, draft.params, asked)
    case = make_case(operation, profile.name, draft.params, draft.inputs)
    clause = draft.clause or VECTOR_OPERATIONS[operation].clause
    entry: dict[str, Any] = {
        "id": identity,
        "clause": clause,
        "flags": list(earned(draft.flags, case, outputs)),
        "comment": draft.comment,
    }
    arguments = {k: draft.params[k] for k in ARGUMENTS if k in draft.params}
    if arguments:
        entry["arguments"] = arguments
    if not draft.tensor:
        return {**entry, "inputs": asked, "outputs": answered}
    data = write_safetensors(
        {**{f"inputs.{n}": a for n, a in draft.inputs.items()}, **{f"outputs.{n}": a for n, a in outputs.items()}},
        {"id": identity, "operation": operation, "profile": literal, "params": draft.params},
    )
    name = f"tensors/{operation}-{profile.name}-{identity}.safetensors"
    tensors[name] = data
    return {**entry, "tensor": name, "sha256": hashlib.sha256(data).hexdigest()}
