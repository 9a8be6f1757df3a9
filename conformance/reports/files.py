"""Files the harness writes and reads: JSON, whole or not at all, checked against a schema."""

from __future__ import annotations

import functools
import itertools
import json
import lzma
import math
import os
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refnum.errors import FileError, RefnumError, UnsupportedError

OWN = ".refnum"
"""Folder of notes, replay files and certificates in the working directory."""
SCHEMAS = Path(__file__).parent / "schema"
ARRAY_DAMAGE = (
    ValueError, OSError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError, SyntaxError, RuntimeError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What NumPy and `zipfile` raise for a damaged file of arrays; RuntimeError is that of an encrypted member."""
LARGEST, DEPTH, PROBLEMS = 1 << 28, 64, 100
"""Bytes of a JSON file that is read, how deep it may be nested, and how many problems are looked at."""
UNPACKED, RATIO = 1 << 30, 64
"""An archive may unpack to so many bytes, or to so many times its own size, whichever is more."""


def write_json(path: Path, document: Any) -> None:
    """Write a document as JSON under a temporary name in the same folder, then rename it into place."""
    write_text(path, json.dumps(document, indent=1, sort_keys=False, allow_nan=False) + "\n")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; a new `.refnum`, the harness's own, is told to git as not to be kept."""
    own = next((part for part in (folder, *folder.parents) if part.name == OWN), None)
    fresh = own is not None and not own.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if own is not None and fresh:
        (own / ".gitignore").write_text("*\n", encoding="ascii")


def require_place(*paths: Path | None) -> None:
    """Raise FileError for the first path that `write_text` cannot write: before a long run whose results go there."""
    for path in paths:
        if path is not None and (words := _no_place(path)):
            raise FileError(f"Cannot write {path}: {words}.")


def require_place_of_report(path: Path | None) -> None:
    """Raise FileError as `require_place` does, and where a file stands that holds no JSON: a kernel, say."""
    require_place(path)
    if path is None or not path.is_file():
        return
    try:
        with path.open("rb") as file:
            held = file.read(256).lstrip()[:1]
    except OSError as error:
        raise FileError(f"Cannot write {path}: what it holds cannot be read: {error}.") from error
    if held not in (b"", b"{"):
        raise FileError(f"Cannot write {path}: it holds something else than a report; name another file.")


def _no_place(path: Path) -> str:
    """Return why no file can be written there, or nothing."""
    above = next((folder for folder in path.parents if os.path.exists(folder)), Path())
    if os.path.isdir(path):
        return "it is a folder; give the name of a file"
    if os.path.exists(path) and not os.path.isfile(path):
        return "it is no regular file"
    if not os.path.isdir(above):
        return f"{above} is no folder"
    return "" if os.access(above, os.W_OK | os.X_OK) else f"{above} cannot be written"


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, whole or not at all; FileError when the folder cannot be written.

    Lone surrogates, which names of files may hold, are written as `\\udcff`.
    """
    data = text.encode("utf-8", "backslashreplace")
    require_place(path)
    try:
        make_folder(path.parent)
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
    """Raise FileError for an archive that would unpack to more than UNPACKED bytes and RATIO times its own size.

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
    document = parse(path)
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith(f"refnum.{kind}/"):
        raise FileError(f"{path} is no refnum {kind} file: its `schema` is not refnum.{kind}/{version}.")
    if document["schema"] != f"refnum.{kind}/{version}":
        raise FileError(f"{path} has {document['schema']}; this version reads refnum.{kind}/{version} only.")
    check(document, kind, str(path))
    return document


def parse(path: Path) -> Any:
    """Return what a JSON file holds.

    Raises FileError for a file that is missing, no JSON, larger than LARGEST, nested deeper than DEPTH, or that holds a
    number which is not finite.
    """
    try:
        with path.open("rb") as stream:  # a device or a pipe tells no size
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise FileError(f"{path} has more than {LARGEST} bytes, the most that are read.")
        document = json.loads(data.decode("utf-8"), parse_constant=_finite, parse_float=_finite)
    except FileNotFoundError as error:
        raise FileError(f"No such file: {path}.") from error
    except RecursionError as error:
        raise FileError(f"{path} is nested deeper than {DEPTH} levels.") from error
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise FileError(f"{path} is no readable JSON: {error}.") from error
    level = [document]
    for _ in range(DEPTH):
        level = [part for item in level for part in _parts(item)]
    if level:
        raise FileError(f"{path} is nested deeper than {DEPTH} levels.")
    return document


@contextmanager
def understood(path: Path, kind: type[RefnumError] = FileError) -> Iterator[None]:
    """Turn the errors of working on what a file holds, where its form alone was checked, into one of ours."""
    try:
        yield
    except RefnumError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise kind(f"{path} holds what refnum never writes: {type(error).__name__}: {error}.") from error


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text[:40]} is no finite number")
    return float(text)


def _parts(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


def check(document: Any, kind: str, origin: str) -> None:
    """Raise FileError with the first place where a document is not as its schema says."""
    found = itertools.islice(_validator(kind).iter_errors(document), PROBLEMS)
    problems = sorted(found, key=lambda problem: [str(p) for p in problem.path])
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
