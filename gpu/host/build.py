"""The host build's library: found in the cache, or compiled from the kernels' headers by the system's compiler."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refnum.errors import UnsupportedError

from ..cache import cache_folder

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
NATIVE = "-march=native"
COMPILERS = ("g++", "c++", "clang++")

I32, U32, I64, U64, POINTER = ctypes.c_int, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
INSTRUCTIONS = (
    "permute", "sign_bytes", "lane_signs", "pair_upper_0", "pair_upper_1", "pair_upper_2", "pair_upper_3", "choose",
    "max_lanes", "min_lanes", "max3_lanes", "larger_lane", "subtract_to_zero", "add_and_clamp", "scale_halves",
    "scale_each", "halves_below", "add_and_max_lanes", "add_and_min", "high_product", "shift_in", "larger_magnitude",
    "multiply", "add", "outside_12", "outside_11", "silu_of_large", "sigmoid_of_large", "scale_float", "tree_sum",
    "has_nan_code", "round_to_bfloat16", "is_plain_tile", "largest_binade", "e2m1_decode", "byte_place",
    "planes_found", "divide", "multiply_add", "max_bytes", "permute_low",
)  # fmt: skip
"""Functions of `instructions.cpp`: three words in, one out, see `mutation/instructions.py`."""
FUNCTIONS: dict[str, tuple[type, ...]] = {
    "quantize_mxfp4": (I32, POINTER, I64, I32, I32, I32, POINTER, POINTER),
    "quantize_mxfp4_stochastic": (I32, POINTER, POINTER, I64, I32, I32, I32, POINTER, POINTER),
    "quantize_mxfp4_keyed": (I32, POINTER, U64, U64, U64, U64, I64, I32, I32, I32, POINTER, POINTER),
    "lay_scales": (POINTER, I64, I64, I32, POINTER),
    "read_scales": (POINTER, I64, I64, I32, POINTER),
    "dequantize_mxfp4": (POINTER, POINTER, I64, I32, POINTER),
    "quantize_nvfp4": (I32, POINTER, I64, I64, I32, POINTER, I32, POINTER, POINTER, POINTER, POINTER),
    "dequantize_nvfp4": (POINTER, POINTER, POINTER, I64, I64, I32, I32, I32, POINTER),
    "hadamard16": (I32, POINTER, I64, I64, I32, U32, I32, I32, POINTER),
    "hadamard_quantize_nvfp4": (I32, POINTER, I64, I64, I32, U32, I32, POINTER, I32, *(POINTER,) * 4),
    "luq": (I32, POINTER, POINTER, POINTER, I64, POINTER, U32, I32, POINTER, POINTER),
    "dequantize_luq": (POINTER, POINTER, I64, I32, POINTER),
    "radix4": (I32, POINTER, I64, I32, I32, POINTER),
    "dequantize_radix4": (POINTER, I64, I32, I32, POINTER),
    "quantize_tetrajet": (I32, POINTER, POINTER, I64, I64, I32, I32, I32, POINTER, POINTER),
    "q_ema": (I32, POINTER, I32, POINTER, I64, I64, I32, I32, POINTER, POINTER),
    "philox_bytes": (U64, U64, U64, U64, I64, POINTER),
    "dge": (I32, POINTER, I64, I32, U32, I32, I32, POINTER),
    "occ": (I32, POINTER, I64, I64, I32, I64, I64, POINTER, POINTER, POINTER),
    "stable_spam_apply": (*(POINTER,) * 5, I32, I64, POINTER, POINTER, POINTER),
    "quantize_fp8_tiles": (I32, POINTER, I64, I64, I64, I32, POINTER, POINTER),
    "dequantize_fp8_tiles": (POINTER, POINTER, I64, I64, I64, I32, POINTER),
    "fp8_to_mxfp4": (POINTER, POINTER, I64, I64, I32, I32, POINTER, POINTER),
    "mxfp4_to_fp8": (POINTER, POINTER, I64, I64, I32, POINTER, POINTER),
    "mxfp4_to_fp8_columns": (POINTER, POINTER, I64, I64, POINTER, I64, I32, POINTER, POINTER),
    "mxfp4_to_fp8_rows_columns": (POINTER, POINTER, I64, I64, POINTER, I64, I32, *(POINTER,) * 4),
    "mxfp4_columns": (POINTER, POINTER, I64, I64, POINTER, I64, I32, POINTER, POINTER),
    "fp8_columns": (POINTER, POINTER, I64, I64, POINTER, I64, I32, POINTER, POINTER),
    "swiglu": (POINTER, POINTER, POINTER, POINTER, I64, I64, POINTER),
    "swiglu_quantize_fp8": (POINTER, POINTER, POINTER, POINTER, I64, I64, I32, POINTER, POINTER),
    "swiglu_quantize_mxfp4": (POINTER, POINTER, POINTER, POINTER, I64, I64, I32, I32, I32, POINTER, POINTER),
    "swiglu_backward": (POINTER, I32, POINTER, POINTER, POINTER, POINTER, I64, I64, POINTER, POINTER, POINTER),
    "pack_payload": (POINTER, POINTER, I64, I64, POINTER),
    "unpack_payload": (POINTER, I64, I64, POINTER, POINTER),
    "quantize_payload": (I32, POINTER, I64, I64, I32, I32, I32, POINTER),
    "fp8_to_payload": (POINTER, POINTER, I64, I64, I32, I32, POINTER),
    "permute_pad": (POINTER, I64, POINTER, POINTER, I64, I64, POINTER, POINTER),
    "permute_unpack": (POINTER, I64, POINTER, POINTER, I64, I64, POINTER, POINTER, POINTER),
    "unpermute": (I32, POINTER, I64, POINTER, POINTER, I64, I64, POINTER, I64, POINTER, POINTER),
    "encode_e2m1": (I32, POINTER, I32, POINTER, I64),
    "encode_e2m1_stochastic": (I32, POINTER, POINTER, I32, POINTER, I64),
    "encode_e4m3": (I32, POINTER, I32, POINTER, I64),
    "encode_e8m0": (I32, POINTER, I32, I32, POINTER, I64),
    "decode_e2m1": (POINTER, I32, POINTER, I64),
    "decode_e4m3": (POINTER, I32, POINTER, I64),
    "decode_e8m0": (POINTER, I32, POINTER, I64),
    "encode_e2m1_lanes": (POINTER, I32, POINTER, I64),
    "encode_e4m3_words": (I32, POINTER, I32, POINTER, I64),
    "scale_half": (POINTER, I32, POINTER, I64),
    "multiply_floats": (POINTER, POINTER, POINTER, I64),
    "add_floats": (POINTER, POINTER, POINTER, I64),
    "multiply_add_floats": (POINTER, POINTER, POINTER, POINTER, I64),
    "matmul_fp8": (*(POINTER,) * 4, *(I64,) * 5, POINTER, I32, I32, I32, POINTER, POINTER),
    "matmul_bf16": (POINTER, POINTER, *(I64,) * 5, POINTER, POINTER),
    "fp8_steps": (POINTER, POINTER, POINTER, I64, I64, I32, POINTER),
    **dict.fromkeys((f"instruction_{name}" for name in INSTRUCTIONS), (POINTER, POINTER, POINTER, POINTER, I64)),
}
"""Function of the sources in `host/`, without its prefix -> types of its arguments; none returns a value."""


@dataclass(frozen=True)
class Build:
    """How the library is made: the compiler's command and version, the flags, the machine, and the sources' digest."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    machine: str
    digest: str

    @property
    def key(self) -> str:
        """SHA-256 of everything that can change the library's bytes."""
        text = "\n".join([*self.command, self.version, *self.flags, self.machine, self.digest])
        return hashlib.sha256(text.encode()).hexdigest()


