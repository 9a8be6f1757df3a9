"""Kernels compiled by NVRTC with our own flags, to machine code or PTX, and kept in a cache.

Compiling needs no GPU. CuPy's compiler functions append -ftz=true, and NVRTC contracts multiply-adds by default; both
change bits, so neither default is used.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from refnum.errors import ArgumentError, UnsupportedError

from ..cache import cache_folder, cannot_keep

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
FLAGS: tuple[str, ...] = ("-std=c++17", "-ftz=false", "-fmad=false", "-prec-div=true", "-prec-sqrt=true")
ARCHITECTURES = {(8, 0): "sm_80", (8, 9): "sm_89", (9, 0): "sm_90a", (10, 0): "sm_100a"}
"""Compute capability -> the architecture that its machine code is compiled for."""
DEFAULT = "sm_90a"
LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_OUTPUTS = {"cubin": "CUBIN", "ptx": "PTX"}


def kernel_names(kernels: Path = KERNELS) -> tuple[str, ...]:
    """Return the names of the kernel files of a folder, without `.cu`."""
    return tuple(sorted(path.stem for path in kernels.glob("*.cu")))


@dataclass(frozen=True)
class Source:
    """One kernel file and every header of its folder, read once, so that the hashed bytes are the compiled ones."""

    name: str
    text: bytes
    headers: tuple[tuple[str, bytes], ...]

    @property
    def digest(self) -> str:
        """SHA-256 over all names and bytes."""
        total = hashlib.sha256()
        for name, text in ((self.name, self.text), *self.headers):
            total.update(name.encode() + b"\0" + hashlib.sha256(text).digest())
        return total.hexdigest()


def read_source(name: str, kernels: Path = KERNELS) -> Source:
    """Return the source of a kernel file of a folder; ArgumentError names those that exist."""
    if name not in kernel_names(kernels):
        raise ArgumentError(f"kernel {name!r} does not exist; there are {', '.join(kernel_names(kernels))}")
    headers = tuple((path.name, path.read_bytes()) for path in sorted(kernels.glob("*.cuh")))
    return Source(f"{name}.cu", (kernels / f"{name}.cu").read_bytes(), headers)


def _candidates() -> Iterator[str]:
    """Yield paths of NVRTC: the wheels' folders first, since they bring their own builtins, then the loader's."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for pattern in ("cu1*/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*"):
            yield from (str(path) for path in sorted(Path(root).glob(pattern)) if ".alt." not in path.name)
    for base in filter(None, (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda")):
        yield from (str(Path(base) / "lib64" / name) for name in LIBRARIES)
    yield from LIBRARIES


class Nvrtc:
    """The functions of NVRTC that are needed, with their return codes checked."""

    def __init__(self) -> None:
        tried = []
        for path in _candidates():
            try:
                self.nvrtc = ctypes.CDLL(path)
                break
            except OSError as error:
                tried.append(str(error))
        else:
            raise UnsupportedError(f"NVRTC was not found: install nvidia-cuda-nvrtc or the CUDA toolkit ({tried[-1]})")
        self.nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, function: str, *arguments: object) -> None:
        """Call a function; UnsupportedError when it does not return success."""
        code = getattr(self.nvrtc, function)(*arguments)
        if code:
            raise UnsupportedError(f"{function} failed: {self.nvrtc.nvrtcGetErrorString(code).decode()}")

    @functools.cached_property
    def version(self) -> str:
        """NVRTC's version, `major.minor`."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    @functools.cached_property
    def build(self) -> str:
        """The build that NVRTC writes into PTX, e.g. `V13.0.88`; several builds share a version."""
        found = re.search(rb"\bV\d+\.\d+\.\d+", self.compile(Source("empty.cu", b"", ()), (), "ptx"))
        return found[0].decode() if found else self.version

    def compile(self, source: Source, options: tuple[str, ...], output: str) -> bytes:
        """Return the machine code or PTX; UnsupportedError with the first error of the compiler's log."""
        with self.program(source, options) as program:
            return self.read(program, output)

    @contextlib.contextmanager
    def program(self, source: Source, options: tuple[str, ...]) -> Iterator[ctypes.c_void_p]:
        """Compile, and give the program while its outputs can be read; UnsupportedError as of `compile`."""
        program = ctypes.c_void_p()
        count = len(source.headers)
        names = (ctypes.c_char_p * count)(*(name.encode() for name, _ in source.headers))
        texts = (ctypes.c_char_p * count)(*(text for _, text in source.headers))
        self.call("nvrtcCreateProgram", ctypes.byref(program), source.text, source.name.encode(), count, texts, names)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            if self.nvrtc.nvrtcCompileProgram(program, len(options), given):
                log = self._read(program, "nvrtcGetProgramLog").decode(errors="replace")
                first = re.search(r"^.*\berror\b.*$", log, re.M)
                raise UnsupportedError(
                    f"NVRTC {self.version} could not compile {source.name}: {first.group(0) if first else log[:300]}"
                )
            yield program
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))

    def read(self, program: ctypes.c_void_p, output: str) -> bytes:
        """Return the machine code or PTX of a compiled program."""
        return self._read(program, f"nvrtcGet{_OUTPUTS[output]}")

    def _read(self, program: ctypes.c_void_p, function: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(f"{function}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(function, program, buffer)
        return buffer.raw


@functools.cache
def nvrtc() -> Nvrtc:
    """Return NVRTC, loaded once; UnsupportedError with the reason if it is missing."""
    return Nvrtc()


def architecture(capability: tuple[int, int]) -> str:
    """Return the architecture of a device; UnsupportedError for one that the kernels do not support."""
    if capability not in ARCHITECTURES:
        known = ", ".join(f"{major}.{minor}" for major, minor in ARCHITECTURES)
        raise UnsupportedError(
            f"the device has compute capability {capability[0]}.{capability[1]}; the kernels are compiled for {known}"
        )
    return ARCHITECTURES[capability]


def options(
    arch: str = DEFAULT, output: str = "cubin", defines: tuple[str, ...] = (), flags: tuple[str, ...] = FLAGS
) -> tuple[str, ...]:
    """Return NVRTC's options; PTX is made for the virtual architecture of `arch`."""
    target = arch.replace("sm_", "compute_") if output == "ptx" else arch
    return (f"--gpu-architecture={target}", *flags, *(f"-D{define}" for define in defines))


def compiled(
    name: str, arch: str = DEFAULT, output: str = "cubin", defines: tuple[str, ...] = (), *,
    kernels: Path = KERNELS, flags: tuple[str, ...] = FLAGS,
) -> Path:  # fmt: skip
    """Return the file of a compiled kernel, made now unless the cache has it.

    The cache's key is the SHA-256 of all sources, the options and the compiler's build.

    Args:
        name: the kernel file, without `.cu`.
        arch: the architecture of the machine code.
        output: `cubin` or `ptx`.
        defines: macros such as `UNROLL=2`.
        kernels: the folder of the sources.
        flags: the compiler's flags beside architecture and macros.

    Returns:
        The path of the compiled file.

    Raises:
        ArgumentError: there is no such kernel file.
        UnsupportedError: NVRTC is missing or refuses the source, or the cache cannot be written.
    """
    source, given, compiler = read_source(name, kernels), options(arch, output, defines, flags), nvrtc()
    key = hashlib.sha256("\n".join((source.digest, *given, compiler.build)).encode()).hexdigest()
    target = cache_folder() / f"{name}-{arch}-{key[:32]}.{output}"
    try:
        if not (target.exists() and target.stat().st_size):
            _make(target, lambda: compiler.compile(source, given, output))
    except OSError as error:
        raise cannot_keep(target.parent, error) from error
    return target


def _make(target: Path, data: Callable[[], bytes]) -> None:
    """Write a file under a temporary name and rename it, readable for all users."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f"{target.stem}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
