"""Export the findings of a campaign as vectors, each with the right answer, in the format of the frozen vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refnum.errors import RefnumError
from refnum.profiles import get_profile

from ...bugs import earned
from ...cases.primitives import VECTOR_OPERATIONS, answer, make_case
from ...mismatches import replay
from ...reports import files
from ...vectors.build import ARGUMENTS
from ...vectors.load import load_notes
from ...vectors.record import array_record, canonical, profile_record, vector_id
from .database import Database
from .status import Watcher, bug_of

LARGEST = 1 << 14
"""Elements of the largest case that is written as literal hex."""


def export(db: Database, out: Path) -> tuple[int, list[str]]:
    """Write one vector file an operation and profile; return their number and why findings were omitted.

    The golden model computes every answer anew; the kernel's results are not exported.
    """
    groups: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    left: list[str] = []
    for finding in Watcher(db).findings():
        if finding["replay"] is None:
            left.append(f"finding {finding['id']} has no replay file: run `refnum fuzz minimise` first")
            continue
        try:
            saved = replay.load(_found(db, finding["replay"]))
            if saved.case.operation not in VECTOR_OPERATIONS or saved.case.elements > LARGEST:
                left.append(f"finding {finding['id']}: {saved.case} is too large or no vector operation")
                continue
            entry, shared = _entry(saved.case, finding)
        except RefnumError as error:
            left.append(f"finding {finding['id']}: {error}")
            continue
        key = (saved.case.operation, saved.case.profile)
        group = groups.setdefault(key, {}).setdefault(canonical(shared), {"params": shared, "vectors": []})
        if all(entry["id"] != other["id"] for other in group["vectors"]):
            group["vectors"].append(entry)
    for (operation, profile), found in groups.items():
        document = {
            "schema": "refnum.vectors/1", "operation": operation, "clause": VECTOR_OPERATIONS[operation].clause,
            "profile": profile_record(get_profile(profile)),
            "count": sum(len(group["vectors"]) for group in found.values()), "groups": list(found.values()),
        }  # fmt: skip
        files.write_text(out / operation / f"{profile}.json", canonical(document))
    return sum(len(g["vectors"]) for found in groups.values() for g in found.values()), left


def _found(db: Database, path: str) -> Path:
    """Return the path of a replay file in the campaign's present folder, which may have been moved."""
    here = db.path.parent / "cases" / Path(path).name
    return here if here.is_file() else Path(path)


def _entry(case: Any, finding: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    params = {name: value for name, value in case.params.items() if name != "input"}
    profile = profile_record(get_profile(case.profile))
    asked = {name: array_record(array) for name, array in case.inputs.items()}
    question = make_case(case.operation, case.profile, params, case.inputs)
    outputs = answer(question)
    notes = [entry["id"] for entry in (finding["record"] or {}).get("bug_classes", []) if entry["id"] in load_notes()]
    entry: dict[str, Any] = {
        "id": vector_id(case.operation, profile, params, asked),
        "clause": VECTOR_OPERATIONS[case.operation].clause,
        "flags": list(earned(tuple(notes), question, outputs)),
        "comment": f"Found by fuzzing in {finding['target']}: {bug_of(finding)}.",
    }
    arguments = {name: params[name] for name in ARGUMENTS if name in params}
    if arguments:
        entry["arguments"] = arguments
    shared = {name: value for name, value in params.items() if name not in ARGUMENTS}
    return {**entry, "inputs": asked, "outputs": {n: array_record(a) for n, a in outputs.items()}}, shared
