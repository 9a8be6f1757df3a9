"""What a certificate says of the model and of the subject: digests that change when the code that ran changes."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import platform
from pathlib import Path
from typing import Any

import refnum

from ...reports.environment import versions
from ...subjects.subject import Subject
from .catalogue import Proof

_ROOT = Path(refnum.__file__).parent


def model_record(proof: Proof, library: str) -> dict[str, Any]:
    """Return the model's version, the digest of the modules behind the proof's operations, and what ran it."""
    return {"version": versions().get("refnum", "from a folder"), "digest": model_digest(proof), "arrays": library}


def model_digest(proof: Proof) -> str:
    """SHA-256 over the source files that the golden functions of a proof's operations are made of.

    The files are those that define the functions and all of `refnum` that they import, at any distance.
    """
    state = hashlib.sha256()
    for name in sorted({name for operation in proof.operations for name in _closure(_home(operation))}):
        state.update(f"{name}\0{_file_digest(name)}\n".encode())
    return "sha256:" + state.hexdigest()


def _home(operation: str) -> str:
    """The module that an operation's golden function is defined in: of `refnum`."""
    return str(inspect.unwrap(getattr(refnum, operation)).__module__)


@functools.cache
def _closure(module: str) -> frozenset[str]:
    """A module and all modules of `refnum` that it imports, at any distance."""
    found, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name in found or not _file(name).is_file():
            continue
        found.add(name)
        for node in ast.walk(ast.parse(_file(name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                waiting += _imported(name.rpartition(".")[0], node)
    return frozenset(found)


def _imported(package: str, node: ast.ImportFrom) -> list[str]:
    """The modules of `refnum` that one import names; a name that is no module has no file."""
    if node.level == 0:
        return [node.module] if node.module and node.module.startswith("refnum.") else []
    if node.level > 1 or package != "refnum":
        return []
    return [f"refnum.{node.module}"] if node.module else [f"refnum.{alias.name}" for alias in node.names]


def _file(module: str) -> Path:
    return _ROOT / f"{module.partition('.')[2]}.py"


@functools.cache
def _file_digest(module: str) -> str:
    return hashlib.sha256(_file(module).read_bytes()).hexdigest()


def subject_record(proof: Proof, subject: Subject) -> dict[str, Any]:
    """Return a subject's name, kind, description, and the digests of what runs for the proof's operations.

    A subject that has `trace` tells them itself (source, machine code, compiler, flags). Of any other the source
    files of its callables are taken; one without source has none, and its proofs are run anew each time.
    """
    traced = {
        name: subject.trace(name) if subject.trace else _source(subject.operations[name]) for name in proof.operations
    }
    told = {str(key): str(value) for key, value in subject.describe().items()}
    return {"name": subject.name, "kind": subject.kind, "code": traced, "describe": told}


def subject_digest(record: dict[str, Any]) -> str:
    """SHA-256 over the digests of a subject's code; empty when any is missing.

    Machine code stands for itself: a comment in the source changes no proof of it.
    """
    state = hashlib.sha256()
    for name, facts in sorted(record["code"].items()):
        if not facts:
            return ""
        known = facts.get("machine_code") or sorted(facts.items())
        state.update(f"{name}\0{known}\n".encode())
    return "sha256:" + state.hexdigest()


def _source(function: Any) -> dict[str, str]:
    module = str(getattr(inspect.unwrap(function), "__module__", ""))
    if module.startswith("refnum.") and _file(module).is_file():
        return {"source": "the model"}
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
        return {"source": hashlib.sha256(Path(path or "").read_bytes()).hexdigest()}
    except (TypeError, OSError):
        return {}


def machine_record(library: str) -> dict[str, str]:
    """Return what the proof ran on: processor, system, Python and NumPy, and the device with its driver."""
    found = {"system": platform.system(), "machine": platform.machine()}
    found |= {name: version for name, version in versions().items() if name in ("python", "numpy", "ml_dtypes")}
    if library == "cupy":
        import cupy

        runtime = cupy.cuda.runtime
        properties = runtime.getDeviceProperties(cupy.cuda.Device().id)
        found["device"] = properties["name"].decode()
        found["cupy"] = cupy.__version__
        found["cuda_driver"] = str(runtime.driverGetVersion())
        found["cuda_runtime"] = str(runtime.runtimeGetVersion())
        found["driver"] = _driver()
    return found


def _driver() -> str:
    """The kernel driver's version as NVML gives it, or as /proc does; empty when neither does."""
    try:
        from cupy_backends.cuda.libs import nvml  # type: ignore[import-not-found]  # not in every CuPy

        nvml.init()
        return str(nvml.systemGetDriverVersion())
    except Exception:  # a missing library, or one that refuses: the next source is asked
        path = Path("/proc/driver/nvidia/version")
        words = path.read_text().split() if path.is_file() else []
        return next((word for word in words if word.count(".") == 2 and word[0].isdigit()), "")
