"""The words that name a subject: those that lead to a file, and whether the file is there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from refnum.errors import FileError


def is_file(name: str) -> bool:
    """Return whether a subject's words lead to a file or a program rather than to an installed subject."""
    return ".py" in name or "/" in name or name.startswith("exec:") or name.endswith((".so", ".toml"))


def refuse_path(name: str) -> None:
    """Raise FileError where the words are the path of a folder, or of a file of no kind that holds subjects."""
    if os.path.exists(name):
        what = "a folder" if os.path.isdir(name) else "a file of another kind"
        raise FileError(
            f"{name} is {what}; give a Python file, FILE.py:NAME, a .so or .toml file, or a subject's name."
        )


def split(text: str) -> tuple[Path, str]:
    """Return the path and the name of `path/to/file.py:name`; FileError where there is no such file."""
    path_text, _, name = text.partition(":") if ":" in text[2:] else (text, "", "")
    path = Path(path_text)
    if not path.is_file():
        refuse_path(path_text)
        raise FileError(f"No such file {path}; give --subject path/to/file.py:name.")
    return path, name


def require_files(names: Iterable[str]) -> None:
    """Raise FileError for the first name that leads to a Python file which is not there, or to a folder."""
    for name in names:
        if is_file(name) and not name.startswith("exec:"):
            if os.path.isdir(name):
                refuse_path(name)
            if not name.endswith((".so", ".toml")):
                split(name)
