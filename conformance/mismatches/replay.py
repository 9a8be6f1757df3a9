"""Replay files: one case with literal bytes, what was expected and what was observed; they run anywhere.

A replay file needs no GPU, no recipe and no seed: the golden side is computed again from the literal inputs and
compared with the expectation in the file, and the subject is called again where it is available.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import refnum
from refnum.digest import model_digest
from refnum.errors import FileError, RefnumError

from ..cases.case import Case, plain
from ..cases.levels import failed_name
from ..cases.operation import OPERATIONS, as_bits, outputs_of, run_golden
from ..reports import files
from ..reports.environment import environment
from ..subjects.subject import Subject
from ..verdicts.tally import Failure

VERSION = 1
MAX_BYTES = 1 << 26

_DTYPES = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    **{name: np.dtype(name) for name in ("float32", "float16")},
    **{f"{kind}{bits}": np.dtype(f"{kind}{bits}") for kind in ("uint", "int") for bits in (8, 16, 32, 64)},
}


def folder() -> Path:
    """Return the folder of replay files, `.refnum/cases` in the working directory."""
    return Path(".refnum") / "cases"


def _array(array: np.ndarray) -> dict[str, Any]:
    little = np.ascontiguousarray(array)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "hex": little.tobytes().hex()}


def _from_array(entry: Mapping[str, Any], where: str) -> np.ndarray:
    dtype = _DTYPES[entry["dtype"]]
    count = math.prod(entry["shape"])
    if math.prod(max(size, 1) for size in entry["shape"]) > MAX_BYTES:
        raise FileError(f"{where}: the shape {entry['shape']} is beyond the {MAX_BYTES} bytes of a replay file.")
    if len(entry["hex"]) != 2 * count * dtype.itemsize:
        raise FileError(f"{where}: {len(entry['hex']) // 2} bytes do not fill {entry['dtype']}{entry['shape']}.")
    return np.frombuffer(bytes.fromhex(entry["hex"]), dtype).reshape(entry["shape"]).copy()


def document(
    case: Case,
    golden: Mapping[str, np.ndarray],
    observed: Mapping[str, np.ndarray],
    subject: Subject | None = None,
    failure: Failure | None = None,
    original: Case | None = None,
) -> dict[str, Any]:
    """Return the replay file of a case as JSON values. Its id is derived from the case and the expectation."""
    recipe: Any = (original or case).recipe
    if case.operation in OPERATIONS and not OPERATIONS[case.operation].profiled:
        profile: dict[str, Any] = {"name": case.profile}
    else:
        profile = dataclasses.asdict(refnum.get_profile(case.profile))
    body: dict[str, Any] = {
        "schema": f"refnum.replay/{VERSION}",
        "operation": case.operation,
        "profile": profile,
        "params": plain(case.params),
        "inputs": {name: _array(array) for name, array in case.inputs.items()},
        "expected": {name: _array(array) for name, array in golden.items()},
        "observed": {name: _array(array) for name, array in observed.items()},
        "subject": None if subject is None else {"name": subject.name, "kind": subject.kind},
        "finding": "" if failure is None else failure.finding,
        "fails": "" if failure is None else failed_name(failure.level, case.operation),
        "label": (original or case).label,
        "recipe": None if recipe is None else recipe.to_json(),
        "shrunk_from": None if original is None else original.digest(),
        "environment": environment(),
    }
    return {**body, "id": identity(body)}


def identity(body: Mapping[str, Any]) -> str:
    """Return the content-derived id: what was asked, of whom, and what is expected; not when, where or with what."""
    parts = [body[name] for name in ("operation", "profile", "params", "inputs", "expected", "finding")]
    text = json.dumps([*parts, (body["subject"] or {}).get("name")], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def save(body: dict[str, Any], into: Path) -> Path:
    """Write a replay file as `<id>.json`, whole or not at all, and return its path."""
    files.check(body, "replay", "this replay file")
    path = into / f"{body['id']}.json"
    files.write_json(path, body)
    return path


def command(path: Path, subject: Subject | None = None) -> str:
    """Return the one command that replays a file; it names the subject, since a file's own word calls nothing."""
    words = ["refnum", "replay", str(path)]
    if subject is not None:
        words += ["--subject", subject.origin or ("FILE.py:NAME" if subject.kind == "user" else subject.name)]
    return shlex.join(words)


