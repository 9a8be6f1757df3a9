"""The host build for mutation testing: the sources that may be changed, and the build of a changed copy."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refnum.errors import RefnumError

from .. import host, silu
from ..cache import cache_folder
from ..emulate.build import with_headers
from ..host import build as host_build
from ..operations import NAMES
from . import instructions, rows_of
from .object_code import function_digests

OPTIMISED = ("-O1", "-O3", "-O0")
"""Levels at which a change is compiled: for the comparison of code, as released, and for judging."""
DRAWN = "STOCHASTIC+nonfinite=satfinite+zero_scale=127"
CHECKED = ("-DREFNUM_CHECKED", "-fsanitize=shift-exponent,integer-divide-by-zero", "-fsanitize-undefined-trap-on-error")
"""Flags for judging: the functions of single instructions check their callers, and undefined behaviour of C++ ends the
process, because a processor can give the right bits by chance."""

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "quantize_mxfp4": ("quantize_mxfp4", "quantize_mxfp4_stochastic", "quantize_mxfp4_keyed"),
    "swiglu_quantize": ("swiglu_quantize_fp8", "swiglu_quantize_mxfp4"),
    "encode_e2m1": ("encode_e2m1", "encode_e2m1_stochastic"),
    "scale layouts": ("lay_scales", "read_scales"),
    "twins": tuple(f"instruction_{name}" for name in host_build.INSTRUCTIONS),
}
"""Operation -> its functions in the host build, unless it is the one function of its name."""


class DoesNotCompile(RefnumError):
    """The compiler refuses the changed source; the message has its first error."""


@dataclass(frozen=True)
class Built:
    """A changed copy. code: operation -> digest of its machine code. operations: operation -> a function of this
    process, whose library is loaded at the first call."""

    code: Mapping[str, str]
    operations: Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class HostSources:
    """Builds the host build's library from changed headers. files: names of the headers that it is made of."""

    name: str = "host"
    profiles: tuple[str, ...] = ("HOPPER", "OCP", "CEIL", "EVEN", "TE", "STOCHASTIC", DRAWN)
    root: Path = host_build.ROOT / "kernels"

    @functools.cached_property
    def _units(self) -> dict[str, frozenset[str]]:
        """Translation unit -> names of the kernel headers that it includes."""
        found = {}
        for unit in host_build.units():
            names: dict[str, str] = {}
            for path in _included(unit):
                with_headers(path, names)
            found[unit.name] = frozenset(names)
        return found

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that may be changed."""
        return tuple(sorted(frozenset().union(*self._units.values())))

    def touched(self, file: str) -> tuple[str, ...]:
        """Return the translation units that include a header, or that a path `../host/...` names."""
        if file.startswith("../host/"):
            return tuple(unit for unit in self._units if unit == Path(file).name or file.endswith(".hpp"))
        return tuple(unit for unit, names in self._units.items() if file in names)

    def key(self) -> str:
        """Return a digest of the unchanged sources, the compiler and the flags."""
        return host_build.plan().key

    def questions(self, operation: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], tuple[Any, ...]]]:
        """Yield (label, parameters, inputs, right answers) of the questions that are not an operation's own."""
        if operation == "twins":
            for name, words, promised in instructions.questions():
                yield f"twin {name}", {"name": name}, words, (promised,)

    def functions(self) -> dict[str, Any]:
        """Return the domains of small functions."""
        return functions()

    def reasons(self) -> list[dict[str, Any]]:
        """Return the changes that no input can show, each with its reason."""
        return rows_of("no_effect", "change")[1]

    def start(self, folder: Path, level: str = OPTIMISED[0]) -> dict[str, str]:
        """Copy the unchanged sources into a folder and compile them; return operation -> digest of machine code.

        Later builds use this copy, so that an edit of the sources in the meantime is not judged.
        """
        copy = _copied(folder / level, host_build.ROOT)
        sources = _digest(copy)
        for unit in self._units:
            self._take(copy, unit, level, sources)
        return _by_operation(function_digests(copy / f"{unit}.o" for unit in self._units))

    def _take(self, copy: Path, unit: str, level: str, sources: str) -> None:
        """Compile an unchanged unit, or copy its object where the cache has it: its key is all that it depends on."""
        key = hashlib.sha256("\n".join((sources, unit, *self._command(unit, level))).encode()).hexdigest()
        kept = cache_folder() / f"unchanged-{Path(unit).stem}-{key[:32]}.o"
        if kept.exists():
            shutil.copyfile(kept, copy / f"{unit}.o")
            return
        self._compile(copy, unit, level)
        with contextlib.suppress(OSError):  # a cache that cannot be written spares nothing
            kept.parent.mkdir(parents=True, exist_ok=True)
            temporary = kept.with_name(f"{kept.name}.{os.getpid()}.tmp")
            shutil.copyfile(copy / f"{unit}.o", temporary)
            os.replace(temporary, kept)

    def build(self, changed: Mapping[str, str], folder: Path, started: Path, level: str = OPTIMISED[0]) -> Built:
        """Build a copy with changed files (name -> text) in `folder`, with the other objects of a started copy.

        Raises DoesNotCompile.
        """
        copy = _copied(folder, started / level)
        for name, text in changed.items():
            (copy / "kernels" / name).write_text(text)
        touched = {unit for name in changed for unit in self.touched(name)}
        objects = []
        for unit in self._units:
            if unit in touched:
                self._compile(copy, unit, level)
            objects.append((copy if unit in touched else started / level) / f"{unit}.o")
        code = _by_operation(function_digests(objects))
        return Built(code, _operations(objects, copy / "mutant.so"))

    def _command(self, unit: str, level: str) -> list[str]:
        """Return the compiler's command for a unit of a copy, to be run in its folder."""
        native = (host_build.NATIVE,) if level == "-O3" and host_build.NATIVE in host_build.plan().flags else ()
        checked = CHECKED if level == OPTIMISED[2] else ()
        flags = (level, "-std=c++17", "-fPIC", "-ffunction-sections", "-fdata-sections", *native, *checked)
        return [*host_build.find_compiler(), *flags, "-w", "-c", f"host/{unit}", "-o", f"{unit}.o"]

    def _compile(self, copy: Path, unit: str, level: str) -> None:
        done = subprocess.run(
            self._command(unit, level), cwd=copy, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
            raise DoesNotCompile(f"{unit}: {first}.")


def functions() -> dict[str, Any]:
    """Return the table of small functions with their domains, and how its programs are compiled."""
    os.environ["REFNUM_TABLE"] = str(silu.path())  # the programs' prelude reads it
    told, rows = rows_of("domains", "domain")
    return {**told, "domain": rows, "compiler": host_build.find_compiler(), "flags": CHECKED}


def _included(unit: Path) -> Iterator[Path]:
    """Yield the kernel headers that a translation unit names, its own header's among them."""
    for path in (unit, *unit.parent.glob("*.hpp")):
        for line in path.read_text().splitlines():
            if line.startswith('#include "../kernels/'):
                yield host_build.ROOT / "kernels" / line.split('"')[1].rpartition("/")[2]


def _copied(folder: Path, source: Path) -> Path:
    """Return a folder with a copy of all sources of the host build, made now unless it is there."""
    for name, pattern in (("kernels", "*.cuh"), ("host", "*.?pp")):
        if not (folder / name).exists():
            (folder / name).mkdir(parents=True)
            for path in (source / name).glob(pattern):
                shutil.copyfile(path, folder / name / path.name)
    return folder


def _digest(copy: Path) -> str:
    """SHA-256 over a copy's sources and what identifies the compiler and the machine."""
    build = host_build.plan()
    total = hashlib.sha256("\n".join((build.version, build.machine)).encode())
    for path in sorted((*copy.glob("kernels/*"), *copy.glob("host/*"))):
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _by_operation(functions: Mapping[str, str]) -> dict[str, str]:
    names = [*sorted(NAMES), *FUNCTIONS]
    return {
        name: " ".join(functions.get(f"refnum_{one}", "") for one in FUNCTIONS.get(name, (name,)))
        for name in dict.fromkeys(names)
    }


def _operations(objects: list[Path], library: Path) -> dict[str, Callable[..., Any]]:
    """Return the host build's operations, which call the library of some objects, linked at the first call."""

    @functools.cache
    def linked() -> Path:
        command = [*host_build.find_compiler(), "-shared", *map(str, objects), "-o", str(library)]
        subprocess.run(command, capture_output=True, check=True, timeout=300, stdin=subprocess.DEVNULL)
        return library

    def through(name: str) -> Callable[..., Any]:
        function = getattr(host, name)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with host_build.standing_in(linked()):
                return function(*args, **kwargs)

        return call

    def ask_twin(name: str, **words: Any) -> Any:
        with host_build.standing_in(linked()):
            return instructions.ask(name, **words)

    found = {name: through(name) for name in sorted(NAMES)}
    return {**found, "twins": ask_twin}
