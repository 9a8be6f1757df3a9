"""The document of a run: a header that says where and how, records, host overheads. Written and read as JSON."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refnum.digest import model_digest

from ...reports import files
from .contender import Contender

KIND, VERSION = "bench", 1
PACKAGES = ("refnum", "numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "triton", "tilelang", "tile-kernels")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that were timed or timed with."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def header(
    arguments: Sequence[str],
    device: dict[str, Any],
    contenders: Sequence[Contender],
    missing: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Return where and how a run is made."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["refnum", *arguments]),
        "device": device,
        "versions": versions(),
        "model_digest": model_digest(),
        "contenders": [
            {"name": one.name, "note": one.note, "is_subject": one.is_subject, "describe": _facts(one)}
            for one in contenders
        ],
        "missing": [{"name": name, "reason": reason} for name, reason in missing],
    }


def _facts(one: Contender) -> dict[str, str]:
    try:
        return one.describe()
    except Exception as error:  # foreign code may fail in any way
        return {"describe": f"failed: {type(error).__name__}: {error}"}


def document(head: dict[str, Any], records: list[dict[str, Any]], calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the whole document, checked against its schema."""
    found = {"schema": f"refnum.{KIND}/{VERSION}", "header": head, "records": records, "calls": calls}
    files.check(found, KIND, "this run")
    return found


def read(path: Path) -> dict[str, Any]:
    """Return a saved document; FileError for anything else."""
    return files.read_json(path, KIND, VERSION)


def timed(found: dict[str, Any], shape: str | None = None) -> list[dict[str, Any]]:
    """Return the records with a time, of one shape or of all."""
    return [r for r in found["records"] if r["status"] == "timed" and shape in (None, r["shape"])]


def shapes(found: dict[str, Any]) -> list[str]:
    """Return the names of the shapes in the order of the run."""
    return list(dict.fromkeys(r["shape"] for r in timed(found)))


def factors(found: dict[str, Any]) -> dict[tuple[str, str, str], float]:
    """Return (shape, line, peer) -> how many times as long as the subject the peer took."""
    own = {(r["shape"], r["line"]): r["us"]["median"] for r in timed(found) if r["is_subject"]}
    return {
        (r["shape"], r["line"], r["contender"]): r["us"]["median"] / own[r["shape"], r["line"]]
        for r in timed(found)
        if not r["is_subject"] and (r["shape"], r["line"]) in own
    }


def agreement(record: dict[str, Any]) -> str:
    """Return in words whether a record's results are the golden model's."""
    if record["agreement"] == "equal":
        return "equal"
    share = 100 * record["differing"] / max(record["compared"], 1)
    if record["agreement"] == "values":
        return f"equal values, {share:.2g} % of the bytes differ"
    return f"{share:.2g} % differ"
