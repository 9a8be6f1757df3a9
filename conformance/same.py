"""Whether two arrays hold the same bytes, asked of nothing that a kernel in this process can have replaced in NumPy."""

from __future__ import annotations

import numpy as np

_bytes, _shape, _dtype = np.ndarray.tobytes, np.ndarray.shape.__get__, np.ndarray.dtype.__get__


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether shapes, sizes of an element and all bytes are equal."""
    if _shape(left) != _shape(right) or _dtype(left).itemsize != _dtype(right).itemsize:
        return False
    return _bytes(left) == _bytes(right)
