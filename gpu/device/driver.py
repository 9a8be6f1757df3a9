"""The CUDA driver through ctypes: modules from machine code, functions, launches.

It uses the primary context of a device, as CuPy, torch and JAX do, so it works beside them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from refnum.errors import RefnumError, UnsupportedError

from . import compile as build

MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76
RELAXED, NON_BLOCKING = 2, 1
"""CU_STREAM_CAPTURE_MODE_RELAXED and CU_STREAM_NON_BLOCKING."""
ATTRIBUTES = {"shared_bytes": 1, "local_bytes": 3, "registers": 4}
"""What `resources` reports -> CUfunction_attribute."""


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("across", ctypes.c_uint), ("down", ctypes.c_uint), ("deep", ctypes.c_uint),
        ("threads", ctypes.c_uint), ("threads_y", ctypes.c_uint), ("threads_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]  # fmt: skip


class Frame:
    """A launch in the driver's own structures. `arguments`, the kernel's one structure, and the stream can be changed.

    A frame belongs to one thread from the moment it is fired until the call returns.
    """

    __slots__ = ("arguments", "call", "config", "function", "places", "pointers", "stream")

    def __init__(self, function: int, blocks: tuple[int, int], threads: int, arguments: ctypes.Structure) -> None:
        self.arguments = type(arguments).from_buffer_copy(arguments)
        self.config = Config(blocks[0], blocks[1], 1, threads, 1, 1, 0, None, None, 0)
        self.pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self.arguments))
        self.function = ctypes.c_void_p(function)
        self.call = (ctypes.byref(self.config), self.function, self.pointers, None)
        self.places: Any = None  # the addresses that were written into the arguments last
        self.stream = 0


OTHER_CONTEXT = (201, 400)
"""CUDA_ERROR_INVALID_CONTEXT and CUDA_ERROR_INVALID_HANDLE: a launch while another context is current returns one."""


class DriverError(RefnumError):
    """A call of the CUDA driver failed; the message has the name of the call and of the driver's error."""


