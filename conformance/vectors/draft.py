"""A draft is one question before its answer is frozen; here are also shorthands for writing the inputs of drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from refnum.codec import to_float32_bits
from refnum.profiles import Profile

BLOCK = 32
DTYPES = ("float32", "bfloat16")
MODES = ("max", "amax")
FIVE = ("HOPPER", "OCP", "CEIL", "EVEN", "TE")
"""Profiles under which the block quantisers have every vector."""
SIGN = 0x80000000
INF, NAN, SNAN, LARGEST = 0x7F800000, 0x7FC00000, 0x7F800001, 0x7F7FFFFF


@dataclass(frozen=True)
class Draft:
    """Inputs and parameters of one call, the notes it hunts and why it is there.

    clause: the specification's item, the operation's own when empty. tensor: stored as a safetensors file.
    """

    inputs: Mapping[str, np.ndarray]
    params: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    comment: str = ""
    clause: str = ""
    tensor: bool = False


@dataclass(frozen=True)
class Questions:
    """The questions about one operation.

    drafts: profile -> its drafts. profiles: those that have vectors. whole: those of them that get every vector; the
    others get the vectors whose answer differs from HOPPER's.
    """

    drafts: Callable[[Profile], Iterator[Draft]]
    profiles: tuple[str, ...] = ("HOPPER",)
    whole: tuple[str, ...] = ("HOPPER",)


def plain(*functions: Callable[[], Iterator[Draft]], **profiles: tuple[str, ...]) -> Questions:
    """Return the questions of functions that take nothing, one function after another; profiles: as of `Questions`."""
    return Questions(lambda _: (draft for function in functions for draft in function()), **profiles)


def each(choices: Iterable[str], *functions: Callable[[str], Iterator[Draft]]) -> Questions:
    """Return the questions of functions of one choice: for each choice, one function after another."""
    return Questions(lambda _: (draft for choice in choices for function in functions for draft in function(choice)))


def bits(value: float | Fraction, negative: bool = False) -> int:
    """Return the float32 bits of a value that float32 holds exactly."""
    return to_float32_bits(Fraction(value), negative)


def power(k: int, factor: float | Fraction = 1) -> int:
    """Return the float32 bits of factor * 2**k."""
    return bits(Fraction(factor) * Fraction(2) ** k)


def row(lanes: Iterable[int], width: int = BLOCK, fill: int = 0) -> list[int]:
    """Return `width` float32 bit patterns: the given ones, then the fill."""
    given = list(lanes)
    return given + [fill] * (width - len(given))


def rows_of(patterns: Iterable[int], lead: int, width: int = BLOCK) -> list[list[int]]:
    """Spread patterns over rows that all start with `lead`, which pins the scale of every block."""
    left = list(patterns)
    out: list[list[int]] = []
    while left or not out:
        out.append(row([lead, *left[: width - 1]], width))
        left = left[width - 1 :]
    return out


def float32(rows: Iterable[Iterable[int]]) -> np.ndarray:
    """Return a float32 matrix from rows of bit patterns."""
    return np.asarray([list(r) for r in rows], np.uint32).view(np.float32)


def bfloat16(rows: Iterable[Iterable[int]]) -> np.ndarray:
    """Return a bfloat16 matrix from rows of 16-bit patterns."""
    return np.asarray([list(r) for r in rows], np.uint16).view(ml_dtypes.bfloat16)


def float16(rows: Iterable[Iterable[int]]) -> np.ndarray:
    """Return a float16 matrix from rows of 16-bit patterns."""
    return np.asarray([list(r) for r in rows], np.uint16).view(np.float16)


def octets(rows: Iterable[Iterable[int]]) -> np.ndarray:
    """Return a uint8 matrix."""
    return np.asarray([list(r) for r in rows], np.uint8)


def counted(rows: int, columns: int, start: int = 1) -> np.ndarray:
    """Return a uint8 matrix of different bytes, none of them above 250."""
    return ((np.arange(rows * columns) * 7 + start) % 251).astype(np.uint8).reshape(rows, columns)


def both_signs(patterns: Iterable[int]) -> list[int]:
    """Return each pattern, then the same with the sign bit set."""
    return [p | s for p in patterns for s in (0, SIGN)]
