"""The folder that keeps compiled code between runs."""

from __future__ import annotations

import os
from pathlib import Path

from refnum.errors import UnsupportedError


def cache_folder() -> Path:
    """Return $REFNUM_CACHE, else `refnum` in the user's cache folder; UnsupportedError where there is none."""
    if os.environ.get("REFNUM_CACHE"):
        return Path(os.environ["REFNUM_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "refnum"
    except RuntimeError as error:
        raise UnsupportedError("there is no home folder for compiled kernels: set REFNUM_CACHE") from error


def cannot_keep(folder: Path, error: OSError) -> UnsupportedError:
    """Return the error of a cache folder that cannot be written."""
    return UnsupportedError(
        f"compiled kernels cannot be kept in {folder} ({error.strerror}): set REFNUM_CACHE to a writable folder"
    )
