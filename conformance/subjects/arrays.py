"""Arrays of NumPy, CuPy, torch and JAX behind one small set of verbs: what the watch over a call needs."""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import Any

import numpy as np

from refnum.errors import ArgumentError

LIBRARIES = ("numpy", "cupy", "torch", "torch-cuda", "jax")
FAR, ROW_STEP = 1 << 32, 64
"""Elements that rows far apart span at least, and of which the distance of two is a multiple."""
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""Linux's flag for memory that is not counted before it is touched; Python names it from 3.13 on."""
IMMUTABLE = frozenset({"jax"})
"""Libraries whose arrays nobody can write to: they lie where the library puts them, on its default device."""


def to_library(array: np.ndarray, library: str) -> Any:
    """Return a NumPy array as an array of a library; CuPy has no bfloat16 and gets its uint16 bits.

    NumPy gives the array itself, torch shares its memory, the others copy it to their device.
    """
    if library == "numpy":
        return array
    if library == "cupy":
        import cupy

        return cupy.asarray(array.view(np.uint16) if array.dtype.name == "bfloat16" else array)
    if library in ("torch", "torch-cuda"):
        import torch

        if array.dtype.name == "bfloat16":
            tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(array)
        return tensor.cuda() if library == "torch-cuda" else tensor
    if library == "jax":
        import jax

        return jax.device_put(np.array(array, copy=True))
    raise ArgumentError(f"arrays={library!r} is not one of {', '.join(LIBRARIES)}.")


def to_numpy(array: Any) -> np.ndarray:
    """Return any library's array as NumPy, bits kept; sub-byte and 8-bit torch dtypes come back as uint8.

    TypeError for what is no array, and for one whose bytes are not those of numbers as this machine stores them.
    """
    found = _to_numpy(array)
    if not_numbers(found.dtype):
        raise TypeError(f"a result is an array of {found.dtype}, {not_numbers(found.dtype)}")
    return found


def not_numbers(dtype: np.dtype) -> str:
    """Return why the bytes of a dtype are not those of numbers here (text, objects, records, dates, swapped bytes)."""
    if dtype.hasobject or dtype.kind in "SUMm" or dtype.type is np.void:
        return "not of numbers"
    return "" if dtype.isnative else "whose bytes are in another order than this machine's"


def _to_numpy(array: Any) -> np.ndarray:
    if isinstance(array, np.ndarray):
        return array
    if type(array).__module__.partition(".")[0] == "torch":
        import torch

        array = array.detach().cpu().contiguous()
        if array.dtype == torch.bfloat16:
            import ml_dtypes

            return array.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        small = array.dtype.itemsize == 1 and array.dtype not in (torch.int8, torch.uint8, torch.bool)
        return array.view(torch.uint8).numpy() if small else array.numpy()
    if hasattr(array, "__cuda_array_interface__") and hasattr(array, "get"):
        return array.get()
    if hasattr(array, "__array__"):  # before DLPack, which has no bfloat16 for NumPy
        return np.asarray(array)
    if hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    raise TypeError(f"a result is {type(array).__name__}, not an array")


def overwrite(target: Any, data: np.ndarray, library: str) -> None:
    """Write other data of the same shape and dtype into an array of a library, in place; not those of `IMMUTABLE`."""
    if library == "numpy":
        np.copyto(target.reshape(-1).view(np.uint8), np.ascontiguousarray(data).reshape(-1).view(np.uint8))
    elif library == "cupy":
        target[...] = to_library(data, library)
    elif library == "torch" and target.is_contiguous():  # by one thread: several wait for each other on a busy machine
        np.copyto(to_numpy(target), data)
    else:  # by `data`: as other kernels that write to a tensor, it counts no new version of it
        target.data.copy_(to_library(data, library))


