"""Files the harness writes and reads: JSON, whole or not at all, checked against a schema."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from refnum.errors import FileError, UnsupportedError

SCHEMAS = Path(__file__).parent / "schema"
UNPACKED, RATIO = 1 << 30, 64
"""An archive may unpack to so many bytes, or to so many times its own size, whichever is more."""


def write_json(path: Path, document: Any) -> None:
    """Write a document as JSON under a temporary name in the same folder, then rename it into place."""
    write_text(path, json.dumps(document, indent=1, sort_keys=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, whole or not at all; FileError when the folder cannot be written.

    Lone surrogates, which names of files may hold, are written as `\\udcff`.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(name, 0o666 & ~_mask())
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise FileError(f"Cannot write {path}: {error.strerror}.") from error


@functools.cache
def _mask() -> int:
    """The permissions that a new file of this process lacks; a temporary file has fewer."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise FileError for an archive that says it unpacks to more than UNPACKED bytes and more than RATIO times its size.

    No member gives more bytes than its directory entry says (`zipfile` stops there), so nothing is unpacked to know it.
    """
    size, own = sum(entry.file_size for entry in archive.infolist()), path.stat().st_size
    allowed = max(UNPACKED, RATIO * own)
    if size > allowed:
        raise FileError(f"{path} has {own} bytes and would unpack to {size}; at most {allowed} are unpacked.")


def read_json(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Return a document of `refnum.<kind>/<version>`, checked against its schema.

    Raises FileError for a file that is missing, no JSON, of another kind or version, or not as the schema says.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileError(f"No such file: {path}.") from error
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise FileError(f"{path} is no readable JSON: {error}.") from error
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith(f"refnum.{kind}/"):
        raise FileError(f"{path} is no refnum {kind} file: its `schema` is not refnum.{kind}/{version}.")
    if document["schema"] != f"refnum.{kind}/{version}":
        raise FileError(f"{path} has {document['schema']}; this version reads refnum.{kind}/{version} only.")
    check(document, kind, str(path))
    return document


def check(document: Any, kind: str, origin: str) -> None:
    """Raise FileError with the first place where a document is not as its schema says."""
    problems = sorted(_validator(kind).iter_errors(document), key=lambda problem: [str(p) for p in problem.path])
    if problems:
        where = "/".join(map(str, problems[0].path)) or "the top"
        raise FileError(f"{origin}: at {where}: {problems[0].message[:300]}.")


@functools.cache
def _validator(kind: str) -> Any:
    try:
        import jsonschema  # here, because it is slow to import and a run without files needs none of it
    except ModuleNotFoundError as error:
        raise UnsupportedError("Checking files needs the package jsonschema; install it.") from error
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema)
