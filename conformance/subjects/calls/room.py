"""Memory for the arguments of many calls in a row, amid poison."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .call import POISONS
from .forms import ALIGN, SLACK, base_shape, view_in

GAPPED = ("row gap", "odd rows", "element gap", "every other row", "broadcast columns of whole rows")
"""Storages that hold more than their elements."""


class Room:
    """Memory for one argument of the calls, amid poison."""

    def __init__(self, most: int) -> None:
        """Make room for arrays of so many bytes."""
        self.most = most
        self.flat = np.empty(most + 2 * ALIGN + 2 * SLACK, np.uint8)
        self.begin = SLACK + (-self.flat.__array_interface__["data"][0] - SLACK) % ALIGN
        self.bytes = self.flat[:0].data

    def array(
        self, shape: tuple[int, ...], dtype: np.dtype, storage: str, address: int, filled: bool = False
    ) -> tuple[Any, Any]:
        """Return an array in a storage, and the array of which it is a part, at an address as in `forms.Placed`.

        `bytes` are then those in and around it as they are; a `bytearray` of them is a copy.

        filled: whether every element is written next, so that only what is no element need be poison.
        """
        item = dtype.itemsize
        whole_shape = shape if storage == "contiguous" else base_shape(shape, storage, item)
        start = self.begin + address // item * item
        end = start + math.prod(whole_shape) * item
        around = self.flat[start - SLACK : end + SLACK]
        if filled and storage not in GAPPED:
            around[:SLACK] = around[-SLACK:] = POISONS[0]
        else:
            around[:] = POISONS[0]
        self.bytes = around.data
        whole = around[SLACK:-SLACK].view(dtype).reshape(whole_shape)
        return (whole if storage == "contiguous" else view_in(whole, storage, shape)), whole


def rooms_for(arrays: Mapping[str, np.ndarray], before: Mapping[str, Room]) -> dict[str, Room]:
    """Return room for each array or a part of it, in any storage and any dtype: that of before where it is as large."""
    rooms = {}
    for name, array in arrays.items():
        most = 2 * 8 * array.size + 64 * len(array)
        rooms[name] = before[name] if name in before and before[name].most >= most else Room(most)
    return rooms
