"""Whole kernels on the processor: the same `.cu` files and launchers as on a GPU, on an emulated device.

`Emulator` replaces libcuda's driver. It compiles a kernel function with the system's C++ compiler (`emulate/build.py`)
and runs every thread of every CTA. A launch ends with `EmulationError` at the first access that is out of bounds, in
the gap of a stride, misaligned, a store to an input, a read of memory that was never written, or part of a race; at a
barrier that not all threads reach; and at warp-wide operations that do not match.

    with emulate.Emulator().running():
        packed, scales = gpu.quantize_mxfp4(emulate.array(x))

`Emulator(folder)` runs the kernels of another folder, which holds `.cu` and `.cuh` files as gpu/kernels does; a file is
read when one of its functions is first launched. Functions are compiled one by one at their first launch and kept in
the cache under a digest of their sources, and an Emulator keeps the functions that it has loaded until `close`.
CompileError names what does not compile. `subject_operations(emulator)` returns the launchers as functions of NumPy
arrays.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from refnum.errors import ArgumentError, RefnumError, UnsupportedError

from .. import ops
from ..device import arrays as device_arrays
from ..device import driver, plans
from ..device.compile import KERNELS
from ..operations import LAUNCHED
from . import build
from .arrays import EmulatedArray, address_of, array, element_map, living
from .source import CompileError

__all__ = [
    "CompileError",
    "EmulatedArray",
    "EmulationError",
    "Emulator",
    "array",
    "available",
    "describe",
    "on_numpy",
    "subject_operations",
]

MESSAGE = 1024


class EmulationError(RefnumError):
    """A kernel did something that a device refuses or leaves undefined; the message names function, CTA and thread."""


class _Array(ctypes.Structure):
    """Mirror of `emulation::Array` in emulate/engine.hpp."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("low", ctypes.c_size_t), ("high", ctypes.c_size_t),
        ("map", ctypes.c_void_p), ("writers", ctypes.c_void_p), ("made", ctypes.c_void_p),
    ]  # fmt: skip


class _Launch(ctypes.Structure):
    """Mirror of `emulation::Launch` in emulate/engine.hpp."""

    _fields_ = [
        ("entry", ctypes.c_void_p), ("arguments", ctypes.c_void_p), ("argument_bytes", ctypes.c_uint64),
        ("across", ctypes.c_uint32), ("down", ctypes.c_uint32), ("threads", ctypes.c_uint32),
        ("arrays", ctypes.c_uint32), ("array", ctypes.POINTER(_Array)), ("seed", ctypes.c_uint64),
        ("message", ctypes.c_void_p), ("capacity", ctypes.c_uint64),
    ]  # fmt: skip


def _pointers(arguments: ctypes.Structure) -> Iterator[tuple[str, int]]:
    """Yield (field, address) of every pointer of a kernel's arguments that is not null."""
    for base in reversed(type(arguments).__mro__):
        for name, kind, *_ in vars(base).get("_fields_", ()):
            value = getattr(arguments, name)
            if kind is ctypes.c_void_p and value:
                yield name, value
            elif isinstance(value, ctypes.Structure):
                yield from ((f"{name}.{inner}", address) for inner, address in _pointers(value))
            elif isinstance(value, ctypes.Array) and value._type_ is ctypes.c_void_p:
                yield from ((f"{name}[{i}]", address) for i, address in enumerate(value) if address)


class _Memory:
    """The arrays that a launch's pointers lead to, as the emulated machine takes them."""

    def __init__(self, arguments: ctypes.Structure, function: str) -> None:
        places = living()
        self.kept: list[Any] = []
        made = []
        for name, address in _pointers(arguments):
            if address not in places:
                raise EmulationError(f"{function}: the argument {name} is the address of no array of the call")
            made.append(self._entry(name, places[address]))
        self.count = len(made)
        self.entries = (_Array * max(len(made), 1))(*made)

    def _entry(self, name: str, x: EmulatedArray) -> _Array:
        low, high = device_arrays.look(name, x).span()
        elements = element_map(x, low, high)
        writers = np.zeros(high - low, np.uint32) if x.flags.writeable else None
        self.kept += [x, elements, writers]
        pointer = writers.ctypes.data if writers is not None else None
        made = x.made.ctypes.data if x.made is not None else None
        return _Array(name.encode(), low, high, elements.ctypes.data, pointer, made)


