"""Sums of few FP8 products: pairs of codes beside accumulators of every exponent, two and three products (N19.2)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from refnum.arrays import Array
from refnum.formats import Format, get_format
from refnum.tensor_core import INSTRUCTIONS

from ...cases.case import Case
from ...cases.domains.part import Part
from ...verdicts.device import place

FORMATS = ("E4M3", "E5M2")
STEP = INSTRUCTIONS["wgmma_fp8"].terms
APART = 8
"""Fields of the exponent between two anchors: fewer than any format has powers of two."""


@dataclass(frozen=True)
class Chunk:
    """Rows of `a` and `b`, codes u8 [R, K]: one member is a row of one beside a row of the other."""

    title: str
    formats: tuple[str, str]
    a: np.ndarray
    b: np.ndarray

    @property
    def members(self) -> int:
        """Results."""
        return len(self.a) * len(self.b)


@dataclass(frozen=True)
class Sums:
    """Three domains for each pair of formats, `a` by `b`, summed by one chain.

    - Beside: each pair of codes (x of `a`, y of `b`), in a step whose accumulator is one product of the step before,
      an anchor of `a` times a power of two of `b`: every exponent that products have, in both signs.
    - Two: x·y + u·v for all x and u of `a`, y an anchor of `b` or 1, and v the same in both signs.
    - Three: x·y + u·v + w for x, u, w the largest code of every exponent field in both signs, y and v of `b` among its
      least number, 1 and its largest.

    Anchors: the least code, the largest of every eighth field, and the largest of all. A chunk of the first is one
    anchor, of the others all.
    """

    @functools.cached_property
    def table(self) -> list[Chunk]:
        """The chunks in order."""
        pairs = list(itertools.product(FORMATS, FORMATS))
        return [*itertools.chain(*map(_beside, pairs)), *map(_two, pairs), *map(_three, pairs)]

    @property
    def size(self) -> int:
        """Members of all chunks."""
        return sum(chunk.members for chunk in self.table)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.table)

    def parts(self, chunk: int, like: Array) -> Iterator[Part]:
        """The one product of a chunk, where `like` lives."""
        one = self.table[chunk]
        params = {"order": "chain", "out": "float32", "a_format": one.formats[0], "b_format": one.formats[1]}
        yield Part(place(Case("matmul_fp8", "HOPPER", params, {"a": one.a, "b": one.b}), like), one.members)

    def title(self, chunk: int) -> str:
        """The domain, its formats and anchor."""
        return self.table[chunk].title


def _largest(fmt: Format, field: int) -> int:
    """Return the largest finite code of an exponent field."""
    return min((field + 1 << fmt.mantissa_bits) - 1, fmt.max_code)


def _fields(fmt: Format) -> range:
    return range((fmt.max_code >> fmt.mantissa_bits) + 1)


def _anchors(fmt: Format) -> list[int]:
    fields = _fields(fmt)
    return sorted({1, fmt.max_code, *(_largest(fmt, field) for field in fields[::APART])})


def _powers(fmt: Format) -> list[int]:
    """Return the codes of all powers of two: subnormal ones, then those of each field."""
    return [1 << bit for bit in range(fmt.mantissa_bits)] + [f << fmt.mantissa_bits for f in _fields(fmt)[1:]]


def _signed(fmt: Format, codes: Sequence[int]) -> list[int]:
    return [*codes, *(code | fmt.sign_mask for code in codes)]


def _one(fmt: Format) -> int:
    return fmt.bias << fmt.mantissa_bits


def _rows(*columns: Sequence[int]) -> np.ndarray:
    """Return every choice of one code for each column, [choices, columns]; the last column turns fastest."""
    return np.stack([x.ravel() for x in np.meshgrid(*columns, indexing="ij")], axis=1).astype(np.uint8)


def _behind(rows: np.ndarray) -> np.ndarray:
    """Return rows of two codes as terms of two steps: the first alone, then the second."""
    found = np.zeros((len(rows), STEP + 1), np.uint8)
    found[:, 0], found[:, STEP] = rows.T
    return found


def _words(formats: tuple[str, str]) -> str:
    return " x ".join(formats)


def _beside(formats: tuple[str, str]) -> Iterator[Chunk]:
    left, right = map(get_format, formats)
    b = _behind(_rows(_powers(right), range(256)))
    for anchor in _signed(left, _anchors(left)):
        title = f"{_words(formats)}: pairs beside accumulators of {anchor:#04x} times powers of two"
        yield Chunk(title, formats, _behind(_rows([anchor], range(256))), b)


def _two(formats: tuple[str, str]) -> Chunk:
    right = get_format(formats[1])
    factors = sorted({*_anchors(right), _one(right)})
    b = _rows(factors, _signed(right, factors))
    return Chunk(f"{_words(formats)}: sums of two products", formats, _rows(range(256), range(256)), b)


def _three(formats: tuple[str, str]) -> Chunk:
    left, right = map(get_format, formats)
    terms = _signed(left, [_largest(left, field) for field in _fields(left)])
    factors = (1, _one(right), right.max_code)
    b = _rows(factors, factors, [_one(right)])
    return Chunk(f"{_words(formats)}: sums of three products", formats, _rows(terms, terms, terms), b)
