"""What was frozen stays: an id never means another question, never gets another answer in silence, never vanishes.

`history.json` says whether the vectors are frozen yet, and lists the vectors that a release removed or
corrected. Until then ids may come and go; after it `build` refuses a change that the file does not name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .errors import VectorFileError
from .load import read_document, vector_files


def require_kept(old: Path, fresh: Path) -> None:
    """Raise VectorFileError when an id of `old` is gone from `fresh`, or its answer differs, without an entry."""
    record = read_document(fresh / "history.json")
    if not record["frozen"]:
        return
    removed, corrected = ({entry["id"] for entry in record[kind]} for kind in ("removed", "corrected"))
    before, after = answers(old), answers(fresh)
    gone = sorted(set(before) - set(after) - removed)
    if gone:
        raise VectorFileError(
            f"Vector {gone[0]} and {len(gone) - 1} more would vanish; name them as removed in history.json."
        )
    changed = sorted(i for i in set(before) & set(after) if before[i] != after[i] and i not in corrected)
    if changed:
        raise VectorFileError(
            f"The answer of vector {changed[0]} and {len(changed) - 1} more would change; "
            "name them as corrected in history.json."
        )


def answers(folder: Path) -> dict[str, Any]:
    """Return id -> what decides the answer: the output records, or the digest of the tensor file."""
    found = {}
    for path in vector_files(folder):
        for group in read_document(path)["groups"]:
            for entry in group["vectors"]:
                found[entry["id"]] = entry["sha256"] if "tensor" in entry else entry["outputs"]
    return found