class Emulator:
    """A driver in the place of `driver.Driver`: functions of the kernel files of a folder, launched on the processor.

    kernels: a folder of `.cu` and `.cuh` files. seed: the order in which threads and CTAs run; 0 is the natural one.
    """

    def __init__(self, kernels: Path = KERNELS, seed: int = 1) -> None:
        self.kernels, self.seed = Path(kernels), seed
        self._names: list[str] = [""]
        self._libraries: list[ctypes.CDLL] = []
        self._entries: list[tuple[Any, int]] = [(None, 0)]
        self._handles: dict[tuple[Any, ...], int] = {}
        self._constants: dict[str, EmulatedArray] = {}
        self._lock = threading.Lock()

    def capability(self, device: int) -> tuple[int, int]:
        """Return the compute capability that is emulated."""
        return 9, 0

    def multiprocessors(self, device: int) -> int:
        """Return the number of multiprocessors: enough for CTAs to meet, few enough for persistent CTAs to loop."""
        return 2

    def constant(self, name: str, x: np.ndarray[Any, Any], device: int) -> int:
        """Return the address of a copy of a constant array, which every launch may read."""
        return address_of(self._constants.setdefault(name, array(x)))

    def function(self, kernel: str, name: str, device: int, defines: tuple[str, ...] = ()) -> int:
        """Return the handle of a function of a kernel file, compiled and loaded on first use."""
        key = (kernel, name, defines)
        with self._lock:
            if key not in self._handles:
                unit = build.read_unit(self.kernels, kernel, name, defines)
                library = ctypes.CDLL(str(build.compiled(unit)))
                run = library.refnum_emulate
                run.argtypes, run.restype = [ctypes.POINTER(_Launch)], ctypes.c_int
                entry = ctypes.cast(getattr(library, f"emulated_{name}"), ctypes.c_void_p).value or 0
                self._libraries.append(library)
                self._entries.append((run, entry))
                self._names.append(name)
                self._handles[key] = len(self._entries) - 1
        return self._handles[key]

    def launch(
        self, function: int, device: int, blocks: tuple[int, int], threads: int, stream: int, arguments: Any
    ) -> None:
        """Run a launch to its end; EmulationError if the kernel does something undefined."""
        self.fire(driver.Frame(function, blocks, threads, arguments), device)

    def fire(self, frame: driver.Frame, device: int) -> None:
        """Run a launch in the driver's structures; errors as for `launch`."""
        number, grid, arguments = frame.function.value or 0, frame.config, frame.arguments
        (run, entry), name = self._entries[number], self._names[number]
        memory = _Memory(arguments, name)
        message = ctypes.create_string_buffer(MESSAGE)
        launch = _Launch(
            entry, ctypes.addressof(arguments), ctypes.sizeof(arguments), grid.across, grid.down, grid.threads,
            memory.count, memory.entries, self.seed, ctypes.addressof(message), MESSAGE,
        )  # fmt: skip
        with _one_at_a_time:
            failed = run(ctypes.byref(launch))
        if failed:
            raise EmulationError(f"{name}: {message.value.decode(errors='replace')}")

    def close(self) -> None:
        """Unload all functions and free their memory; the emulator can be used again and loads them again."""
        if _planned_by and _planned_by[0]() is self:
            plans.forget()
        with self._lock, _one_at_a_time:
            for library in self._libraries:
                library.refnum_release()
                _ctypes.dlclose(library._handle)
            self._libraries.clear()
            self._handles.clear()
            self._entries[1:], self._names[1:] = [], []

    @contextlib.contextmanager
    def running(self) -> Iterator[Emulator]:
        """Make the launchers of this thread launch on this emulator, on arrays that `array` returns."""
        before = driver.stand_in.driver
        _forget_plans_of_others(self)
        driver.stand_in.driver = self
        try:
            yield self
        finally:
            driver.stand_in.driver = before
            if before is not None:
                _forget_plans_of_others(before)


_one_at_a_time = threading.Lock()  # a function's library holds one machine, which emulators share
_planned_by: list[weakref.ref[Emulator]] = []


def _forget_plans_of_others(emulator: Emulator) -> None:
    """Drop all plans, which hold function handles, unless they are of this emulator."""
    if not _planned_by or _planned_by[0]() is not emulator:
        plans.forget()
        _planned_by[:] = [weakref.ref(emulator)]


def _given(value: Any, written: bool) -> Any:
    if isinstance(value, np.ndarray):
        if written and not value.flags.writeable:
            raise ArgumentError("out is read-only; give an array that can be written")
        return array(value, written=written)
    if isinstance(value, tuple | list) and any(isinstance(part, np.ndarray) for part in value):
        return tuple(_given(part, written) for part in value)
    return value


def on_numpy(function: Callable[..., Any], emulator: Emulator) -> Callable[..., Any]:
    """Return a launcher as a function of NumPy arrays, `out` among them, that runs on an emulator."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with emulator.running():
            result = function(
                *[_given(value, False) for value in args],
                **{name: _given(value, name == "out") for name, value in kwargs.items()},
            )
        given = kwargs.get("out")
        if given is not None and not isinstance(given, str):  # a product's `out` is the dtype of its result
            return tuple(given) if isinstance(result, tuple) else given[0] if isinstance(given, tuple | list) else given
        parts = tuple(
            None if part is None else np.asarray(part) for part in (result if isinstance(result, tuple) else (result,))
        )
        return parts if isinstance(result, tuple) else parts[0]

    return call


def subject_operations(emulator: Emulator) -> dict[str, Callable[..., Any]]:
    """Return every launcher of `refnum.gpu.ops` as a function of NumPy arrays on an emulator."""
    return {name: on_numpy(getattr(ops, name), emulator) for name in LAUNCHED}


@functools.cache
def available() -> tuple[bool, str]:
    """Return (whether kernels can be emulated, the reason if not); compiles the machine unless it is in the cache."""
    if not sys.platform.startswith("linux"):
        return False, f"the emulator needs Linux's linker; this is {sys.platform}"
    try:
        build.machine_objects()
    except (UnsupportedError, CompileError) as error:
        return False, str(error)
    return True, ""


def describe() -> dict[str, str]:
    """Return the compiler, its flags and the digest of the emulated machine, or the reason why there is none."""
    usable, reason = available()
    if not usable:
        return {"available": "no", "reason": reason}
    command, (version, _) = build.compiler()
    return {
        "available": "yes",
        "compiler": " ".join(command),
        "version": version,
        "flags": " ".join((*build.COMMON, *build.KERNEL_FLAGS)),
        "machine_sha256": build.machine_digest(),
    }
