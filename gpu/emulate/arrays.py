"""Arrays of the emulated device: NumPy arrays that the launchers take, and the facts that a launch checks."""

from __future__ import annotations

import math
import threading
import weakref
from typing import Any

import numpy as np

from ..device import allocate
from ..device import arrays as device_arrays
from ..device.arrays import Library, View

ALIGNMENT = 256
"""The alignment of an emulated array, in bytes."""
POISON = 0xC5
"""The value of every byte of a new output."""


class EmulatedArray(np.ndarray):
    """A NumPy array that the launchers take for a device array; a kernel may not write to a read-only one.

    made: for new memory, u8 with 1 for each byte that a kernel has written; a kernel may not read the other bytes. None
    if all bytes may be read.
    """

    made: np.ndarray[Any, Any] | None = None

    def __dlpack_device__(self) -> tuple[int, int]:  # type: ignore[override]
        """Return (kDLCUDA, 0), so that launchers take splits in such an array for splits on the device."""
        return 2, 0


_known: dict[int, weakref.ref[EmulatedArray]] = {}  # id -> array that a launcher has looked at, the latest last


_registering = threading.Lock()
"""Launchers of several threads register arrays, and look at all of them, at the same time."""


def address_of(x: EmulatedArray) -> int:
    """Return the address of an array and register the array, because a launch is given the address alone."""
    place = int(x.ctypes.data)  # of what is no array there is none
    with _registering:
        _known.pop(id(x), None)
        _known[id(x)] = weakref.ref(x)
    return place


def _view(name: str, x: EmulatedArray, library: Library) -> View:
    return View(name, address_of(x), x.shape, x.strides, x.dtype, 0, library, x)


def _memory(size: int) -> np.ndarray[Any, Any]:
    store = np.full(size + ALIGNMENT, POISON, np.uint8)
    start = -int(store.ctypes.data) % ALIGNMENT
    return store[start : start + size]


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> EmulatedArray:
    return _fresh(_memory(math.prod(shape) * dtype.itemsize), shape, dtype)


def _fresh(memory: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> EmulatedArray:
    """Return memory that no kernel has written yet as an array."""
    x = memory.view(dtype).reshape(shape).view(EmulatedArray)
    x.made = np.zeros(memory.size, np.uint8)
    return x


def _together(wanted: allocate.Wanted, device: int) -> allocate.Fresh | None:
    starts, size = allocate.places(wanted)
    if len(wanted) == 1 or size > allocate.TOGETHER:
        return None

    def made() -> tuple[tuple[EmulatedArray, ...], tuple[int, ...]]:
        memory, arrays = _memory(size), []
        for (shape, dtype), start in zip(wanted, starts, strict=True):
            bytes_ = memory[start : start + math.prod(shape) * dtype.itemsize]
            arrays.append(_fresh(bytes_, shape, dtype))
        return tuple(arrays), tuple([address_of(x) for x in arrays])

    return made


def _signature(x: EmulatedArray) -> tuple[int, tuple[Any, ...]]:
    place = address_of(x)
    return place, (type(x), place & 15, x.shape, x.strides, x.dtype, x.flags.writeable)


LIBRARY = Library("emulated", _view, _empty, lambda device: 0, address_of)
allocate.WAYS[LIBRARY.name] = _together
device_arrays.OWN[EmulatedArray] = LIBRARY
device_arrays.SIGNATURES[EmulatedArray] = _signature


def array(x: np.ndarray[Any, Any], *, written: bool = False) -> EmulatedArray:
    """Return a view of a NumPy array, its memory shared, for the launchers; `written`: kernels may write to it."""
    view = x.view(EmulatedArray)
    view.flags.writeable = written
    return view


def living() -> dict[int, EmulatedArray]:
    """Return address -> array, for the arrays that a launcher has looked at and that still exist."""
    with _registering:
        found = [(number, reference()) for number, reference in _known.items()]
        for number in [number for number, x in found if x is None]:
            _known.pop(number, None)
    return {int(x.ctypes.data): x for _, x in found if x is not None}


def element_map(x: EmulatedArray, low: int, high: int) -> np.ndarray[Any, Any]:
    """Return u8, 1 for each byte from `low` to `high` that belongs to an element."""
    if x.size * x.itemsize == high - low:
        return np.ones(high - low, np.uint8)
    bytes_ = np.zeros(high - low, np.uint8)
    start = int(x.ctypes.data) - low
    shape, strides = (*x.shape, x.itemsize), (*x.strides, 1)
    np.lib.stride_tricks.as_strided(bytes_[start:], shape, strides)[...] = 1
    return bytes_
