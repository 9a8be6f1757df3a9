"""Reading vectors: JSON files and the safetensors beside them, as arrays and as Cases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..cases.case import Case
from ..cases.primitives import VECTOR_OPERATIONS, make_case
from .errors import VectorFileError
from .folder import AUTHORED, FOREIGN, vectors_folder
from .record import record_array
from .safetensors import read_safetensors


@dataclass(frozen=True, eq=False)
class Vector:
    """One frozen vector: the question, the one right answer, and the notes it hunts."""

    id: str
    operation: str
    profile: Mapping[str, Any]
    params: Mapping[str, Any]
    clause: str
    flags: tuple[str, ...]
    comment: str
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    file: str
    tensor: str | None = None

    def case(self) -> Case:
        """Return the question as a Case: what the runner and the golden model take."""
        return make_case(self.operation, self.profile["name"], self.params, self.inputs, label=f"vector {self.id}")


def read_document(path: Path) -> dict[str, Any]:
    """Return one vector file as JSON. Raises VectorFileError when it is missing or no JSON object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise VectorFileError(f"No such vector file: {path}.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise VectorFileError(f"{path} is no readable JSON: {error}.") from error
    if not isinstance(document, dict):
        raise VectorFileError(f"{path} holds no JSON object.")
    return document


def vector_files(folder: Path) -> list[Path]:
    """Return every `<operation>/<profile>.json` of the folder, sorted."""
    return sorted(p for p in folder.glob("*/*.json") if p.parent.name not in (*AUTHORED, "tensors", *FOREIGN))


def document_vectors(document: Mapping[str, Any], folder: Path, file: str) -> Iterator[Vector]:
    """Yield the vectors of one document that passed its schema; tensors are read from the folder."""
    for group in document["groups"]:
        for entry in group["vectors"]:
            inputs, outputs = _arrays(entry, folder, document["operation"])
            yield Vector(
                entry["id"],
                document["operation"],
                document["profile"],
                {**group["params"], **entry.get("arguments", {})},
                entry.get("clause", document["clause"]),
                tuple(entry["flags"]),
                entry["comment"],
                inputs,
                outputs,
                file,
                entry.get("tensor"),
            )


def _arrays(
    entry: Mapping[str, Any], folder: Path, operation: str
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    if "tensor" not in entry:
        try:
            return tuple({n: record_array(r) for n, r in entry[side].items()} for side in ("inputs", "outputs"))  # type: ignore[return-value]
        except (VectorFileError, ValueError) as error:
            raise VectorFileError(f"vector {entry['id']}: {error}") from error
    path = folder / entry["tensor"]
    if not path.is_file():
        raise VectorFileError(f"vector {entry['id']}: its file {entry['tensor']} is missing.")
    tensors, _ = read_safetensors(path.read_bytes(), entry["tensor"])
    return _side(tensors, "inputs.", operation), _side(tensors, "outputs.", operation)


def _side(tensors: Mapping[str, np.ndarray], prefix: str, operation: str) -> dict[str, np.ndarray]:
    """Return the inputs or outputs in the order of the operation's signature: a safetensors file has its own."""
    known = VECTOR_OPERATIONS[operation]
    order = [*known.inputs, *known.optional] if prefix == "inputs." else [output.name for output in known.outputs]
    names = sorted(
        (name.removeprefix(prefix) for name in tensors if name.startswith(prefix)),
        key=lambda name: order.index(name) if name in order else -1,
    )
    return {name: tensors[prefix + name] for name in names}


def load_vectors(
    operation: str | None = None, profile: str | None = None, folder: Path | None = None
) -> Iterator[Vector]:
    """Yield the frozen vectors, all or of one operation and one profile, in the order of the files.

    Raises VectorFileError when the folder or a file is missing or malformed, or nothing is selected.
    """
    folder = vectors_folder() if folder is None else folder
    paths = [
        p
        for p in vector_files(folder)
        if (operation is None or p.parent.name == operation) and (profile is None or p.stem == profile)
    ]
    if not paths:
        raise VectorFileError(
            f"No vectors of operation {operation or 'any'} and profile {profile or 'any'} in {folder}."
        )
    for path in paths:
        file = path.relative_to(folder).as_posix()
        try:
            yield from document_vectors(read_document(path), folder, file)
        except (KeyError, TypeError) as error:
            raise VectorFileError(f"{file} is malformed ({error!r}); run `refnum vectors verify`.") from error


def load_notes(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the notes by id: bugClass, description, effect, clause, links."""
    folder = vectors_folder() if folder is None else folder
    return read_document(folder / "notes.json")["notes"]
