"""Random integers from Philox words: each draw is addressed by (seed, stream, step), so host and device agree."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from refnum import philox
from refnum.arrays import empty

from . import device

Array = Any
KEPT = 1 << 18
"""Words of the largest draw that is kept: the variants of an operation are asked the same draws one after the other."""


@functools.lru_cache(maxsize=1024)
def _kept(count: int, key: philox.Key) -> np.ndarray:
    """Return words on the host, which cannot be written: the next draw under the same key gives them again."""
    words = philox.random_words(count, key.seed, stream=key.stream, step=key.step)
    words.flags.writeable = False
    return words


class Draw:
    """A source of random integers for one input of one case (N13).

    Each call uses the next step, so the integers depend on the key and the order of calls alone.

    Args:
        seed: the 64-bit key.
        stream: the number of the input.
        like: an array; results are in its library and on its device. None: NumPy.
    """

    def __init__(self, seed: int, stream: int = 0, like: Array = None) -> None:
        self.seed, self.stream, self.like, self._step = seed, stream, like, 0

    def words(self, *shape: int) -> Array:
        """Uniform u32 of a shape."""
        if device.serves(self.like):
            return device.words(shape, self._take(1), self.like)
        count, key = int(np.prod(shape, dtype=np.int64)) if shape else 1, self._take(1)
        if self.like is None and count <= KEPT:
            return _kept(count, key).reshape(shape)
        drawn = philox.random_words(count, key.seed, stream=key.stream, step=key.step, like=self.like)
        return drawn.reshape(shape)

    def _take(self, steps: int) -> philox.Key:
        """Return the key of the next draw and leave so many steps behind."""
        key = philox.Key(self.seed, self.stream, self._step)
        self._step += steps
        return key

    def below(self, bound: int, *shape: int) -> Array:
        """Uniform u32 in [0, bound), bound <= 2**32: the high half of word * bound."""
        if device.serves(self.like):
            return device.below(bound, shape, self._take(1), self.like)
        wide = self.words(*shape).astype(np.uint64) * np.uint64(bound)
        return (wide >> np.uint64(32)).astype(np.uint32)

    def between(self, low: int, high: int, *shape: int) -> Array:
        """Uniform i32 in [low, high], both included."""
        if device.serves(self.like):
            return device.between(low, high, shape, self._take(1), self.like)
        return self.below(high - low + 1, *shape).astype(np.int32) + np.int32(low)

    def chance(self, in_256: int, *shape: int) -> Array:
        """Bool, true with probability in_256 / 256."""
        if device.serves(self.like):
            return device.chance(in_256, shape, self._take(1), self.like)
        return self.below(256, *shape) < np.uint32(in_256)

    def pick(self, table: Array, *shape: int) -> Array:
        """Uniform choice from a host table of numbers."""
        table = self.table(table)
        return np.take(table, self.below(table.size, *shape))

    def table(self, values: Any, dtype: Any = None) -> Array:
        """A host table as an array where the draws live."""
        values = np.asarray(values, dtype)
        return values if self.like is None else np.asarray(values, like=self.like)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Zeros where the draws live."""
        return np.zeros(shape, dtype) if self.like is None else np.zeros(shape, dtype, like=self.like)

    def arange(self, count: int) -> Array:
        """0 .. count-1 as i32 where the draws live."""
        return self.table(np.arange(count, dtype=np.int32))

    def bell(self, *shape: int) -> Array:
        """Roughly normal i32 of standard deviation 2**16 (2 % high): a sum of eight uniform 16-bit halves.

        Irwin-Hall with n = 8 has standard deviation sqrt(8 / 12) * 2**16; times 5/4, rounded down, it is
        1.02 * 2**16, and |value| < 2**19. Whole numbers only, so every machine gives the same.
        """
        if device.serves(self.like):
            return device.bell(shape, self._take(4), self.like)
        total = np.int32(0)
        for half in (self.words(*shape) for _ in range(4)):
            total = total + (half & np.uint32(0xFFFF)).astype(np.int32) + (half >> np.uint32(16)).astype(np.int32)
        centred = total - np.int32(4 * 65535)
        return (centred * np.int32(5)) >> np.int32(2)


def repeated(values: Array, columns: int, rows: int = 1) -> Array:
    """Each item of a matrix as a block of rows x columns equal ones: [M, N] -> [M * rows, N * columns].

    One copy: np.repeat along an axis costs CuPy a launch for every item of that axis.
    """
    height, width = values.shape
    out = empty((height * rows, width * columns), values.dtype, values)
    out.reshape(height, rows, width, columns)[...] = values[:, None, :, None]
    return out
