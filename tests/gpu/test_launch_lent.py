"""Arrays of libraries that know nothing of CuPy's stream: read before their memory goes back, given back in kind.

The device here runs a kernel as late as it may, when its stream is waited for; the lending library gives an array's
memory away at the moment its last holder lets go.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import refnum
from refnum.errors import ArgumentError, DtypeError
from refnum.gpu import emulate, ops
from refnum.gpu.device import allocate, arrays, plans
from refnum.gpu.emulate.arrays import LIBRARY, address_of

if not emulate.available()[0]:
    pytest.skip(emulate.available()[1], allow_module_level=True)

STREAM = 7
X = np.linspace(-8, 8, 256, dtype=np.float32).reshape(4, 64)


class Late(emulate.Emulator):
    """A device whose kernels run when a stream is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[tuple[Any, int]] = []
        self.waits: list[int] = []
        self.captures = False

    def fire(self, frame: Any, device: int) -> None:
        self.queue.append((frame, device))

    def wait(self, stream: int) -> None:
        self.waits.append(stream)
        for frame, device in self.queue:
            super().fire(frame, device)
        self.queue.clear()


class Array:
    """CuPy's array, of emulated memory."""

    def __init__(self, x: Any) -> None:
        self.x, self.shape, self.strides, self.dtype = x, x.shape, x.strides, x.dtype
        self.data = types.SimpleNamespace(ptr=address_of(x), device_id=0)


Array.__module__ = "cupy"


class Interface:
    """An array with `__cuda_array_interface__` alone; its memory is another's as soon as nobody holds it."""

    def __init__(self, x: np.ndarray[Any, Any]) -> None:
        store = x.copy()
        self.memory = emulate.array(store)
        weakref.finalize(self, store.fill, 77)
        self.__cuda_array_interface__ = {"version": 3}


class Lent(Interface):
    """An array of a library with DLPack and a namespace."""

    def __dlpack__(self, **options: Any) -> Any:
        raise NotImplementedError  # CuPy's business

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __array_namespace__(self) -> Any:
        return types.SimpleNamespace(from_dlpack=taken)


def taken(y: Array) -> Lent:
    """Return an array of the lending library over the memory of one of CuPy's."""
    found = Lent.__new__(Lent)
    found.memory = y.x
    return found


def alias(x: Interface) -> Array:
    found = Array(x.memory)
    found.base = x  # type: ignore[attr-defined]
    return found


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Late]:
    device = Late()
    runtime = types.SimpleNamespace(
        getDevice=lambda: 0, streamIsCapturing=lambda stream: device.captures, streamSynchronize=device.wait
    )
    stream = types.SimpleNamespace(ptr=STREAM)
    cupy = types.SimpleNamespace(
        from_dlpack=alias, asarray=alias, empty=lambda shape, dtype: Array(LIBRARY.empty(shape, dtype, 0)),
        cuda=types.SimpleNamespace(runtime=runtime, get_current_stream=lambda: stream),
    )  # fmt: skip
    monkeypatch.setattr(arrays, "cupy_module", lambda: cupy)
    monkeypatch.setattr(arrays, "_cupy_calls", lambda: (runtime.getDevice, cupy.cuda.get_current_stream))
    with device.running():
        plans.forget()
        yield device
    arrays.SIGNATURES.pop(Array, None)
    plans.forget()
    plans.captured.clear()


def memory_of(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(x.memory if isinstance(x, Interface) else x.x)


@pytest.mark.parametrize("kind", [Lent, Interface])
def test_a_call_waits_for_the_kernels_that_read_lent_memory(kind: type[Interface], device: Late) -> None:
    for _ in range(2):
        results = ops.quantize_mxfp4(kind(X))  # nobody else holds it
        for want, got in zip(refnum.quantize_mxfp4(X), results, strict=True):
            assert type(got) is (Lent if kind is Lent else Array)
            assert np.array_equal(want, memory_of(got))
    assert device.waits == [STREAM, STREAM] and not device.queue and not plans._plans


def test_a_call_that_fails_behind_a_launch_waits_too(device: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*given: Any) -> Any:
        raise DtypeError("its library takes no such array")

    monkeypatch.setattr(Lent, "__array_namespace__", lambda self: types.SimpleNamespace(from_dlpack=failing))
    with pytest.raises(DtypeError, match="its library"):
        ops.quantize_mxfp4(Lent(X))
    assert device.waits == [STREAM] and not device.queue


def test_what_a_graph_records_is_not_waited_for(device: Late) -> None:
    device.captures = True
    x = Interface(X)
    results = ops.quantize_mxfp4(x)
    assert device.waits == [] and len(device.queue) == 1
    device.wait(STREAM)  # the graph is launched
    for want, got in zip(refnum.quantize_mxfp4(X), results, strict=True):
        assert np.array_equal(want, memory_of(got))


def test_cupys_own_arrays_are_not_waited_for(device: Late) -> None:
    x = Array(emulate.array(X))
    ops.quantize_mxfp4(x)
    assert device.waits == [] and device.queue
    with pytest.raises(DtypeError):
        ops.quantize_mxfp4(Array(emulate.array(X.astype(np.int32))))
    assert device.waits == []


@pytest.mark.parametrize("kind", [Lent, Interface, Array])
def test_an_out_of_a_library_with_another_stream_is_refused(kind: Any, device: Late) -> None:
    """Its own library's next kernel would not wait for this one; torch's arrays and CuPy's are such a pair."""
    out = tuple(kind(emulate.array(np.zeros_like(x))) for x in refnum.quantize_mxfp4(X))
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"out\[0\] is an array of .* and x one of emulated; give both of one"):
            ops.quantize_mxfp4(emulate.array(X), out=out)
    assert not device.queue


def test_an_out_of_cupys_goes_with_lent_memory(device: Late) -> None:
    out = tuple(Array(emulate.array(np.zeros_like(x), written=True)) for x in refnum.quantize_mxfp4(X))
    ops.quantize_mxfp4(Lent(X), out=out)
    for want, got in zip(refnum.quantize_mxfp4(X), out, strict=True):
        assert np.array_equal(want, memory_of(got))
    assert device.waits == [STREAM]


def test_numbers_of_the_other_byte_order_are_refused_behind_the_plan_of_an_equal_call(
    device: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(allocate.WAYS, "cupy")  # which needs more of CuPy
    for _ in range(2):
        ops.quantize_mxfp4(Array(emulate.array(X)))
    assert len(plans._plans) == 1
    with pytest.raises(DtypeError, match="x has dtype >f4"):
        ops.quantize_mxfp4(Array(emulate.array(X.astype(">f4"))))