def units() -> list[Path]:
    """Return the translation units."""
    return sorted((ROOT / "host").glob("*.cpp"))


def sources() -> list[Path]:
    """Return the files that the library is built from."""
    return [*units(), *sorted((ROOT / "host").glob("*.hpp")), *sorted((ROOT / "kernels").glob("*.cuh"))]


def source_digest() -> str:
    """SHA-256 over the names and bytes of `sources()`."""
    total = hashlib.sha256()
    for path in sources():
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def find_compiler() -> tuple[str, ...]:
    """Return the command of $CXX, else of the first of g++, c++, clang++ on PATH; UnsupportedError if none."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise UnsupportedError(f"CXX={os.environ['CXX']!r} is not on PATH; unset it or name a C++17 compiler")
        return tuple(chosen)
    for name in COMPILERS:
        if shutil.which(name):
            return (name,)
    raise UnsupportedError(
        f"the host build needs a C++17 compiler; none of {', '.join(COMPILERS)} is on PATH: install one or set CXX"
    )


def plan() -> Build:
    """Return what would be built here; runs the compiler twice, for its version and the machine's features."""
    command = find_compiler()
    version = _run([*command, "--version"]).stdout.splitlines()
    # the macros spell out which instructions -march=native allows, so a shared cache never crosses machines
    native = _run([*command, NATIVE, "-dM", "-E", "-x", "c++", os.devnull])
    machine = hashlib.sha256(native.stdout.encode()).hexdigest() if native.returncode == 0 else ""
    flags = (*FLAGS, NATIVE) if machine else FLAGS
    return Build(command, version[0] if version else "unknown", flags, machine, source_digest())


