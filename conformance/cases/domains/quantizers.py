"""Domains of the block quantisers: every block maximum, and every element under every scale byte.

Why the two together prove a quantiser: a block's byte is a function of its maximum alone (N3, N4), and an
element's code is a function of the element and that byte alone (N5, N6). The first domain enumerates the
first function. The second pins, for each byte s, the largest maximum that has it, so that every element that
can occur beside byte s occurs: |x| <= pin(s). Which lane holds the maximum and what else stands in the block
are covered by the corner set and by sampling, not by these domains.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from refnum.formats import FP32, Format
from refnum.profiles import get_profile

from ..case import Case
from ..draw.bits import as_float, word
from ..operation import OPERATIONS, run_golden
from ..recipes.distributions import target_of
from ..recipes.random_bits import with_random_bits
from .domain import CHUNK, Chunk, Domain, arrangement, in_rows
from .wide import COLUMNS, LOW_HALVES, Alone

Make = Callable[[], Iterator[Chunk]]
Within = Callable[[Sequence[str]], bool]

ALONE = "every 16-bit pattern as block maximum"
PAIRS = "every element under every scale byte"
BESIDE = "every element beside NaN and beside Inf"
ELEMENT_FIELDS = ("rounding", "ties", "random_bits", "overflow", "negative_zero")
TILE_FIELDS = (*ELEMENT_FIELDS, "scale_rule", "amax_floor")
SCALE_FIELDS = (*TILE_FIELDS, "zero_scale", "nonfinite")
"""Fields of a profile that act on an element (N2), on a tile (N6.1) and on an MX block (N5)."""


def quantizers(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Maxima, pairs and non-finite companions of `quantize_mxfp4`, `quantize_mx` and `quantize_fp8_tiles`.

    float32 inputs take the lattice of bfloat16 patterns with lower halves 0, 1 and 0xFFFF at level standard;
    every positive float32 as block maximum belongs to level exhaustive.
    """
    space = Space(operation, profile, params)
    wide = space.fmt is FP32
    yield space.alone((0,) if not wide else (0, 1) if space.square else LOW_HALVES)
    for low in (0, 1, 0xFFFF) if wide else (0,):
        yield space.pairs(low)
    yield space.beside()
    if wide and not space.square:
        yield space.every_maximum()