@dataclass
class Replay:
    """A replay file read back: the case, the stored outputs as unsigned integers, and the document."""

    case: Case
    expected: dict[str, np.ndarray]
    observed: dict[str, np.ndarray]
    body: dict[str, Any]
    answers: dict[str, np.ndarray]

    @property
    def same_model(self) -> bool:
        """Whether the golden model's source is the one that wrote the file."""
        return self.body["environment"]["model_digest"] == model_digest()

    def golden(self) -> dict[str, np.ndarray]:
        """Return what the golden model gives for the literal inputs."""
        return self.answers


def load(path: Path) -> Replay:
    """Read a replay file; FileError for one that is malformed, edited by hand, or of an unknown version."""
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise FileError(f"{path} has {path.stat().st_size} bytes; a replay file has at most {MAX_BYTES}.")
    body = files.read_json(path, "replay", VERSION)
    if body["id"] != identity(body):
        raise FileError(
            f"{path} was changed after it was written: its id is {body['id']}, its content gives {identity(body)}."
        )
    if body["operation"] not in OPERATIONS:
        raise FileError(f"{path} is about {body['operation']!r}, which this version does not know.")
    try:
        return _rebuild(body, path)
    except FileError:
        raise
    except (RefnumError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise FileError(f"{path} does not describe a case: {type(error).__name__}: {error}") from error


def _rebuild(body: dict[str, Any], path: Path) -> Replay:
    operation = OPERATIONS[body["operation"]]
    allowed = {*operation.inputs, *operation.optional}
    strange, missing = set(body["inputs"]) - allowed, set(operation.inputs) - set(body["inputs"])
    if strange or missing:
        raise FileError(
            f"{path}: inputs of {operation.name} are {sorted(allowed)}; "
            f"unknown {sorted(strange)}, missing {sorted(missing)}."
        )
    unknown = set(body["params"]) - operation.known
    if unknown:
        raise FileError(f"{path}: {operation.name} has no parameters {sorted(unknown)}.")
    if operation.profiled:
        stored = refnum.Profile(**body["profile"])
        if stored != refnum.get_profile(stored.name):
            raise FileError(
                f"{path}: profile {stored.name} has other fields here than in the file; the file is "
                f"about a profile that this version does not have."
            )
    arrays = {
        part: {name: _from_array(entry, f"{path}: {part}/{name}") for name, entry in body[part].items()}
        for part in ("inputs", "expected", "observed")
    }
    case = Case(operation.name, body["profile"]["name"], body["params"], arrays["inputs"], label=body["label"])
    names = {output.name for output in outputs_of(case)}
    if set(arrays["expected"]) != names or not set(arrays["observed"]) <= names:
        raise FileError(f"{path}: outputs of {operation.name} are {sorted(names)}.")
    _check_rows(case, arrays["expected"], path)
    golden, bits = run_golden(case), {part: _bits(arrays[part]) for part in ("expected", "observed")}
    for part, name in [(each, name) for each in bits for name in bits[each]]:
        given, right = bits[part][name], golden[name]
        if (given.shape, given.dtype) != (right.shape, right.dtype):
            raise FileError(
                f"{path}: {part}/{name} is {given.dtype}{list(given.shape)}; "
                f"{operation.name} gives {right.dtype}{list(right.shape)}."
            )
    return Replay(case, bits["expected"], bits["observed"], body, golden)


def _check_rows(case: Case, expected: Mapping[str, np.ndarray], path: Path) -> None:
    """Raise FileError for a routed case without its sizes, or that asks for more rows than the file expects.

    This comes before the model takes memory for the rows.
    """
    operation = OPERATIONS[case.operation]
    if not operation.routed:
        return
    missing = {"splits", *(["tokens"] if operation.main == "values" else [])} - set(case.params)
    if missing:
        raise FileError(f"{path}: {operation.name} needs the parameters {sorted(missing)} too.")
    align, splits = case.params.get("align", 1), case.params.get("splits") or []
    rows = case.params.get("tokens", sum(-(-count // align) * align for count in splits))
    most = max((array.shape[0] for array in expected.values() if array.ndim), default=0)
    if rows > most:
        raise FileError(f"{path}: its parameters ask for {rows} rows; what it expects has {most}.")


def _bits(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: as_bits(array) for name, array in arrays.items()}
