"""Compile a peer's C++ shim against headers that are installed here, once, into a cached shared library.

Needs a C++17 compiler and the headers named by the caller; whatever is missing is said in one sentence, and the
peer is then unsupported, never a failure. The cache is `$REFNUM_CACHE`, else `$XDG_CACHE_HOME/refnum`, else
`~/.cache/refnum`; a library's name holds the hash of all that it was built from.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from refnum.errors import UnsupportedError

FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-ffp-contract=off", "-fno-fast-math", "-DNDEBUG")
"""No contraction and no fast math: the headers' own floating-point steps stay the ones that are written."""

_WHEELS = ("nvidia/cu13/include", "nvidia/cuda_runtime/include", "nvidia/cuda_cccl/include",
           "nvidia/cuda_nvcc/include")  # fmt: skip
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH")


def cache_folder() -> Path:
    """Return the folder of built libraries; it may not exist yet."""
    if os.environ.get("REFNUM_CACHE"):
        return Path(os.environ["REFNUM_CACHE"]) / "peers"
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "refnum" / "peers"


def include_roots() -> list[Path]:
    """Return the folders that may hold CUDA headers: wheels first, then a toolkit, then Triton's copy."""
    roots = [Path(os.environ["REFNUM_CUDA_INCLUDE"])] if os.environ.get("REFNUM_CUDA_INCLUDE") else []
    wheels = importlib.util.find_spec("nvidia")
    for place in (wheels and wheels.submodule_search_locations) or ():
        roots += [Path(place).parent / name for name in _WHEELS]
    roots += [Path(os.environ[name]) / "include" for name in _TOOLKITS if os.environ.get(name)]
    roots.append(Path("/usr/local/cuda/include"))
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin:
        roots.append(Path(triton.origin).parent / "backends" / "nvidia" / "include")
    return [root for root in roots if root.is_dir()]


def find_includes(needed: Sequence[str]) -> list[Path]:
    """Return the include folders that together hold the needed headers, the first match of each.

    Raises UnsupportedError naming the header that no folder holds.
    """
    roots = include_roots()
    chosen: list[Path] = []
    for header in needed:
        root = next((root for root in roots if (root / header).is_file()), None)
        if root is None:
            raise UnsupportedError(
                f"The header {header} is not installed; install nvidia-cuda-runtime, nvidia-cuda-crt and "
                f"nvidia-cuda-cccl of CUDA 13, or set REFNUM_CUDA_INCLUDE."
            )
        if root not in chosen:
            chosen.append(root)
    return chosen


def find_compiler() -> str:
    """Return the C++ compiler: `$CXX`, else g++, c++ or clang++; UnsupportedError when there is none."""
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise UnsupportedError("There is no C++ compiler; install g++ or set CXX.")


@functools.cache
def compiler_version(compiler: str) -> str:
    """Return the first line of the compiler's own description."""
    text = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    return text.splitlines()[0] if text else compiler


def build(source: Path, headers: Sequence[str]) -> ctypes.CDLL:
    """Return the loaded library of a C++ source, compiled now unless the cache has it.

    headers: names of headers that must be found; their own text is part of the cache key.
    Raises UnsupportedError: no compiler, no header, the compiler's first complaint, or a folder it cannot write.
    """
    compiler, includes = find_compiler(), find_includes(headers)
    key = hashlib.sha256()
    for part in (source.read_bytes(), compiler_version(compiler).encode(), " ".join(FLAGS).encode()):
        key.update(hashlib.sha256(part).digest())
    for header in headers:
        key.update(next((root / header).read_bytes() for root in includes if (root / header).is_file()))
    target = cache_folder() / f"{source.stem}-{key.hexdigest()[:24]}.so"
    if not target.is_file():
        _compile(compiler, source, includes, target)
    return ctypes.CDLL(str(target))


def _compile(compiler: str, source: Path, includes: Sequence[Path], target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise UnsupportedError(f"The cache folder {target.parent} cannot be written; set REFNUM_CACHE.") from error
    os.close(handle)
    folders = [word for root in includes for word in ("-isystem", str(root))]
    command = [compiler, *FLAGS, *folders, str(source), "-o", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        Path(name).unlink(missing_ok=True)
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
        raise UnsupportedError(f"{Path(compiler).name} could not compile {source.name}: {complaint[:300]}")
    os.replace(name, target)
