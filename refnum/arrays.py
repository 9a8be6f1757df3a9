"""Input checks and bit views shared by every operation (clause N0). NumPy and CuPy arrays alike."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from .arguments import require_choice
from .environment import check_host
from .errors import ArgumentError, DtypeError, ScaleError, ShapeError, shown

Array = Any
"""A NumPy array, or any array that answers NEP 13 and NEP 18 the way CuPy's does."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
OUTPUTS: dict[str, np.dtype[Any]] = {"float32": np.dtype(np.float32), "bfloat16": BFLOAT16}
"""Dtypes of what the dequantisers give."""
BLOCK = 32
"""Elements of an MX block."""
TILE = 128
"""Elements along K of an FP8 tile."""
CHUNK = 1 << 17
"""Elements a host pass works on at once: its temporaries stay in the cache, and calling NumPy costs little of it."""

np.empty(1 << 24, np.uint8)
# glibc gives freed memory back to the kernel until it has seen one block of this size freed; the page faults that
# follow make the temporaries of a small call three times as dear. The array is never touched, so it costs nothing.

_OTHERWISE = (np.ma.MaskedArray, np.matrix)
GIVE = "give numbers, or an array of NumPy, CuPy, torch or another library that has DLPack or __array__"
_FLOAT_INPUTS = "float32, bfloat16 (ml_dtypes or its uint16 bits), float16"


def require_array(name: str, x: Array) -> None:
    """Raise DtypeError unless `x` is an array; one that reads its items otherwise (masked, a np.matrix) is none."""
    array = isinstance(getattr(x, "dtype", None), np.dtype) and hasattr(x, "ndim") and hasattr(x, "__array_function__")
    if not array or isinstance(x, _OTHERWISE):
        raise DtypeError(f"{name} is a {type(x).__name__}; {GIVE}")


def require_matrix(name: str, x: Array, multiple: int = 1) -> None:
    """Raise unless `x` is a 2-D array whose last axis is a multiple of `multiple`."""
    require_array(name, x)
    if x.ndim != 2:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; allowed is [M, K], two axes: reshape it")
    if x.shape[1] % multiple:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; its last axis must be a multiple of {multiple}: pad it")


def require_codes(name: str, x: Array, multiple: int = 1) -> None:
    """Raise unless `x` is a uint8 matrix whose last axis is a multiple of `multiple`."""
    require_matrix(name, x, multiple)
    if x.dtype != np.uint8:
        raise DtypeError(f"{name} has dtype {x.dtype}; allowed is uint8 (codes, not values)")


def require_scales(scales: Array, shape: tuple[int, int], what: str) -> None:
    """Raise unless `scales` is the uint8 array of E8M0 bytes of that shape."""
    require_array("scales", scales)
    if scales.dtype != np.uint8:
        hint = "; convert float32 scales with refnum.layouts first" if scales.dtype.kind == "f" else ""
        raise ScaleError(f"scales has dtype {scales.dtype}; allowed is uint8 (E8M0 bytes){hint}")
    if tuple(scales.shape) != shape:
        raise ShapeError(f"scales has shape {tuple(scales.shape)}; {what} needs {shape}")


def require_float(name: str, x: Array, multiple: int = 1) -> None:
    """Raise unless `x` is a [M, K] matrix of a float dtype that widens exactly to float32."""
    require_matrix(name, x, multiple)
    require_float_dtype(name, x)


def require_float_dtype(name: str, x: Array) -> None:
    """Raise DtypeError unless `x` is an array, of any shape, whose dtype widens exactly to float32."""
    require_array(name, x)
    if x.dtype not in (np.float32, np.float16, np.uint16, BFLOAT16):
        hint = "; round it to float32 yourself, once" if x.dtype == np.float64 else ""
        raise DtypeError(f"{name} has dtype {x.dtype}; allowed are {_FLOAT_INPUTS}{hint}")


def require_below(name: str, x: Array, bits: int, what: str) -> None:
    """Raise ArgumentError where an array of unsigned integers holds 2**bits or more; free where its dtype cannot."""
    if x.dtype.itemsize * 8 > bits and x.size and int(x.max()) >= 1 << bits:
        raise ArgumentError(f"{name} holds {int(x.max())}; {what} are below {1 << bits}")


def require_random(name: str, rbits: Array, x: Array, bits: int) -> None:
    """Raise unless `rbits` holds unsigned integers below 2**bits in the shape of `x`."""
    require_array(name, rbits)
    if rbits.shape != x.shape:
        raise ShapeError(f"{name} has shape {tuple(rbits.shape)}; allowed is that of x, {tuple(x.shape)}")
    if rbits.dtype.kind != "u":
        raise DtypeError(f"{name} has dtype {rbits.dtype}; allowed are unsigned integers")
    require_below(name, rbits, bits, f"random bits, {bits} bits an element,")


def output_dtype(dtype: object) -> str:
    """Return the name of a dequantiser's dtype: "float32" or "bfloat16", or the dtype of that name, native order."""
    if isinstance(dtype, str):
        require_choice("dtype", dtype, tuple(OUTPUTS))
        return dtype
    named = isinstance(dtype, (np.dtype, type))
    for name, one in OUTPUTS.items():
        if named and (dtype is one.type or dtype == one):
            return name
    raise ArgumentError(f"dtype={shown(dtype)} is not one of {', '.join(map(repr, OUTPUTS))}")


def is_host(x: Array) -> bool:
    """Whether `x` lives in NumPy on the host."""
    return isinstance(x, np.ndarray)


