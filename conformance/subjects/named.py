"""The words that name a subject: those that lead to a file, and whether the file is there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from refnum.errors import FileError


def is_file(name: str) -> bool:
    """Return whether a subject's words lead to a file or a program rather than to an installed subject."""
    return ".py" in name or "/" in name or name.startswith("exec:") or name.endswith((".so", ".toml"))


def split(text: str) -> tuple[Path, str]:
    """Return the path and the name of `path/to/file.py:name`; FileError where there is no such file."""
    path_text, _, name = text.partition(":") if ":" in text[2:] else (text, "", "")
    path = Path(path_text)
    if not path.is_file():
        raise FileError(f"No such file {path}; give --subject path/to/file.py:name.")
    return path, name


def require_files(names: Iterable[str]) -> None:
    """Raise FileError for the first name that leads to a Python file which is not there."""
    for name in names:
        if is_file(name) and not name.startswith("exec:") and not name.endswith((".so", ".toml")):
            split(name)