class Driver:
    """libcuda, initialised, with the contexts and functions that calls have needed so far.

    kernels, flags: the folder of the kernels' sources, and the compiler's flags.
    """

    def __init__(self, kernels: Path = build.KERNELS, flags: tuple[str, ...] = build.FLAGS) -> None:
        self.kernels, self.flags = kernels, flags
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise UnsupportedError("there is no CUDA driver here (libcuda.so.1 cannot be loaded)") from error
        if self.library.cuInit(0):
            raise UnsupportedError("the CUDA driver does not start here: no usable GPU")
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value == 0:
            raise UnsupportedError("there is no CUDA device here")
        self.devices = count.value
        self._fire = self.library.cuLaunchKernelEx
        self._functions: dict[tuple[Any, ...], int] = {}
        self._modules: dict[tuple[Any, ...], ctypes.c_void_p] = {}
        self._constants: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def call(self, function: str, *arguments: object) -> None:
        """Call a function; DriverError when it does not return success."""
        code = getattr(self.library, function)(*arguments)
        if code:
            self.fail(function, code)

    def fail(self, function: str, code: int) -> None:
        """Raise DriverError with the driver's name for a return code."""
        name = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(name))
        raise DriverError(f"{function} failed: {(name.value or b'unknown error').decode()}")

    @functools.cache  # noqa: B019 - one Driver a process
    def capability(self, device: int) -> tuple[int, int]:
        """Return the compute capability of a device."""
        return self._attribute(MAJOR, device), self._attribute(MINOR, device)

    def _attribute(self, attribute: int, device: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value

    @functools.cache  # noqa: B019
    def context(self, device: int) -> int:
        """Return the primary context of a device, kept for the life of the process."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return context.value or 0

    def function(self, kernel: str, name: str, device: int, defines: tuple[str, ...] = ()) -> int:
        """Return the handle of a function of a kernel file on a device; compiled and loaded on first use."""
        key = (kernel, name, device, defines)
        found = self._functions.get(key)
        if found is not None:
            return found
        with self._lock, self._setting_up(device):
            self._functions[key] = self._load(kernel, name, device, defines)
        return self._functions[key]

    @contextlib.contextmanager
    def _setting_up(self, device: int) -> Iterator[None]:
        """Make a device's context current, and allow loading and allocation even while a graph records this call."""
        mode = ctypes.c_int(RELAXED)
        self.enter(device)
        try:
            self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))  # and get the mode before it
            try:
                yield
            finally:
                self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        finally:
            self.leave()

    def _load(self, kernel: str, name: str, device: int, defines: tuple[str, ...]) -> int:
        slot = (kernel, device, defines)
        if slot not in self._modules:
            arch = build.architecture(self.capability(device))
            image = build.compiled(kernel, arch, defines=defines, kernels=self.kernels, flags=self.flags)
            module = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), image.read_bytes())
            self._modules[slot] = module
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self._modules[slot], name.encode())
        return function.value or 0

    @functools.cache  # noqa: B019
    def multiprocessors(self, device: int) -> int:
        """Return how many multiprocessors a device has."""
        return self._attribute(MULTIPROCESSORS, device)

    def constant(self, name: str, x: np.ndarray[Any, Any], device: int) -> int:
        """Return the address of a copy of `x` in a device's memory, made at the first call and kept under `name`."""
        with self._lock:
            if (name, device) not in self._constants:
                with self._setting_up(device):
                    self._constants[name, device] = self._copy(x)
            return self._constants[name, device]

    def _copy(self, x: np.ndarray[Any, Any]) -> int:
        """Return the address of a copy in the current device's memory.

        The copy uses a stream of its own: the legacy stream would wait for streams that a graph records, which
        invalidates the graph.
        """
        place, stream, size = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_size_t(x.nbytes)
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        try:
            self.call("cuMemAlloc_v2", ctypes.byref(place), size)
            try:
                self.call("cuMemcpyHtoDAsync_v2", place, ctypes.c_void_p(x.ctypes.data), size, stream)
                self.call("cuStreamSynchronize", stream)
            except DriverError:
                self.library.cuMemFree_v2(place)  # if that fails too, the first error matters
                raise
        finally:
            self.library.cuStreamDestroy_v2(stream)
        return place.value

    def enter(self, device: int) -> None:
        """Push a device's primary context on the stack of contexts."""
        self.call("cuCtxPushCurrent_v2", ctypes.c_void_p(self.context(device)))

    def leave(self) -> None:
        """Undo `enter`."""
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def launch(
        self, function: int, device: int, blocks: tuple[int, int], threads: int, stream: int, arguments: Any
    ) -> None:
        """Launch `blocks` (across, down) of `threads` in a stream; `arguments` is the kernel's one structure."""
        frame = Frame(function, blocks, threads, arguments)
        frame.config.stream = stream
        self.fire(frame, device)

    def fire(self, frame: Frame, device: int) -> None:
        """Launch a frame; if another context is current, make the device's context current for the launch."""
        code = self._fire(*frame.call)
        if code in OTHER_CONTEXT:  # asking for the current context before every launch would cost more
            self.enter(device)
            try:
                code = self._fire(*frame.call)
            finally:
                self.leave()
        if code:
            self.fail("cuLaunchKernelEx", code)

    def resources(self, function: int) -> dict[str, int]:
        """Return registers, local bytes and shared bytes of a function."""
        found = {}
        for name, attribute in ATTRIBUTES.items():
            value = ctypes.c_int()
            self.call("cuFuncGetAttribute", ctypes.byref(value), attribute, ctypes.c_void_p(function))
            found[name] = value.value
        return found


_start: list[Callable[[], Driver]] = [Driver]


@functools.cache
def hardware() -> Driver:
    """Return the driver of this process, started once; UnsupportedError with the reason when there is none."""
    return _start[0]()


def start_with(make: Callable[[], Driver]) -> None:
    """Launch by a driver that `make` starts at the next launch, in this process from now on; see `plans.forget`."""
    _start[0] = make
    hardware.cache_clear()


class _StandIn(threading.local):
    driver: Any = None


stand_in = _StandIn()
"""The driver of this thread in the place of libcuda's while it is set: an emulator (gpu/emulate/__init__.py)."""


def driver() -> Driver:
    """Return the driver of this thread; UnsupportedError with the reason if there is none."""
    found: Driver = stand_in.driver or hardware()
    return found


@functools.cache
def available() -> tuple[bool, str]:
    """Return (whether there is a GPU that the kernels support and a compiler, the reason if not)."""
    try:
        build.architecture(hardware().capability(0))
        build.nvrtc()
    except (UnsupportedError, DriverError) as error:
        return False, str(error)
    return True, ""
