"""What a schema cannot say: ids from content, flags with notes, counts, one canonical text (clause N14)."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema.exceptions

from refnum.errors import ProfileError
from refnum.profiles import get_profile

from .errors import VectorFileError
from .folder import data_files
from .load import document_vectors, read_document, vector_files
from .record import array_record, canonical, profile_record, vector_id

_BROKEN_SCHEMA = (
    jsonschema.exceptions.SchemaError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What jsonschema raises when a schema itself is malformed."""
_ENTRY_ORDER = ("id", "clause", "flags", "comment", "arguments", "inputs", "outputs", "tensor", "sha256")


def lint(folder: Path) -> int:
    """Check every file of the folder; return the number of vectors. Raises VectorFileError with the first fault."""
    notes = _checked(folder, "notes.json", "notes")["notes"]
    history = _checked(folder, "history.json", "history")
    for path in sorted((folder / "schema").glob("*.json")):
        _require_canonical(folder, path.relative_to(folder).as_posix(), read_document(path))
    ids: dict[str, str] = {}
    used: Counter[str] = Counter()
    files = vector_files(folder)
    if not files:
        raise VectorFileError(f"{folder} holds no vector files; run `refnum vectors build --out {folder}`.")
    for path in files:
        file = path.relative_to(folder).as_posix()
        document = _checked(folder, file, "vectors")
        _lint_document(document, file, folder, ids)
        for entry in _entries(document):
            used.update(entry["flags"])
    _lint_notes(notes, used)
    _lint_history(history, ids)
    _lint_tensors(folder, files)
    return len(ids)


def _checked(folder: Path, file: str, kind: str) -> dict[str, Any]:
    document = read_document(folder / file)
    try:
        faults = _validator(str(folder), kind).iter_errors(document)
        problems = sorted(faults, key=lambda p: [str(s) for s in p.path])
    except _BROKEN_SCHEMA as error:
        raise VectorFileError(f"The schemas of {folder} are broken: {str(error)[:300]}") from error
    if problems:
        deepest = max(problems[0].context or [problems[0]], key=lambda p: len(p.path))
        where = "/".join(map(str, deepest.absolute_path)) or "the top"
        raise VectorFileError(f"{file}: at {where}: {deepest.message[:300]}")
    _require_canonical(folder, file, document)
    return document


@functools.cache
def _validator(folder: str, kind: str) -> jsonschema.Draft202012Validator:
    schemas = {path.name: read_document(path) for path in sorted((Path(folder) / "schema").glob("*.schema.json"))}
    if f"{kind}.schema.json" not in schemas:
        raise VectorFileError(f"{folder} has no schema/{kind}.schema.json.")
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    own = schemas[f"{kind}.schema.json"]
    return jsonschema.Draft202012Validator(_without_references(own, own, schemas))


def _without_references(part: Any, own: Any, schemas: Mapping[str, Any]) -> Any:
    """Return a part of a schema with what its references name in their places: finding it at each use takes long."""
    if isinstance(part, list):
        return [_without_references(one, own, schemas) for one in part]
    if not isinstance(part, dict):
        return part
    rest = {name: _without_references(one, own, schemas) for name, one in part.items() if name != "$ref"}
    if "$ref" not in part:
        return rest
    file, _, pointer = part["$ref"].partition("#")
    own = found = schemas[file] if file else own
    for name in pointer.split("/")[1:]:
        found = found[name]
    found = _without_references(found, own, schemas)
    return {**rest, "allOf": [*rest.get("allOf", ()), found]} if rest else found


def _require_canonical(folder: Path, file: str, document: Mapping[str, Any]) -> None:
    if (folder / file).read_text(encoding="utf-8") != canonical(document):
        raise VectorFileError(
            f"{file}: the text is not canonical; write it with refnum.conformance.vectors.record.canonical."
        )


def _entries(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for group in document["groups"]:
        yield from group["vectors"]


def _lint_document(document: Mapping[str, Any], file: str, folder: Path, ids: dict[str, str]) -> None:
    profile = document["profile"]
    if file != f"{document['operation']}/{profile['name']}.json":
        raise VectorFileError(f"{file}: holds {document['operation']} under {profile['name']}; the name must say so.")
    if not _known(profile):
        raise VectorFileError(f"{file}: its profile is not refnum's {profile['name']}.")
    entries = list(_entries(document))
    if document["count"] != len(entries):
        raise VectorFileError(f"{file}: count is {document['count']}, the groups hold {len(entries)} vectors.")
    groups = [json.dumps(group["params"]) for group in document["groups"]]
    if len(set(groups)) != len(groups):
        raise VectorFileError(f"{file}: two groups have the same params; join them.")
    for entry, vector in zip(entries, document_vectors(document, folder, file), strict=True):
        if list(entry) != [key for key in _ENTRY_ORDER if key in entry] or list(entry["flags"]) != sorted(
            entry["flags"]
        ):
            raise VectorFileError(f"{file}: vector {entry['id']}: keys or flags are not in canonical order.")
        asked = {name: array_record(array) for name, array in vector.inputs.items()}
        right = vector_id(vector.operation, profile, vector.params, asked)
        if entry["id"] != right:
            raise VectorFileError(f"{file}: vector {entry['id']}: its content has the id {right}.")
        if entry["id"] in ids:
            raise VectorFileError(f"{file}: vector {entry['id']} is already in {ids[entry['id']]}.")
        ids[entry["id"]] = file


def _known(profile: Mapping[str, Any]) -> bool:
    """Whether the record is that of the profile of its name: one of refnum's, or a custom one (N14.5)."""
    try:
        return profile_record(get_profile(profile["name"])) == profile
    except ProfileError:
        return False


def _lint_notes(notes: Mapping[str, Any], used: Counter[str]) -> None:
    unknown, unused = sorted(set(used) - set(notes)), sorted(set(notes) - set(used))
    if unknown:
        raise VectorFileError(f"Flag {unknown[0]} has no note in notes.json.")
    if unused:
        raise VectorFileError(f"Note {unused[0]} has no vector; write one or remove the note.")
    if list(notes) != sorted(notes):
        raise VectorFileError("notes.json: the notes are not sorted by id.")


def _lint_history(history: Mapping[str, Any], ids: Mapping[str, str]) -> None:
    for entry in history["removed"]:
        if entry["id"] in ids:
            raise VectorFileError(f"history.json: vector {entry['id']} is removed but still in {ids[entry['id']]}.")
        if entry["by"] is not None and entry["by"] not in ids:
            raise VectorFileError(
                f"history.json: vector {entry['by']}, which supersedes {entry['id']}, does not exist."
            )
    for entry in history["corrected"]:
        if entry["id"] not in ids:
            raise VectorFileError(f"history.json: vector {entry['id']} is corrected but does not exist.")


def _lint_tensors(folder: Path, files: list[Path]) -> None:
    named = {entry["tensor"] for path in files for entry in _entries(read_document(path)) if "tensor" in entry}
    present = {name for name in data_files(folder) if name.startswith("tensors/")}
    if named != present:
        raise VectorFileError(f"tensors: {sorted(named ^ present)[0]} is not both present and named by one vector.")
