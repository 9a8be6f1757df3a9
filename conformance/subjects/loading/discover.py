"""Find and load subjects; no subject is known by name here.

Subjects come from the entry-point group `refnum.subjects` (our kernels and those of others), from the peers of this
package, or from a file named on the command line: Python, a declared shared library, or an executable.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import refnum
from refnum.errors import ArgumentError, FileError

from ...cases.levels import NOT_JUDGED
from ...cases.operation import OPERATIONS, near
from ..named import split
from ..subject import Subject, from_dict, words_of
from .declare import declared
from .executable import from_executable
from .shared_library import from_library

GROUP = "refnum.subjects"
ALIKE = 0.85
"""How much like the name of an operation, as in `difflib`, that of a function is which may be meant as one."""


def installed() -> tuple[list[Subject], list[tuple[str, str]]]:
    """Return the subjects of the entry-point group, and (entry point, reason) for each that failed to load."""
    found: list[Subject] = []
    broken: list[tuple[str, str]] = []
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found += [from_dict(entry, point.value) for entry in point.load()()]
        except Exception as error:  # a foreign package may fail in any way; it must not stop the others
            broken.append((point.name, f"{type(error).__name__}: {error}"))
    return found, broken


def peers() -> tuple[list[Subject], list[tuple[str, str]]]:
    """Return the peers shipped in `subjects.peers` (imported here, not before); absent means none."""
    if importlib.util.find_spec("refnum.conformance.subjects.peers") is None:
        return [], []
    try:
        module = importlib.import_module("refnum.conformance.subjects.peers")
        return [from_dict(entry, "refnum.conformance.subjects.peers") for entry in module.subjects()], []
    except Exception as error:  # a peer library's import may fail in any way
        return [], [("refnum.conformance.subjects.peers", f"{type(error).__name__}: {error}")]


def from_file(text: str) -> list[Subject]:
    """Return the subjects of `path/to/file.py:name`, of a declared library, or of `exec:path`.

    `name` is a callable named like an operation (or with an attribute `operation`), a dict in the form of the
    entry-point group, a dict of operation -> callable, or a function without arguments that returns a list of them.
    Without `:name` the file's `subjects()` is taken, or its declared functions, or every function named like an
    operation, those of refnum that it imports apart. A library is its `.so` or its `.toml`, see `shared_library`; an
    executable, see `executable`.
    """
    if text.startswith("exec:"):
        return [replace(from_dict(from_executable(text[5:]), text), origin=text)]
    if Path(text).suffix in (".so", ".toml"):
        return [replace(from_dict(from_library(Path(text)), text), origin=text)]
    path, name = split(text)
    module = _load(path)
    return [replace(subject, origin=subject.origin or text) for subject in _subjects_in(module, path, name, text)]


def _subjects_in(module: Any, path: Path, name: str, text: str) -> list[Subject]:
    if not name:
        if callable(getattr(module, "subjects", None)):
            return _listed(module.subjects, text)
        entries = declared([value for value in vars(module).values() if callable(value)])
        if entries:
            return [from_dict(entry, text) for entry in entries]
        named = {op: getattr(module, op, None) for op in OPERATIONS}
        own = {op: kernel for op, kernel in named.items() if callable(kernel) and kernel is not getattr(refnum, op)}
        if not own:
            written = [name + near(name) for name in _written_in(module)]
            known = f"; it has {', '.join(written)}" if written else ""
            raise ArgumentError(f"{path} has no function named like an operation; name one: {path}:NAME{known}.")
        mistyped = _mistyped(module, own)
        return [Subject(path.stem, own, describe=lambda: {NOT_JUDGED: ", ".join(mistyped)} if mistyped else {})]
    if not hasattr(module, name):
        names = _written_in(module)
        raise ArgumentError(f"{path} has no {name!r}" + (f"; it has {', '.join(names)}." if names else "."))
    return _from_object(getattr(module, name), name, text)


def _written_in(module: Any) -> list[str]:
    """Return the names of what a module defines itself."""
    return [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]


def _mistyped(module: Any, judged: Mapping[str, Any]) -> list[str]:
    """Return the functions of a module that may be meant as operations, beside those that are judged."""
    public = [one for one in _written_in(module) if not one.startswith("_") and one not in OPERATIONS]
    functions = [one for one in public if callable(getattr(module, one)) and not near(one, ALIKE, judged)]
    return [one + near(one, ALIKE) for one in functions if near(one, ALIKE)]


def _from_object(value: Any, name: str, origin: str) -> list[Subject]:
    if isinstance(value, list | tuple):
        return [from_dict(entry, origin) for entry in value]
    if isinstance(value, Subject):
        return [value]
    if isinstance(value, Mapping):
        entry = value if "operations" in value else {"name": name, "operations": value}
        return [from_dict(entry, origin)]
    entries = declared([value])
    if entries:
        return [from_dict(entries[0], origin)]
    operation = getattr(value, "operation", name)
    if callable(value) and operation in OPERATIONS:
        return [Subject(name, {operation: value})]
    if callable(value) and name == "subjects":
        return _listed(value, origin)
    raise ArgumentError(
        f"{origin}: {name!r} is not named like an operation; rename it, set `{name}.operation`, "
        f"or give a dict of operation -> callable."
    )


def _listed(function: Callable[[], Any], origin: str) -> list[Subject]:
    """Return the subjects that a file's function lists; FileError when it fails."""
    try:
        entries = list(function())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too, as when the file is loaded
        raise FileError(f"{origin}: its subjects() failed: {words_of(error)}.") from error
    return [from_dict(entry, origin) for entry in entries]


def function_from_file(text: str) -> Callable[..., Any]:
    """Return the function of `path/to/file.py:name`; FileError or ArgumentError where there is none."""
    path_text, _, name = text.rpartition(":")
    if not Path(path_text).is_file():
        raise FileError(f"No such file {path_text or text}; give path/to/file.py:NAME.")
    found = getattr(_load(Path(path_text)), name, None)
    if not callable(found):
        raise ArgumentError(f"{path_text} has no function {name!r}.")
    return cast(Callable[..., Any], found)


def _load(path: Path) -> Any:
    module_name, folder = f"refnum_subject_{path.stem}", str(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise FileError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    if folder not in sys.path:
        sys.path.append(folder)  # for what the file imports from beside itself; last, so that it hides nothing
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a file that ends its process must not end this one
        raise FileError(f"{path} failed to import: {type(error).__name__}: {error}.") from error
    return module
