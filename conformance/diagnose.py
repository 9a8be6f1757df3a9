"""Guess the bug class of a mismatch: try every known wrong rule and keep those that give the very same wrong bits.

A guess is not a proof. On a case of one or two elements several wrong rules may give the same bits; all of them
are named, the most specific first, as they stand in `suspects.SUSPECTS`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any

import numpy as np

from refnum.errors import RefnumError

from .case import Case
from .suspects import SUSPECTS

SHOWN = 4


def diagnose(case: Case, golden: Mapping[str, np.ndarray], observed: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the suspects whose wrong bits equal the observed bits and differ from the golden ones.

    Each is {"id", "words", "note"}, where note is the entry of the notes registry with that id, or None.
    """
    found: list[dict[str, Any]] = []
    for suspect in SUSPECTS:
        if not any(fnmatchcase(case.operation, pattern) for pattern in suspect.operations):
            continue
        try:
            wrong = suspect.wrong(case, golden)
        except (RefnumError, ValueError, IndexError, KeyError):  # the wrong rule does not apply to this case
            continue
        if wrong is None or _equal(wrong, golden) or not _equal(wrong, observed):
            continue
        if suspect.id not in {entry["id"] for entry in found}:
            found.append({"id": suspect.id, "words": suspect.words, "note": notes().get(suspect.id)})
    return found[:SHOWN]


def _equal(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@functools.cache
def notes() -> dict[str, dict[str, Any]]:
    """Return the registry of bug notes by id (`vectors/notes.json`); empty when it is not installed."""
    try:
        text = resources.files("vectors").joinpath("notes.json").read_text(encoding="utf-8")
        entries = json.loads(text)
    except (ModuleNotFoundError, OSError, ValueError):
        return {}
    entries = entries.get("notes", entries) if isinstance(entries, dict) else entries
    if isinstance(entries, dict):
        return {name: {"id": name, **note} for name, note in entries.items() if isinstance(note, dict)}
    return {note["id"]: note for note in entries if isinstance(note, dict) and "id" in note}
