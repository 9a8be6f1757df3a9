"""Enumerations too large to be stored, made where they are judged, by integer arithmetic on the member's number."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refnum.arrays import Array
from refnum.formats import FP32

from ..case import Case
from ..draw.bits import as_float, input_format
from ..operation import run_golden
from ..recipes.random_bits import with_random_bits
from .part import Part

COLUMNS = 1024
INFINITY, QUIET = 0x7F800000, 0x7FC00000
EVERY = 1 << 32
"""All float32 patterns."""
LOW_HALVES = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
"""Low halves of float32 patterns that decide a tie, a sticky bit or a carry into the upper half."""


@dataclass(frozen=True)
class Cut:
    """Elements of one chunk and of one case of it. A case must hold whole rows."""

    chunk: int = 1 << 28
    part: int = 1 << 26


@dataclass(frozen=True)
class EveryPattern:
    """Every pattern of `params["input"]` once for each value of a parameter, patterns in order within a value.

    values: of `parameter`; (None,) without one. Member number: value's number * 2**32 (or 2**16) + pattern.
    most: fewer patterns than all, for a slice.
    """

    operation: str
    params: Mapping[str, Any]
    parameter: str = ""
    values: tuple[Any, ...] = (None,)
    profile: str = "HOPPER"
    cut: Cut = field(default_factory=Cut)
    most: int = EVERY

    @property
    def patterns(self) -> int:
        """Patterns under one value."""
        return min(self.most, 1 << input_format(self.params["input"]).bits)

    @property
    def size(self) -> int:
        """Members."""
        return self.patterns * len(self.values)

    @property
    def chunks(self) -> int:
        """Chunks; a value's patterns are whole chunks."""
        return self.size // self.cut.chunk

    def parts(self, chunk: int, like: Array) -> Iterator[Part]:
        """Patterns `first` and up under one value."""
        value, first = divmod(chunk * self.cut.chunk, self.patterns)
        params = {**self.params, **({self.parameter: self.values[value]} if self.parameter else {})}
        for start in range(first, first + self.cut.chunk, self.cut.part):
            bits = np.arange(self.cut.part, dtype=np.uint32, like=like) + np.uint32(start)
            x = as_float(bits.reshape(-1, COLUMNS), input_format(params["input"]))
            yield Part(Case(self.operation, self.profile, params, {"x": x}), self.cut.part)

    def title(self, chunk: int) -> str:
        """The value and the first pattern."""
        value, first = divmod(chunk * self.cut.chunk, self.patterns)
        named = f"{self.parameter}={self.values[value]}, " if self.parameter else ""
        return f"{named}patterns {first:#010x} and up"


