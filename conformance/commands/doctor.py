"""`refnum doctor`: is this machine, and this Python, fit to judge kernels on? Each check is one short function."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer

import refnum

from ..reports import environment, terminal
from ..subjects.loading import discover
from .options import told

OK, WARN, BAD = "ok", "warn", "bad"


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, its state, and what to know or do."""

    name: str
    state: str
    words: str


@told
def doctor() -> None:
    """Inspect this machine: float modes, compilers, GPU, flags, subjects and caches."""
    findings = list(examine())
    styles = {"ok": "green", "warn": "yellow", "bad": "bold red"}
    terminal.table(
        terminal.console(),
        "Doctor",
        ("check", "state", "finding"),
        ([f.name, f"[{styles[f.state]}]{f.state}[/]", terminal.escape(f.words)] for f in findings),
    )
    raise typer.Exit(int(any(finding.state == BAD for finding in findings)))


def examine() -> Iterator[Finding]:
    """Yield the findings of every check; a check that fails itself is a finding."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:  # a doctor must not die of what it finds
            yield Finding(check.__name__.strip("_"), BAD, f"the check failed: {type(error).__name__}: {error}")


def _versions() -> Iterator[Finding]:
    found = environment.versions()
    yield Finding("versions", OK, ", ".join(f"{name} {version}" for name, version in found.items()))
    yield Finding("model", OK, f"{environment.model_digest()} at {Path(refnum.__file__).parent}")


def _host_subnormals() -> Iterator[Finding]:
    if refnum.environment.flushes_subnormals():
        yield Finding("host subnormals", BAD, refnum.environment.MESSAGE)
    else:
        yield Finding("host subnormals", OK, "float32 subnormals are kept (no FTZ, no DAZ)")


def _golden_model() -> Iterator[Finding]:
    x = np.zeros((1, 32), np.float32)
    x[0, :4] = (6.0, 1.25, -0.0, 2.5)
    packed, scales = refnum.quantize_mxfp4(x)
    right = packed[0, :2].tolist() == [0x27, 0x48] and scales.tolist() == [[127]]
    yield Finding(
        "golden model",
        OK if right else BAD,
        "a block quantised by hand comes out right"
        if right
        else f"a block quantised by hand comes out wrong: {packed[0, :2].tolist()}, {scales.tolist()}",
    )


def _byte_order() -> Iterator[Finding]:
    little = np.array([1], np.uint32).view(np.uint8)[0] == 1
    yield Finding("byte order", OK if little else BAD, "little-endian" if little else "big-endian: not supported")


def _compiler() -> Iterator[Finding]:
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        yield Finding("compiler", WARN, f"no {name}: kernels cannot be built for the host; install g++ or set CXX")
        return
    line = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout.splitlines()
    yield Finding("compiler", OK, f"{path}: {line[0] if line else 'no version'}")


def _cupy() -> Iterator[Finding]:
    spec = importlib.util.find_spec("cupy")
    if spec is None or spec.origin is None:
        yield Finding("cupy", WARN, "not installed: GPU kernels cannot be judged; install refnum[gpu]")
        return
    compiler = Path(spec.origin).parent / "cuda" / "compiler.py"
    forced = compiler.is_file() and "-ftz=true" in compiler.read_text(encoding="utf-8")
    yield Finding(
        "cupy flags",
        WARN if forced else OK,
        "this CuPy appends -ftz=true to every RawKernel: subnormals are flushed in kernels compiled through "
        "it; compile with NVRTC yourself and load the cubin"
        if forced
        else "this CuPy does not force -ftz=true",
    )
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        yield Finding("gpu", WARN, f"CuPy {cupy.__version__} finds no device: {error}")
        return
    for index in range(count):
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        yield Finding(
            f"gpu {index}",
            OK,
            f"{properties['name'].decode()}, compute capability "
            f"{properties['major']}.{properties['minor']}, {properties['totalGlobalMem'] >> 30} GiB, driver "
            f"{cupy.cuda.runtime.driverGetVersion()}, runtime {cupy.cuda.runtime.runtimeGetVersion()}",
        )


def _subjects() -> Iterator[Finding]:
    found, broken = discover.installed()
    for item in found:
        usable, reason = item.available()
        yield Finding(
            f"subject {item.name}",
            OK if usable else WARN,
            f"{item.kind}, {len(item.operations)} operations" if usable else f"not usable here: {reason}",
        )
    for name, reason in broken:
        yield Finding(f"subject {name}", BAD, f"its entry point failed: {reason}")
    if not found and not broken:
        yield Finding("subjects", WARN, f"nothing is registered in the entry-point group {discover.GROUP}")


def _caches() -> Iterator[Finding]:
    for name, default in (("CUPY_CACHE_DIR", "~/.cupy/kernel_cache"), ("REFNUM_CACHE", "~/.cache/refnum")):
        path = Path(os.environ.get(name, default)).expanduser()
        size = sum(1 for _ in path.rglob("*")) if path.is_dir() else 0
        yield Finding(f"cache {name}", OK, f"{path} ({size} files)" if size else f"{path} (empty or absent)")
    cases = Path(".refnum") / "cases"
    writable = os.access(Path.cwd(), os.W_OK)
    yield Finding(
        "replay files",
        OK if writable else WARN,
        f"{cases} ({len(list(cases.glob('*.json'))) if cases.is_dir() else 0} files)"
        if writable
        else f"{Path.cwd()} is not writable: mismatches cannot be saved here",
    )


def _entry_point() -> Iterator[Finding]:
    try:
        importlib.metadata.distribution("refnum")
        yield Finding("installation", OK, "refnum is installed as a distribution; entry points are found")
    except importlib.metadata.PackageNotFoundError:
        yield Finding("installation", WARN, "refnum runs from a folder: its own entry points are not registered")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _versions,
    _entry_point,
    _host_subnormals,
    _byte_order,
    _golden_model,
    _compiler,
    _cupy,
    _subjects,
    _caches,
)
