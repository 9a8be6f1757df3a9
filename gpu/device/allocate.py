"""New arrays for the results of planned calls: the way to make them is chosen once for each plan."""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import arrays
from .arrays import Library

Wanted = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]
"""Shapes and dtypes."""
Fresh = Callable[[], tuple[tuple[Any, ...], tuple[int, ...]]]
"""A function that makes new arrays on the current device and stream, and returns the arrays and their addresses."""

TOGETHER = 1 << 20
"""Bytes up to which the results of a call on CuPy arrays share one allocation. Each result keeps all of it alive, so
large results do not share. torch's tensors never do: the results of an operator must not share storage."""
PAGE = 512
"""The alignment in bytes of each result in a shared allocation; CuPy aligns its own arrays so."""


def prepare(library: Library, wanted: Wanted, device: int) -> Fresh:
    """Return a function that makes arrays of a library; call the library's `stream`, which checks the device, first."""
    way = WAYS.get(library.name)
    return (way and way(wanted, device)) or _plain(library, wanted, device)


def _plain(library: Library, wanted: Wanted, device: int) -> Fresh:
    empty, address = library.empty, library.address

    def fresh() -> tuple[tuple[Any, ...], tuple[int, ...]]:
        made = [empty(shape, dtype, device) for shape, dtype in wanted]
        return tuple(made), tuple([address(x) for x in made])

    return fresh


def places(wanted: Wanted) -> tuple[list[int], int]:
    """Return the offsets of arrays in one allocation, and its size."""
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in wanted]
    starts = [0, *itertools.accumulate(-(-size // PAGE) * PAGE for size in sizes)]
    return starts[:-1], starts[-1]


def _cupy(wanted: Wanted, device: int) -> Fresh | None:
    starts, size = places(wanted)
    if any(0 in shape for shape, _ in wanted):
        return None
    make, alloc = _cupy_maker(), arrays.cupy_module().cuda.alloc
    kinds = [(shape, dtype, start) for (shape, dtype), start in zip(wanted, starts, strict=True)]

    def together() -> tuple[tuple[Any, ...], tuple[int, ...]]:
        memory = alloc(size)
        place = memory.ptr
        made = [make(shape, dtype, memory + start) for shape, dtype, start in kinds]
        return tuple(made), tuple([place + start for start in starts])

    def apart() -> tuple[tuple[Any, ...], tuple[int, ...]]:
        made, addresses = [], []
        for (shape, dtype), nbytes in sizes:
            memory = alloc(nbytes)
            made.append(make(shape, dtype, memory))
            addresses.append(memory.ptr)
        return tuple(made), tuple(addresses)

    sizes = [((shape, dtype), math.prod(shape) * dtype.itemsize) for shape, dtype in wanted]
    return together if len(wanted) > 1 and size <= TOGETHER else apart


@functools.cache
def _cupy_maker() -> Callable[..., Any]:
    """Return a function that makes an array of (shape, dtype, memory): `cupy.ndarray`, or its two internal steps.

    The steps save 0.3 us for each array. They are internal to CuPy, so their result is compared before they are used.
    """
    cupy = arrays.cupy_module()
    kind = cupy.ndarray
    new, fill = kind.__base__.__new__, getattr(kind.__base__, "_init", None)

    def make(shape: tuple[int, ...], dtype: np.dtype[Any], memory: Any) -> Any:
        x = new(kind)
        fill(x, shape, dtype, memory)  # type: ignore[misc]
        return x

    def facts(x: Any) -> tuple[Any, ...]:
        return type(x), x.shape, x.strides, x.dtype, x.data.ptr, x.size, x.nbytes, x.base, str(x.flags)

    memory, shape, dtype = cupy.cuda.alloc(PAGE), (3, 5), np.dtype(np.float32)
    try:
        same = facts(make(shape, dtype, memory)) == facts(kind(shape, dtype, memory))
    except (TypeError, AttributeError):
        same = False
    return make if same else kind


def _torch(wanted: Wanted, device: int) -> Fresh | None:
    ways = _torch_short_ways()
    if ways is None:
        return None
    current, empty = ways
    dtypes = arrays.torch_dtypes()[1]
    makes = [functools.partial(empty, shape, _strides(shape), dtypes[dtype]) for shape, dtype in wanted]
    plain = _plain(arrays.TORCH, wanted, device)

    def fresh() -> tuple[tuple[Any, ...], tuple[int, ...]]:
        if current() != device:
            return plain()
        made = [make() for make in makes]
        return tuple(made), tuple([x.data_ptr() for x in made])

    return fresh


@functools.cache
def _torch_short_ways() -> tuple[Callable[[], int], Callable[..., Any]] | None:
    """Return torch's internal functions for the current device and for an empty tensor on it, None without them.

    Compiled graphs call these functions; `torch.empty` takes more than twice the time.
    """
    torch = sys.modules["torch"]
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    device, empty = getattr(torch._C, "_cuda_getDevice", None), getattr(guards, "_empty_strided_cuda", None)
    return None if device is None or empty is None else (device, empty)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


WAYS: dict[str, Callable[[Wanted, int], Fresh | None]] = {"cupy": _cupy, "torch": _torch}
"""Library -> its own way to make results; None from it means that the plain way must be used."""
