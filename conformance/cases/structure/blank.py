"""Inputs of which whole tiles, whole rows, or all but one element are zero; and ordinary ones with one NaN or Inf.

A kernel may skip what is zero, or look for special elements in some of its tiles alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..draw.bits import as_float, float_bits
from . import values
from .special import ELEMENTS
from .uniform import elements

OPERANDS = (*ELEMENTS, "packed", "a", "b")
"""Inputs that hold elements."""
ENDS = {"NaN last": "NaN", "Inf last": "Inf"}
"""Level -> what the last element of the first input, or the last scale, is that can be so; all else is ordinary."""
LEVELS = ("tiles", "last alone", "rows", "NaN last", "first alone", "last block alone", "Inf last")
"""What is zero: tiles of 128 columns, in turn; all but an end, or the last block of each row; whole blocks of rows."""
TALL, WIDE = 128, 128
"""Rows and columns of a tile."""


def blanked(
    operation: str, params: Mapping[str, Any], inputs: Mapping[str, np.ndarray], level: str
) -> dict[str, np.ndarray]:
    """Return inputs that are zero where a level of `LEVELS` says so, or end with a special element."""
    names = [name for name, array in inputs.items() if name in OPERANDS and array.size]
    if level in ENDS:
        for name in (*names[:1], *(name for name in ("scales",) if name in inputs)):
            pattern = elements(operation, params, name, inputs[name]).get(ENDS[level])
            if pattern is not None:
                return {**inputs, name: _ended(inputs[name], pattern)}
        return dict(inputs)
    return {**inputs, **{name: _zeroed(name, inputs[name], level) for name in names}}


def _ended(array: np.ndarray, pattern: int) -> np.ndarray:
    """Return an array whose last element is another one."""
    bits = float_bits(array).copy()
    bits.reshape(-1)[-1] = pattern
    return bits if array.dtype.kind == "u" else as_float(bits, values.FORMATS[array.dtype.name])


def _zeroed(name: str, array: np.ndarray, level: str) -> np.ndarray:
    """Return an array with zeros in the places of a level."""
    packed = name == "packed"
    bits = float_bits(array)
    matrix = bits.reshape(-1, bits.shape[-1])
    kept = _kept(matrix.shape[0], matrix.shape[1] * (1 + packed), level)
    if packed:
        matrix = np.where(kept[:, ::2], matrix & np.uint8(15), 0) | np.where(kept[:, 1::2], matrix & np.uint8(240), 0)
    else:
        matrix = np.where(kept, matrix, bits.dtype.type(0))
    found = matrix.astype(bits.dtype).reshape(array.shape)
    return found if array.dtype.kind == "u" else as_float(found, values.FORMATS[array.dtype.name])


def _kept(rows: int, columns: int, level: str) -> np.ndarray:
    """Return where the elements of a matrix stay, bool [rows, columns]."""
    row, column = np.arange(rows)[:, None], np.arange(columns)[None, :]
    tile = column // WIDE
    if level == "tiles":
        return ((row // TALL + tile) % 4 < 3) & ((row % 7 + tile) % 5 > 0)
    if level == "rows":
        return (row > 0) & (row < rows - 1) & (row // 32 % 3 != 1) & (column >= 0)
    if level == "last block alone":
        return (column >= (columns - 1) // 32 * 32) & (row >= 0)
    place = 0 if level == "first alone" else rows * columns - 1
    return np.asarray(row * columns + column == place)