@dataclass(frozen=True)
class Alone:
    """Every float32 magnitude, NaN included, as the only non-zero of a block of 32: 2**31 blocks, in order.

    The magnitude of block b stands in lane b mod 32. columns: of a row; 32 where a longer row's blocks would share a
    scale. Random bits, where the profile takes them, are seeded by the first block of a case.
    """

    operation: str
    profile: str
    params: Mapping[str, Any]
    cut: Cut = field(default_factory=Cut)
    size: int = 1 << 31
    columns: int = COLUMNS

    @property
    def chunks(self) -> int:
        """Chunks."""
        return self.size * 32 // self.cut.chunk

    def parts(self, chunk: int, like: Array) -> Iterator[Part]:
        """Blocks in order, 32 a row."""
        step = self.cut.part // 32
        first = chunk * (self.cut.chunk // 32)
        for start in range(first, first + self.cut.chunk // 32, step):
            pattern = np.arange(step, dtype=np.uint32, like=like) + np.uint32(start)
            lane = np.arange(32, dtype=np.uint32, like=like)[None, :]
            bits = np.where((pattern & np.uint32(31))[:, None] == lane, pattern[:, None], np.uint32(0))
            x = {"x": as_float(bits.reshape(-1, self.columns), FP32)}
            where = None if isinstance(like, np.ndarray) else like
            inputs = with_random_bits(self.operation, self.profile, x, start, where)
            yield Part(Case(self.operation, self.profile, dict(self.params), inputs), step)

    def title(self, chunk: int) -> str:
        """The first magnitude."""
        return f"magnitudes {chunk * (self.cut.chunk // 32):#010x} and up"


Wide = EveryPattern | Alone


@dataclass(frozen=True)
class Pin:
    """A magnitude that stands once in every block, and the members beside it.

    count: members. signed: member m is magnitude m >> 1 with sign m & 1; else it is the pattern m.
    """

    bits: int
    count: int
    signed: bool


@dataclass(frozen=True)
class Pinned:
    """Every element that can stand beside a block's maximum, for each byte that a maximum can give (N18.2).

    width: elements that share a scale. Each block holds the pin, in lane (block mod width), and width - 1 members in
    order; blocks of a pin are numbered from 0; the last is filled up with zeros. With `nonfinite` alone, the pins are
    Inf and NaN and every pattern stands beside each; with `pairs` they are, for each scale byte, the largest float32
    that has it, and the members are the magnitudes up to it in both signs.
    """

    operation: str
    profile: str
    params: Mapping[str, Any]
    width: int
    pairs: bool = True
    nonfinite: bool = True
    cut: Cut = field(default_factory=Cut)
    bytes_: tuple[int, ...] = ()

    @functools.cached_property
    def pins(self) -> list[Pin]:
        """The pins in order: scale bytes upward, then Inf and NaN. `bytes_` picks some of the scale bytes."""
        found = []
        if self.pairs:
            tops = largest_maxima(self.operation, self.profile, dict(self.params), self.width)
            chosen = {byte: top for byte, top in tops.items() if not self.bytes_ or byte in self.bytes_}
            found += [Pin(top, 2 * (top + 1), True) for top in chosen.values()]
        if self.nonfinite:
            found += [Pin(INFINITY, EVERY, False), Pin(QUIET, EVERY, False)]
        return found

    @property
    def size(self) -> int:
        """Members beside all pins."""
        return sum(pin.count for pin in self.pins)

    @functools.cached_property
    def table(self) -> list[tuple[Pin, int, int]]:
        """Chunks as (pin, first block, blocks); the last chunk of a pin is whatever is left."""
        most = self.cut.chunk // self.width
        return [
            (pin, first, min(most, self._blocks(pin) - first))
            for pin in self.pins
            for first in range(0, self._blocks(pin), most)
        ]

    def _blocks(self, pin: Pin) -> int:
        """Blocks of a pin, rounded up to whole rows of COLUMNS elements."""
        in_row = COLUMNS // self.width
        return -(-pin.count // ((self.width - 1) * in_row)) * in_row

    @property
    def chunks(self) -> int:
        """Chunks."""
        return len(self.table)

    def parts(self, chunk: int, like: Array) -> Iterator[Part]:
        """Blocks of one pin in order."""
        pin, first, blocks = self.table[chunk]
        step = self.cut.part // self.width
        for start in range(first, first + blocks, step):
            count = min(step, first + blocks - start)
            before, after = (min(block * (self.width - 1), pin.count) for block in (start, start + count))
            x = as_float(self._bits(pin, start, count, like).reshape(-1, COLUMNS), FP32)
            yield Part(Case(self.operation, self.profile, dict(self.params), {"x": x}), after - before)

    def _bits(self, pin: Pin, start: int, count: int, like: Array) -> Array:
        block = np.arange(count, dtype=np.uint32, like=like)[:, None] + np.uint32(start)
        lane = np.arange(self.width, dtype=np.uint32, like=like)[None, :]
        turned = (lane - block) & np.uint32(self.width - 1)  # 0 is the pin's place
        member = block * np.uint32(self.width - 1) + (turned - np.uint32(1))
        bits = (member >> np.uint32(1)) | (member << np.uint32(31)) if pin.signed else member
        full = max(0, pin.count // (self.width - 1) - start)  # blocks without a filler; members may wrap behind them
        if full < count:
            held = np.arange(full + start, count + start, dtype=np.int64, like=like)[:, None] * np.int64(self.width - 1)
            held = held + turned[full:].astype(np.int64) - np.int64(1)
            bits[full:] = np.where(held < np.int64(pin.count), bits[full:], np.uint32(0))
        return np.where(turned == np.uint32(0), np.uint32(pin.bits), bits)

    def title(self, chunk: int) -> str:
        """The pin and the first block."""
        pin, first, _ = self.table[chunk]
        return f"beside {pin.bits:#010x}, blocks {first} and up"


@functools.lru_cache(maxsize=16)
def _largest(operation: str, profile: str, items: tuple[tuple[str, Any], ...], width: int) -> dict[int, int]:
    params = dict(items)

    def byte_of(pattern: np.ndarray) -> np.ndarray:
        bits = np.zeros((pattern.size, width), np.uint32)
        bits[:, 0] = pattern
        case = Case(operation, profile, params, {"x": as_float(bits, FP32)})
        return run_golden(case)["scales"].reshape(-1).astype(np.int64)

    wanted = np.arange(255)
    low, high = np.ones(255, np.int64), np.full(255, INFINITY - 1, np.int64)
    while (low < high).any():  # the largest pattern whose byte is at most the wanted one
        middle = (low + high + 1) // 2
        fits = byte_of(middle.astype(np.uint32)) <= wanted
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    exact = byte_of(low.astype(np.uint32)) == wanted
    return {int(byte): int(low[byte]) for byte in np.flatnonzero(exact)}


def largest_maxima(operation: str, profile: str, params: dict[str, Any], width: int) -> dict[int, int]:
    """Return for each scale byte that a finite non-zero block maximum gives the largest such float32's pattern.

    Found by bisection, since every scale rule is monotone (N18.2); the model gives the bytes.
    """
    return dict(_largest(operation, profile, tuple(sorted(params.items())), width))