def row_chunks(x: Array, elements_per_row: int, multiple: int = 1) -> Iterator[slice]:
    """Yield row ranges of cache size on the host, one range of all rows on a device.

    Each range but the last is a multiple of `multiple` rows.
    """
    return chunks(x.shape[0], elements_per_row, x, multiple)


def chunks(count: int, elements_each: int, like: Array, multiple: int = 1) -> Iterator[slice]:
    """Yield ranges of `count` things of so many elements: of cache size on the host, one of all on a device.

    Each range but the last is a multiple of `multiple` things.
    """
    step = max(1, CHUNK // max(1, elements_each)) if is_host(like) else count
    step = max(multiple, step // multiple * multiple)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def float32_bits(x: Array) -> Array:
    """Widen float32, bfloat16, uint16 (bfloat16 bits) or float16 to float32 bits: exact, integers only."""
    if x.dtype == np.float32:
        return x.view(np.uint32)
    if x.dtype == np.float16:
        return np.take(table_like(_half_to_float32_bits, x), x.view(np.uint16))
    return x.view(np.uint16).astype(np.uint32) << np.uint32(16)


@functools.cache
def _half_to_float32_bits() -> np.ndarray:
    """float32 bits of all 65,536 binary16 patterns; a NaN keeps its sign and payload."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    sign, field, fraction = (bits >> 15) << 31, (bits >> 10) & 0x1F, bits & 0x3FF
    lead = np.zeros_like(bits)  # floor(log2(fraction)) of the subnormals, by counting the bits above
    for k in range(1, 10):
        lead += fraction >> k != 0
    subnormal = ((lead + 103) << 23) | (((fraction << (10 - lead)) & 0x3FF) << 13)
    normal = ((field + 112) << 23) | (fraction << 13)
    special = np.uint32(0x7F800000) | (fraction << 13)
    magnitude = np.where(field == 0, np.where(fraction == 0, 0, subnormal), np.where(field == 31, special, normal))
    return (sign | magnitude).astype(np.uint32)


_DEVICE_TABLES: dict[tuple[Any, ...], Array] = {}


def table_like(make: Callable[..., np.ndarray], like: Array, *key: Any) -> Array:
    """Return the table `make(*key)` in the library and on the device of `like`; `make` must cache."""
    table = make(*key)
    if is_host(like):
        return table
    device = getattr(like, "device", None)
    slot = (make, key, type(like), getattr(device, "id", device))
    if slot not in _DEVICE_TABLES:
        _DEVICE_TABLES[slot] = np.asarray(table, like=like)
    return _DEVICE_TABLES[slot]


def empty(shape: tuple[int, ...], dtype: Any, like: Array) -> Array:
    """np.empty in the library of `like`."""
    return np.empty(shape, dtype=dtype, like=like)


def contiguous(x: Array) -> Array:
    """`x` in C order; a copy only when needed."""
    return np.ascontiguousarray(x, like=x)


def own_bits(x: Array) -> Array:
    """Bits of a float input: bfloat16 as u16, the upper half of its float32 bits; others as float32 bits u32."""
    return x.view(np.uint16) if x.dtype in (np.uint16, BFLOAT16) else float32_bits(x)


def widen(bits: Array) -> Array:
    """Float32 bits (u32) of `own_bits`."""
    return bits.astype(np.uint32) << np.uint32(16) if bits.dtype == np.uint16 else bits


def group_amax(bits: Array, size: int) -> Array:
    """Largest magnitude of each run of `size` items of `own_bits`, as float32 bits; a NaN's pattern is the largest."""
    if bits.dtype == np.uint16:
        return group_max((bits & np.uint16(0x7FFF)).astype(np.uint32), size) << np.uint32(16)
    return group_max(bits & np.uint32(0x7FFFFFFF), size)


def grouped(x: Array, size: int) -> Array:
    """Runs of `size` items along the last axis: [..., K] -> [..., K/size, size], K a multiple of size."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def group_max(x: Array, size: int) -> Array:
    """Maximum of each run of `size` items along the last axis: [..., K] -> [..., K/size], K a multiple of size."""
    if not is_host(x) or not x.size:
        return grouped(x, size).max(axis=-1)
    starts = np.arange(0, x.size, size)  # twice as fast as max(axis=-1) over runs this short
    return np.maximum.reduceat(x.reshape(-1), starts).reshape(*x.shape[:-1], x.shape[-1] // size)


def spread(x: Array, count: int, axis: int) -> Array:
    """Each item of an axis `count` times in a row, as np.repeat gives it.

    One copy on a device, where CuPy's repeat along an axis takes a launch for each of its items.
    """
    if is_host(x):
        return np.repeat(x, count, axis=axis)  # on the host a third of the time
    axis %= x.ndim
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    wide = np.broadcast_to(x.reshape(*before, 1, *after), (*before, count, *after))
    return wide.reshape(*before[:-1], before[-1] * count, *after)


def pack_nibbles(codes: Array) -> Array:
    """Pack u8 [..., K] four-bit codes two a byte, even element in the low nibble -> u8 [..., K/2]."""
    pairs = contiguous(codes).view("<u2")
    return (pairs | (pairs >> np.uint16(4))).astype(np.uint8)


def unpack_nibbles(packed: Array) -> Array:
    """Inverse of `pack_nibbles`: u8 [..., K/2] -> u8 [..., K]."""
    pairs = contiguous(packed).astype("<u2")
    return ((pairs | (pairs << np.uint16(4))) & np.uint16(0x0F0F)).view(np.uint8)


check_host()