class Space:
    """One variant of a quantiser and the shapes its blocks take: a tile of 128x128 fills 128 rows."""

    def __init__(self, operation: str, profile: str, params: Mapping[str, Any]) -> None:
        self.operation, self.profile, self.params = operation, profile, dict(params)
        self.target = target_of(operation, params)
        self.fmt: Format = self.target.input
        self.square = tuple(params.get("tile", ())) == (128, 128)
        self.width = 128 * 128 if self.square else self.target.block

    def domain(self, name: str, size: int, how: str, make: Make, within: Within) -> Domain:
        """A domain of this variant."""
        return Domain(name, self.operation, self.profile, self.params, size, how, make, within=within)

    def same_scales(self, others: Sequence[str]) -> bool:
        """Whether a block's scale and codes follow under another profile as under this one."""
        return any(self._alike(other, SCALE_FIELDS if self.target.block == 32 else TILE_FIELDS) for other in others)

    def same_pairs(self, others: Sequence[str]) -> bool:
        """Whether every element beside a byte here occurs beside it, and is rounded alike, under one of the others."""
        tops: dict[int, int] = {}
        for other in others:
            if self._alike(other, ELEMENT_FIELDS):
                theirs = self._pins(other)
                tops = {byte: max(tops.get(byte, -1), theirs.get(byte, -1)) for byte in {*tops, *theirs}}
        return all(top <= tops.get(byte, -1) for byte, top in self._pins(self.profile).items())

    def same_nonfinite(self, others: Sequence[str]) -> bool:
        """Whether a block with NaN or Inf is treated alike: byte 255 and zeros, or byte 127 and N2 for tiles."""
        if self.target.block != 32:
            return any(self._alike(other, ELEMENT_FIELDS) for other in others)
        plain = [get_profile(name).nonfinite == "nosat" for name in (self.profile, *others)]
        return self.same_scales(others) or (plain[0] and any(plain[1:]))

    def _alike(self, other: str, fields: tuple[str, ...]) -> bool:
        one, two = get_profile(self.profile), get_profile(other)
        return all(getattr(one, field) == getattr(two, field) for field in fields)

    def _pins(self, profile: str) -> dict[int, int]:
        return pins(self.operation, profile, tuple((name, _hashable(value)) for name, value in self.params.items()))

    def chunk(self, bits: np.ndarray, held: Callable[[], np.ndarray]) -> Chunk:
        """Blocks of patterns [n, width] and, on demand, their members [n, width] as one case."""
        inputs = with_random_bits(self.operation, self.profile, {"x": as_float(self.lay(bits), self.fmt)}, len(bits))
        return Chunk(inputs, lambda: self.lay(held(), -1))

    def lay(self, blocks: np.ndarray, filler: int = 0) -> np.ndarray:
        """Blocks [n, width] as the matrix that the operation takes."""
        if self.square:
            return np.ascontiguousarray(blocks.reshape(-1, 128, 128).swapaxes(0, 1)).reshape(128, -1)
        return in_rows(blocks, 1024, filler)

    def alone(self, lows: tuple[int, ...]) -> Domain:
        """Each pattern (a bfloat16 one with each lower half, for float32) as the only non-zero of its block."""
        size = len(lows) << 16
        width = 128 if self.square else self.width

        def make() -> Iterator[Chunk]:
            step = max(1, CHUNK // width)
            for start in range(0, size, step):
                number = np.arange(start, min(start + step, size))
                pattern = (number // len(lows)).astype(np.uint32)
                if self.fmt is FP32:
                    pattern = pattern << np.uint32(16) | np.array(lows, np.uint32)[number % len(lows)]
                lane = (number * 5 + number // width) % width
                bits: np.ndarray = np.zeros((number.size, width), word(self.fmt))
                bits[np.arange(number.size), lane] = pattern
                yield self._alone_chunk(bits, number, lane, width)

        how = f"the pattern stands alone among zeros in a block of {width}, in a lane that changes from block to block"
        name = ALONE if len(lows) == 1 else f"every upper half with {len(lows)} lower halves as block maximum"
        return self.domain(name, size, how, make, self.same_scales)

    def _alone_chunk(self, bits: np.ndarray, number: np.ndarray, lane: np.ndarray, width: int) -> Chunk:
        def held() -> np.ndarray:
            members = np.full((number.size, width), -1, np.int64)
            members[np.arange(number.size), lane] = number
            return members

        if self.square:  # tiles of one row
            inputs = with_random_bits(self.operation, self.profile, {"x": as_float(bits.reshape(1, -1), self.fmt)}, 0)
            return Chunk(inputs, lambda: held().reshape(1, -1))
        return self.chunk(bits, held)

    def pairs(self, low: int) -> Domain:
        """Each pair (scale byte, element): for float32 the elements have the lower half `low`."""
        tops = self._pins(self.profile)
        counts = {byte: 2 * ((top >> 16 if self.fmt is FP32 else top) + 1) for byte, top in tops.items()}
        if self.fmt is FP32 and low:  # the pin itself has lower half 0, so its own upper half is not below it
            counts = {byte: count - 2 for byte, count in counts.items()}

        def make() -> Iterator[Chunk]:
            parts: list[tuple[np.ndarray, np.ndarray, int]] = []
            first = ready = 0
            for byte, count in counts.items():
                index = arrangement(count, self.width)
                parts.append((index, self._elements(index, low, tops[byte]), first))
                first, ready = first + count, ready + index.size
                if ready >= CHUNK:
                    yield self._pairs_chunk(parts)
                    parts, ready = [], 0
            if parts:
                yield self._pairs_chunk(parts)

        how = (
            f"for each of the {len(tops)} bytes that a finite maximum gives, the largest such maximum is pinned in "
            f"one lane and every pattern up to it, in both signs, stands in the others, {self.width - 1} a block"
        )
        name = PAIRS if self.fmt is not FP32 else f"{PAIRS}, lower half {low:#06x}"
        return self.domain(name, sum(counts.values()), how, make, self.same_pairs)

    def _elements(self, index: np.ndarray, low: int, top: int) -> np.ndarray:
        """Member 2 * magnitude + sign of one byte as its pattern; the pin is `top`."""
        magnitude = (index >> 1).astype(np.uint32)
        if self.fmt is FP32:
            magnitude = magnitude << np.uint32(16) | np.uint32(low)
        bits = magnitude | (index & 1).astype(np.uint32) * np.uint32(self.fmt.sign_mask)
        bits[index == -2] = top
        bits[index == -1] = 0
        return bits.astype(word(self.fmt))

    def _pairs_chunk(self, parts: list[tuple[np.ndarray, np.ndarray, int]]) -> Chunk:
        held = list(parts)
        return self.chunk(
            np.concatenate([bits for _, bits, _ in held]),
            lambda: np.concatenate([np.where(index < 0, -1, index + first) for index, _, first in held]),
        )

    def beside(self) -> Domain:
        """Each 16-bit pattern (widened for float32) in a block that holds a NaN, and in one that holds an Inf."""
        infinity = (self.fmt.max_code >> self.fmt.mantissa_bits) + 1 << self.fmt.mantissa_bits
        tops = (infinity | 1 << self.fmt.mantissa_bits - 1, infinity)

        def make() -> Iterator[Chunk]:
            index = arrangement(1 << 16, self.width)
            pattern = np.maximum(index, 0).astype(np.uint32)
            pattern = pattern << np.uint32(16) if self.fmt is FP32 else pattern
            for number, top in enumerate(tops):
                bits: np.ndarray = np.where(index == -2, np.uint32(top), pattern).astype(word(self.fmt))
                yield self.chunk(bits, functools.partial(
                    lambda number: np.where(index < 0, -1, index + (number << 16)), number))  # fmt: skip

        how = f"every 16-bit pattern, {self.width - 1} a block, beside one NaN or one Inf"
        return self.domain(BESIDE, 2 << 16, how, make, self.same_nonfinite)

    def every_maximum(self) -> Domain:
        """Every positive float32 pattern, NaN included, as the only non-zero of a block of 32: 2**31 blocks."""
        columns = 32 if self.width > 32 else COLUMNS
        return Domain(
            "every float32 magnitude as block maximum", self.operation, self.profile, self.params, 1 << 31,
            "the pattern alone among zeros in a block of 32, in a lane that changes from block to block",
            wide=Alone(self.operation, self.profile, self.params, columns=columns), within=self.same_scales,
        )  # fmt: skip


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def pins(operation: str, profile: str, items: tuple[tuple[str, Any], ...]) -> dict[int, int]:
    """Return for each scale byte that a finite non-zero maximum gives the largest such maximum's pattern.

    Maxima are the 16-bit patterns of the input format (bfloat16 patterns widened for float32). The bytes are
    the golden model's; the scale rule being monotone, each byte belongs to one run of patterns.
    """
    known = OPERATIONS[operation].params  # scale layouts and the like decide no byte
    return _pins(operation, profile, tuple(sorted(item for item in items if item[0] in known)))


@functools.lru_cache(maxsize=64)
def _pins(operation: str, profile: str, items: tuple[tuple[str, Any], ...]) -> dict[int, int]:
    params = dict(items)
    if "tile" in params:
        params["tile"] = (1, 128)  # the scale follows from the maximum alone, whatever the tile's shape
    fmt = target_of(operation, params).input
    top = (fmt.max_code >> 16 if fmt is FP32 else fmt.max_code) + 1
    pattern = np.arange(1, top, dtype=np.uint32) << np.uint32(16 if fmt is FP32 else 0)
    bits: np.ndarray = np.zeros((pattern.size, 32), word(fmt))
    bits[:, 0] = pattern
    inputs = with_random_bits(operation, profile, {"x": as_float(bits, fmt)}, 0)
    scales = run_golden(Case(operation, profile, params, inputs))["scales"].reshape(-1)
    assert (np.diff(scales.astype(int)) >= 0).all(), f"{get_profile(profile).name}: the scale rule is not monotone"
    last = np.flatnonzero(np.diff(scales, append=-1))
    return {int(scales[place]): int(pattern[place]) for place in last}
