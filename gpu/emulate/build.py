"""Kernels compiled for the emulator: one library a kernel function, made by the system's C++ compiler and cached.

The key of the cache is the SHA-256 of the kernel file, its headers, the emulated machine, the function, the macros and
the compiler. A library holds the function, instrumented so that it reports its every access to memory, and the machine.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from refnum.errors import ArgumentError, UnsupportedError

from ..cache import cache_folder, cannot_keep
from ..host.build import NATIVE, plan
from .source import CompileError, rewritten

MACHINE = Path(__file__).resolve().parent
COMMON = ("-std=c++20", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-fno-exceptions")
MACHINE_FLAGS = ("-O3", "-fno-rtti", "-fno-stack-protector")
KERNEL_FLAGS = (
    "-O1", "-w", "-fno-strict-aliasing", "-fwrapv", "-ftrivial-auto-var-init=pattern", "-fno-stack-protector",
    "-fsanitize=thread,alignment,bounds,shift-exponent",
)  # fmt: skip
LINK_FLAGS = ("-shared", "-nostartfiles", "-Wl,-Bsymbolic", "-Wl,-z,now")
UNITS = ("engine", "memory", "tensor")
HEADER = "cuda.hpp"
"""What every kernel is compiled with: CUDA's types and functions as the emulated machine has them."""
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
LIMIT = 300
"""Seconds that a compilation may take."""


@dataclass(frozen=True)
class Unit:
    """One kernel function to be compiled: its file and the headers that it includes, its name, the macros."""

    kernel: str
    function: str
    defines: tuple[str, ...]
    texts: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """SHA-256 over everything that is compiled."""
        parts = [self.kernel, self.function, *self.defines]
        parts += [f"{name}\0{hashlib.sha256(text.encode()).hexdigest()}" for name, text in self.texts]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def read_unit(folder: Path, kernel: str, function: str, defines: tuple[str, ...]) -> Unit:
    """Return the unit of a function of `folder`/`kernel`.cu; ArgumentError names the kernels that exist."""
    path = folder / f"{kernel}.cu"
    if not path.is_file():
        known = ", ".join(sorted(one.stem for one in folder.glob("*.cu")))
        raise ArgumentError(f"kernel {kernel!r} does not exist in {folder}; there are {known}")
    return Unit(kernel, function, defines, tuple(with_headers(path, {}).items()))


def with_headers(path: Path, found: dict[str, str]) -> dict[str, str]:
    """Return name -> text of a source and of all that it includes from its folder."""
    found[path.name] = path.read_text()
    for name in _INCLUDE.findall(found[path.name]):
        if name not in found and (path.parent / name).is_file():
            with_headers(path.parent / name, found)
    return found


@functools.cache
def compiler() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the compiler's command, and what identifies it and the machine; UnsupportedError when there is none."""
    build = plan()
    native = (NATIVE,) if build.machine else ()
    return (*build.command, *native), (build.version, build.machine)


@functools.cache
def machine_digest() -> str:
    """SHA-256 of the emulated machine's files, all flags and the compiler's version."""
    command, identity = compiler()
    total = hashlib.sha256(
        "\n".join((*command, *identity, *COMMON, *MACHINE_FLAGS, *KERNEL_FLAGS, *LINK_FLAGS)).encode()
    )
    for path in sorted(path for path in MACHINE.iterdir() if path.suffix in (".cpp", ".hpp")):
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _run(arguments: list[str], what: str) -> None:
    """Run the compiler; UnsupportedError when it cannot be run, CompileError with the first error of what it says."""
    command, _ = compiler()
    try:
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnsupportedError(f"{what} was not compiled for the emulator: {error}") from error
    if done.returncode == 0:
        return
    lines = [line for line in done.stderr.splitlines() if re.search(r"\berror\b|undefined reference", line)]
    note = next((line for line in lines if "has no entry in" in line), (lines or [done.stderr[:300]])[0])
    text = re.search(r"text = [^;\]]*", done.stderr) if "has no entry in" in note else None
    raise CompileError(
        f"{shlex.join(command)} could not compile {what} for the emulator: {note}"
        + (f" ({text.group(0)})" if text else "")
    )


def _place(target: Path, make: str, arguments: list[str]) -> Path:
    """Run the compiler with a temporary output beside `target`, then rename it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{target.stem}.", suffix=f".tmp{target.suffix}", dir=target.parent)
    except OSError as error:
        raise cannot_keep(target.parent, error) from error
    os.close(handle)
    try:
        _run([*arguments, "-o", name], make)
        os.replace(name, target)
    finally:
        if os.path.exists(name):
            os.unlink(name)
    return target


def machine_objects() -> list[str]:
    """Return the object files of the emulated machine, made now unless the cache has them."""
    objects = []
    for unit in UNITS:
        target = cache_folder() / f"emulator-{unit}-{machine_digest()[:32]}.o"
        if not target.exists():
            source = MACHINE / f"{unit}.cpp"
            _place(target, f"{unit}.cpp", [*COMMON, *MACHINE_FLAGS, "-c", str(source)])
        objects.append(str(target))
    return objects


def precompiled_header() -> Path:
    """Return a folder with `cuda.hpp` as the compiler has read it, made now unless the cache has it.

    Every unit begins with this header, and to read it takes about as long as to compile a small kernel.
    """
    folder = cache_folder() / f"emulator-header-{machine_digest()[:32]}"
    target = folder / f"{HEADER}.gch"
    if not target.exists():
        _place(target, HEADER, [*COMMON, *KERNEL_FLAGS, "-x", "c++-header", str(MACHINE / HEADER)])
    return folder


def library_path(unit: Unit) -> Path:
    """Return where the library of a unit lies, or would."""
    key = hashlib.sha256(f"{unit.digest}\n{machine_digest()}".encode()).hexdigest()
    return cache_folder() / f"emulated-{unit.function}-{key[:32]}.so"


def compiled(unit: Unit) -> Path:
    """Return the library of a unit, made now unless the cache has it; CompileError with the first error."""
    target = library_path(unit)
    if target.exists():
        return target
    folder = Path(tempfile.mkdtemp(prefix="refnum-emulate-"))
    try:
        for name, text in unit.texts:
            (folder / name).write_text(rewritten(name, text))
        lines = [f'#include "{HEADER}"', *(f"#define {define.replace('=', ' ', 1)}" for define in unit.defines)]
        lines += [f'#include "{unit.kernel}.cu"', f"EMULATED_ENTRY({unit.function})", ""]
        (folder / "unit.cpp").write_text("\n".join(lines))
        include = [f"-I{precompiled_header()}", f"-I{MACHINE}", f"-I{folder}", f"-ffile-prefix-map={folder}/="]
        what = f"{unit.function} of {unit.kernel}.cu"
        _run([*COMMON, *KERNEL_FLAGS, *include, "-c", str(folder / "unit.cpp"), "-o", str(folder / "unit.o")], what)
        return _place(target, what, [*LINK_FLAGS, str(folder / "unit.o"), *machine_objects()])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
