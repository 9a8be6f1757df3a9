"""Laying blocks out as the matrices that operations take. Index arithmetic only."""

from __future__ import annotations

import numpy as np


def rotate(blocks: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Move lane 0 of each block to its own lane: [n, B], lanes i [n] -> [n, B], the rest in cyclic order."""
    width = blocks.shape[1]
    index = (np.arange(width)[None, :] - lanes[:, None]) % width
    return np.take_along_axis(blocks, index, axis=1)


def lanes(count: int, width: int) -> np.ndarray:
    """A lane for each of `count` blocks that meets every lane, out of step with powers of two: i64 [count]."""
    number = np.arange(count)
    return (number + number // width) % width


def matrix(blocks: np.ndarray, columns: int) -> np.ndarray:
    """Lay blocks [n, B] out as rows of `columns` elements; the last row is filled up with zeros."""
    width = blocks.shape[1]
    assert columns % width == 0
    per_row = columns // width
    rows = -(-blocks.shape[0] // per_row)
    out = np.zeros((rows * per_row, width), blocks.dtype)
    out[: blocks.shape[0]] = blocks
    return out.reshape(rows, columns)


def fill(values: np.ndarray, pins: np.ndarray, width: int) -> np.ndarray:
    """Blocks of one pin and width-1 values: values [s, n], pins [s] -> [s * ceil(n/(width-1)), width].

    The pin stands in lane 0 (see `rotate`); missing values are zeros.
    """
    count = -(-values.shape[1] // (width - 1))
    out = np.zeros((values.shape[0], count, width), values.dtype)
    padded = np.zeros((values.shape[0], count * (width - 1)), values.dtype)
    padded[:, : values.shape[1]] = values
    out[:, :, 1:] = padded.reshape(values.shape[0], count, width - 1)
    out[:, :, 0] = pins[:, None]
    return out.reshape(-1, width)
