"""What a first call sets up on a device may be set up while a graph records the call, and is undone where it fails.

The driver is one that behaves as CUDA does while a stream is captured: calls that may break the capture, and all that
goes by the legacy stream, are refused and break it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refnum.gpu.device import driver
from refnum.gpu.mutation.kernels import DeviceSources

GLOBAL, RELAXED = 0, 2
UNSUPPORTED, IMPLICIT, FAILED = 900, 906, 700
LEGACY = frozenset(("cuMemcpyHtoD_v2", "cuMemsetD8_v2", "cuCtxSynchronize"))
UNSAFE = frozenset(("cuMemAlloc_v2", "cuMemFree_v2", "cuModuleLoadData", "cuModuleGetFunction"))
TABLE = np.arange(1 << 10, dtype=np.uint32)


class Cuda:
    """libcuda on one device, in a thread whose stream is captured."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.mode, self.broken = fails, GLOBAL, ""
        self.memory: dict[int, bytes] = {}
        self.streams: set[int] = set()
        self.contexts: list[Any] = []
        self.made = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            if name == self.fails:
                return FAILED
            if name in LEGACY or (name == "cuStreamSynchronize" and not arguments[0]):
                self.broken = name
                return IMPLICIT
            if name in UNSAFE and self.mode != RELAXED:
                self.broken = name
                return UNSUPPORTED
            done = getattr(type(self), f"_{name}", lambda *_: 0)(self, *arguments)
            return done or 0

        return call

    def _new(self) -> int:
        self.made += 1
        return 4096 * self.made

    def _cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = 1

    def _cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> None:
        value._obj.value = {driver.MAJOR: 9, driver.MINOR: 0}.get(attribute, 1)

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> None:
        self.mode, mode._obj.value = mode._obj.value, self.mode

    def _cuCtxPushCurrent_v2(self, context: Any) -> None:
        self.contexts.append(context)

    def _cuCtxPopCurrent_v2(self, context: Any) -> None:
        self.contexts.pop()

    def _cuStreamCreate(self, stream: Any, flags: int) -> None:
        assert flags == 1  # the legacy stream does not wait for it
        stream._obj.value = self._new()
        self.streams.add(stream._obj.value)

    def _cuStreamDestroy_v2(self, stream: Any) -> None:
        self.streams.remove(stream.value)

    def _cuMemAlloc_v2(self, place: Any, size: Any) -> None:
        place._obj.value = self._new()
        self.memory[place._obj.value] = b""

    def _cuMemFree_v2(self, place: Any) -> None:
        del self.memory[place.value]

    def _cuMemcpyHtoDAsync_v2(self, place: Any, source: Any, size: Any, stream: Any) -> None:
        assert stream.value in self.streams
        self.memory[place.value] = ctypes.string_at(source.value, size.value)

    def _cuModuleLoadData(self, module: Any, image: bytes) -> None:
        module._obj.value = self._new()

    def _cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> None:
        function._obj.value = self._new()

    def at_rest(self) -> bool:
        """Whether a call has left the thread as it was."""
        return not self.broken and self.mode == GLOBAL and not self.contexts and not self.streams


def started(monkeypatch: pytest.MonkeyPatch, cuda: Cuda) -> driver.Driver:
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: cuda)
    return driver.Driver()


def test_a_constant_is_copied_while_a_graph_records(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    device = started(monkeypatch, cuda)
    place = device.constant("table", TABLE, 0)
    assert cuda.memory == {place: TABLE.tobytes()} and cuda.at_rest()
    assert device.constant("table", TABLE, 0) == place and len(cuda.memory) == 1


@pytest.mark.parametrize("fails", [
    "cuThreadExchangeStreamCaptureMode", "cuStreamCreate", "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2",
    "cuStreamSynchronize",
])  # fmt: skip
def test_a_constant_that_fails_keeps_no_memory_and_can_be_asked_for_again(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = Cuda(fails)
    device = started(monkeypatch, cuda)
    with pytest.raises(driver.DriverError, match=f"{fails} failed"):
        device.constant("table", TABLE, 0)
    assert cuda.at_rest() and not cuda.memory
    cuda.fails = ""
    place = device.constant("table", TABLE, 0)
    assert cuda.memory == {place: TABLE.tobytes()}
    assert cuda.at_rest()


@pytest.mark.parametrize("fails", ["", "cuModuleLoadData", "cuModuleGetFunction"])
def test_a_function_is_loaded_while_a_graph_records(
    fails: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"machine code")
    monkeypatch.setattr(driver.build, "compiled", lambda *given, **options: image)
    cuda = Cuda(fails)
    device = started(monkeypatch, cuda)
    if fails:
        with pytest.raises(driver.DriverError, match=fails):
            device.function("kernel", "name", 0)
        assert cuda.at_rest()
        cuda.fails = ""
    function = device.function("kernel", "name", 0)
    assert function and device.function("kernel", "name", 0) == function and cuda.at_rest()


def test_a_driver_compiles_the_kernels_of_its_folder_with_its_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[Any] = []
    image = tmp_path / "image"
    image.write_bytes(b"machine code")
    monkeypatch.setattr(driver.build, "compiled", lambda *names, **options: given.append(options) or image)
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: Cuda())
    workshop = DeviceSources()
    own, changed = workshop.root, tuple(flag.replace("-ftz=false", "-ftz=true") for flag in driver.build.FLAGS)
    try:
        workshop.use("-ftz=false", "-ftz=true")
        for folder in (tmp_path, own):
            workshop.subject(folder)
            driver.hardware().function("kernel", "name", 0)
        workshop.forget()
        workshop.subject(tmp_path)
        driver.hardware().function("kernel", "name", 0)
    finally:
        driver.start_with(driver.Driver)
    assert [(one["kernels"], one["flags"]) for one in given] == [
        (tmp_path, changed), (own, driver.build.FLAGS), (tmp_path, driver.build.FLAGS),
    ]  # fmt: skip


def test_the_fake_refuses_what_a_capture_does_not_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, arguments in (("cuMemcpyHtoD_v2", (0, 0, 0)), ("cuMemAlloc_v2", ()), ("cuStreamSynchronize", (None,))):
        cuda = Cuda()
        with pytest.raises(driver.DriverError):
            started(monkeypatch, cuda).call(name, *arguments)
        assert not cuda.at_rest()