def share_memory(one: Any, other: Any) -> bool:
    """Whether two arrays may overlap in memory; arrays of different kinds, and empty ones, do not."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return bool(one.size and other.size and np.may_share_memory(one, other))
    kinds = {type(array).__module__.partition(".")[0] for array in (one, other)}
    if kinds == {"cupy"}:
        import cupy

        return bool(one.size and other.size and cupy.may_share_memory(one, other))
    if kinds == {"torch"} and one.numel() and other.numel() and one.device == other.device:
        (begin, end), (first, last) = _reach(one), _reach(other)
        return begin < last and first < end
    return False


def _reach(tensor: Any) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and behind its last one."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((side - 1) * step for side, step in steps)
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def is_contiguous(array: Any, any_order: bool = False) -> bool:
    """Whether an array's elements lie one behind the other in row-major order, or with their axes in any order."""
    if not hasattr(array, "stride") and not hasattr(array, "strides"):
        return True
    steps = array.stride() if hasattr(array, "stride") else [step // array.itemsize for step in array.strides]
    axes = [(step, side) for step, side in zip(steps, array.shape, strict=True) if side != 1]
    place = 1
    for step, side in sorted(axes) if any_order else reversed(axes):
        if step != place:
            return False
        place *= side
    return True


def same_place(one: Any, other: Any) -> bool:
    """Whether two arrays are one: the same memory, shape and strides."""
    if type(one) is not type(other) or tuple(one.shape) != tuple(other.shape):
        return False
    if hasattr(one, "data_ptr"):
        return bool(one.data_ptr() == other.data_ptr() and one.stride() == other.stride())
    name = "__array_interface__" if isinstance(one, np.ndarray) else "__cuda_array_interface__"
    places = [getattr(array, name, {}).get("data", (array,))[0] for array in (one, other)]
    return bool(places[0] == places[1] and one.strides == other.strides)


def with_gaps(array: np.ndarray, library: str, poison: int) -> Any:
    """Return the data as a view with a gap after every element of the last axis; the gaps hold poison.

    NumPy and CuPy only: None for the other libraries. An array without axes has no place for a gap.
    """
    if library not in ("numpy", "cupy"):
        return None
    if not array.ndim:
        return to_library(array.copy(), library)
    gapped = (*array.shape[:-1], 2 * array.shape[-1] * array.itemsize)
    wide = to_library(np.full(gapped, poison, np.uint8).view(array.dtype), library)
    view = wide[..., ::2]
    view[...] = to_library(array, library)
    return view


def with_rows_apart(array: np.ndarray, library: str, poison: int, gap: int) -> Any:
    """Return the data as a view whose rows, the last axis, have a gap of `gap` elements behind each; it holds poison.

    The elements of a row stay neighbours. An array of one axis has no rows that could lie apart.
    """
    if array.ndim < 2:
        return to_library(array.copy(), library)
    wide = np.full((*array.shape[:-1], (array.shape[-1] + gap) * array.itemsize), poison, np.uint8).view(array.dtype)
    wide[..., : array.shape[-1]] = array
    return to_library(wide, library)[..., : array.shape[-1]]


def with_rows_far_apart(array: np.ndarray) -> np.ndarray:
    """Return the data as a view of which the last row begins `FAR` elements behind the first one, or further.

    Only the pages of the rows are ever touched. An array of one row has none that could lie apart. Raises OSError where
    a process may not have so many addresses.
    """
    rows = math.prod(array.shape[:-1])
    if array.ndim < 2 or rows < 2 or not array.size:
        return array.copy()
    step = -(-FAR // (rows - 1) // ROW_STEP) * ROW_STEP
    size = ((rows - 1) * step + array.shape[-1]) * array.itemsize
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    lines = np.ndarray((rows, array.shape[-1]), array.dtype, room, strides=(step * array.itemsize, array.itemsize))
    lines[...] = array.reshape(lines.shape)
    return lines.reshape(array.shape) if array.ndim == 2 else _stacked(lines, array.shape)


def _stacked(lines: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a view of rows, which lie evenly apart, as an array of more axes."""
    strides, step = [lines.strides[1]], lines.strides[0]
    for side in reversed(shape[1:-1]):
        strides.insert(0, step)
        step *= side
    return np.lib.stride_tricks.as_strided(lines, shape, (step, *strides))


def at_offset(array: np.ndarray, library: str, poison: int) -> Any:
    """Return the data as a contiguous view that begins one element into an allocation; the rest holds poison."""
    wide = np.full((array.size + 2) * array.itemsize, poison, np.uint8).view(array.dtype)
    wide[1 : 1 + array.size] = array.reshape(-1)
    return to_library(wide, library)[1 : 1 + array.size].reshape(array.shape)


def at_end(array: np.ndarray, library: str) -> Any:
    """Return the data as a contiguous array of the host of which the last byte is the last that may be read."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(pages.ctypes.data + size), ctypes.c_size_t(mmap.PAGESIZE), 0)
    placed = np.ndarray(array.shape, array.dtype, pages.data, size - array.nbytes)
    placed[...] = array
    return to_library(placed, library)


def alive(library: str) -> bool:
    """Whether the library's device still answers; a CUDA context is dead for good after an illegal access."""
    if library not in ("cupy", "torch-cuda", "jax"):
        return True
    try:
        return bool(to_numpy(to_library(np.ones(1, np.uint8), library))[0] == 1)
    except Exception:  # whatever it raises, it does not answer
        return False


def release(library: str) -> None:
    """Give back the device memory that a library keeps for later: other processes may share the device."""
    if library == "cupy":
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
    elif library == "torch-cuda":
        import torch

        torch.cuda.empty_cache()


class Guarded:
    """An output array of a library between two guard zones, everything filled with poison."""

    ZONE = 256

    def __init__(self, like: np.ndarray, library: str, poison: int) -> None:
        self.poison = poison
        self.zone = to_library(np.full(like.nbytes + 2 * self.ZONE, poison, np.uint8), library)
        dtype = np.uint16 if library == "cupy" and like.dtype.name == "bfloat16" else like.dtype
        self.array = self.zone[self.ZONE : self.ZONE + like.nbytes].view(dtype).reshape(like.shape)

    def poisoned(self) -> None:
        """Fill the array with poison again."""
        self.zone[self.ZONE : self.zone.size - self.ZONE] = self.poison

    def trespass(self) -> str:
        """Return `before` or `after` where a guard zone was written, else an empty string."""
        zone = to_numpy(self.zone)
        if (zone[: self.ZONE] != self.poison).any():
            return "before"
        return "after" if (zone[zone.size - self.ZONE :] != self.poison).any() else ""
