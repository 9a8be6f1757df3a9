"""Where a subject's functions stand, for reports that point at lines of a repository."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .subject import Subject


def sources(subject: Subject) -> dict[str, dict[str, Any]]:
    """Return operation -> {"file", "line"} of its function; the file relative to the current folder if below it.

    A function that Python cannot find, such as one of a library, stands at the start of the file that names it. An
    operation whose place is unknown is left out.
    """
    found = {}
    for operation, function in subject.operations.items():
        place = _place(function) or _named(subject.origin, operation)
        if place is not None:
            found[operation] = {"file": _relative(place[0]), "line": place[1]}
    return found


def _place(function: Callable[..., Any]) -> tuple[Path, int] | None:
    plain = inspect.unwrap(function)
    code = getattr(getattr(plain, "__func__", plain), "__code__", None)
    path = Path(code.co_filename) if code is not None else None
    if code is None or path is None or not path.is_file() or Path(__file__).parents[1] in path.parents:
        return None  # the harness's own wrappers are nobody's kernel
    return path, code.co_firstlineno


def _named(origin: str, operation: str) -> tuple[Path, int] | None:
    """Return the place that an origin names; the subject may live in another process, so the file's text is read."""
    text, _, name = origin.removeprefix("exec:").partition(".py:")
    path = Path(f"{text}.py" if name else text)
    if path.suffix == ".so" and path.with_suffix(".toml").is_file():
        path = path.with_suffix(".toml")
    if not path.is_file():
        return None
    if path.suffix == ".toml":
        return _declared(path, operation)
    return path, _line(path, {name, operation}, operation) if path.suffix == ".py" else 1


def _declared(path: Path, operation: str) -> tuple[Path, int]:
    """Return the place that a library's declaration gives as `source`, FILE or FILE:LINE; else its own first line."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        source = said.get("operations", {}).get(operation, {}).get("source") or said.get("source") or path.name
    except (OSError, ValueError, AttributeError):
        return path, 1
    file, _, line = source.rpartition(":")
    return (path.parent / file, max(1, int(line))) if file and line.isdecimal() else (path.parent / source, 1)


def _line(path: Path, names: set[str], operation: str) -> int:
    """Return the line of the function of one of these names, or declared to implement the operation; else 1."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return 1
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in functions:
        texts = [arg.value for call in node.decorator_list for arg in ast.walk(call) if isinstance(arg, ast.Constant)]
        if operation in texts:
            return node.lineno
    return next((node.lineno for node in functions if node.name in names), 1)


def _relative(path: Path) -> str:
    whole, here = path.resolve(), Path.cwd().resolve()
    return (whole.relative_to(here) if here in whole.parents else whole).as_posix()
