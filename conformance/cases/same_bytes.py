"""Whether two arrays hold the same bytes, asked of nothing that a kernel in this process can have replaced in NumPy."""

from __future__ import annotations

import numpy as np

CHUNK = 1 << 16
"""Bytes that are compared at once: few enough for the cache, and for an allocator not to ask the system for each."""
_names: dict[np.dtype, str] = {}
_array, _byte = np.ndarray, np.dtype("u1")
_bytes, _shape, _dtype = np.ndarray.tobytes, np.ndarray.shape.__get__, np.ndarray.dtype.__get__
_size, _flags = np.ndarray.nbytes.__get__, np.ndarray.flags.__get__
_view, _reshape = np.ndarray.view, np.ndarray.reshape


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether shapes, sizes of an element and all bytes are equal."""
    if _shape(left) != _shape(right) or _dtype(left).itemsize != _dtype(right).itemsize:
        return False
    if _size(left) <= CHUNK:
        return _bytes(left) == _bytes(right)
    one, other = _flat(left).data, _flat(right).data
    return all(  # a bytearray is compared with the memory itself, at once
        bytearray(one[start : start + CHUNK]) == other[start : start + CHUNK] for start in range(0, _size(left), CHUNK)
    )


def _flat(array: np.ndarray) -> np.ndarray:
    """Return an array's bytes in its order, as NumPy's own class; only what is not contiguous is copied."""
    plain = _view(array, _array)
    whole = plain if _flags(plain).c_contiguous else plain.copy(order="C")
    return _view(_reshape(whole, -1), _byte)


def name_of(array: np.ndarray) -> str:
    """Return the name of an array's dtype, which NumPy puts together anew each time."""
    dtype = _dtype(array) if isinstance(array, _array) else array.dtype  # of an array of a device
    if dtype not in _names:
        _names[dtype] = str(dtype.name)
    return _names[dtype]