def _compile(build: Build, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{target.stem}.", suffix=".tmp", dir=target.parent) as folder:
        objects = [f"{folder}/{unit.stem}.o" for unit in units()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a compiler
            pairs = zip(objects, units(), strict=True)
            done = list(pool.map(lambda pair: _made(build, pair[0], "-c", str(pair[1])), pairs))
        if not any(done):
            done = [_made(build, f"{folder}/library.so", *objects)]
        if any(done):
            raise UnsupportedError(f"{shlex.join(build.command)} could not compile the host build: {max(done)}")
        os.replace(f"{folder}/library.so", target)


def _made(build: Build, target: str, *arguments: str) -> str:
    """Run the compiler; return its first error, or nothing."""
    done = _run([*build.command, *build.flags, "-o", target, *arguments])
    lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr[:200] or "it failed"]
    return lines[0] if done.returncode else ""


def _open(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, arguments in FUNCTIONS.items():
        function = getattr(library, f"refnum_{name}")
        function.argtypes, function.restype = arguments, None
    return library


@functools.cache
def _loaded() -> tuple[ctypes.CDLL | None, Build | None, str]:
    """Return (library, build, reason it is missing); decided once a process."""
    try:
        build = plan()
        path = cache_folder() / f"host-{build.key[:32]}.so"
        if not path.exists():
            _compile(build, path)
        return _open(path), build, ""
    except UnsupportedError as error:
        return None, None, str(error)
    except (OSError, subprocess.SubprocessError) as error:
        return None, None, f"the host build could not be made or loaded: {error}"


_opened = functools.cache(_open)
_stand_ins: list[Path] = []


@contextlib.contextmanager
def standing_in(path: Path) -> Iterator[None]:
    """Make this process call the library of a path, which was built from a copy of the sources, instead of its own."""
    _stand_ins.append(path)
    try:
        yield
    finally:
        _stand_ins.pop()


def library() -> ctypes.CDLL:
    """Return the loaded library, built on first use. Raises UnsupportedError with the reason."""
    if _stand_ins:
        return _opened(_stand_ins[-1])
    loaded, _, reason = _loaded()
    if loaded is None:
        raise UnsupportedError(reason)
    return loaded


_HEAD = object.__basicsize__
"""Bytes of an object before NumPy's own fields, the first of which is the address of the data (PyArrayObject)."""


def address(x: np.ndarray[Any, Any]) -> int:
    """Return the address of an array's first byte: `x.ctypes.data`, which takes eight times as long."""
    return ctypes.c_void_p.from_address(id(x) + _HEAD).value or 0


def available() -> tuple[bool, str]:
    """Return (whether the library can be used here, the reason if not); builds it unless it is in the cache."""
    loaded, _, reason = _loaded()
    return loaded is not None, reason


def describe() -> dict[str, str]:
    """Return the compiler, its version, the flags and the sources' digest, or the reason there is no library."""
    _, build, reason = _loaded()
    if build is None:
        return {"available": "no", "reason": reason, "source_sha256": source_digest()}
    return {
        "available": "yes",
        "compiler": shlex.join(build.command),
        "version": build.version,
        "flags": " ".join(build.flags),
        "source_sha256": build.digest,
        "library_key": build.key,
    }
