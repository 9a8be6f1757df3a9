"""Domains of NVFP4 (N21): every 16-bit number as block maximum, and every number beside every scale.

A block's scale is a function of its maximum and the tensor's, and a code one of the element and the block's factor. The
first domain enumerates the first function at one tensor maximum, the second the other one beside one maximum for each
scale code that occurs there. Other tensor maxima are sampled by the corners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import FP16, FP32
from refnum.nvfp4_scales import get_variant

from ..corners.nvfp4 import BYTES, one, spaced
from ..draw.bits import as_float
from ..recipes.distributions import target_of
from .domain import Chunk, Domain, in_rows

TENSOR = 0x40F00000
"""The tensor maximum of the domains, 7.5."""


def _maxima(fmt: Any) -> np.ndarray:
    """Positive finite patterns of a 16-bit format, or float32's with lower half 0, as float32 bits."""
    if fmt is FP16:
        return np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    return np.arange(1, 0x7F80, dtype=np.uint32) << np.uint32(16)


def _own(bits: np.ndarray, fmt: Any) -> np.ndarray:
    """The patterns of float32 bits in the input format, which holds them."""
    if fmt is FP32:
        return bits
    if fmt is FP16:
        return bits.view(np.float32).astype(np.float16).view(np.uint16)
    return (bits >> np.uint32(16)).astype(np.uint16)


def _laid(blocks: np.ndarray, square: bool, filler: int = 0) -> np.ndarray:
    """Blocks [n, 16] in rows of 1024; for 16x16 tiles each block is a row of its own tile, fillers beside it."""
    wide = in_rows(blocks, 1024, filler)
    return wide if not square else spaced(wide - wide.dtype.type(filler)) + wide.dtype.type(filler)


def _alone(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    fmt, square = target_of(operation, params).input, params["tile"][0] == 16
    maxima = _maxima(fmt)
    if str(params["variant"]).startswith("FOUR") or square:
        maxima = maxima[(maxima >= 120 << 23) & (maxima < 131 << 23)] if fmt is not FP16 else maxima[::16]

    def make() -> Iterator[Chunk]:
        blocks = np.zeros((len(maxima), 16), np.uint32)
        number = np.arange(len(maxima))
        blocks[number, number % 16] = maxima
        blocks[number, (number + 5) % 16] = _half(maxima, fmt)
        held = np.full(blocks.shape, -1, np.int64)
        held[number, number % 16] = number
        x = as_float(_laid(_own(blocks, fmt), square), fmt)
        yield Chunk({"x": x, "tensor_amax": one(TENSOR)}, lambda: _laid(held, square, -1))

    how = "a maximum in a lane that rotates, a smaller number five lanes on, zeros otherwise; tensor maximum 7.5"
    return Domain("every number as block maximum", operation, profile, params, len(maxima), how, make)


def _half(maxima: np.ndarray, fmt: Any) -> np.ndarray:
    """A number below each maximum that its format holds: half of the pattern."""
    if fmt is FP16:
        own = _own(maxima, fmt) >> np.uint16(1)
        return own.view(np.float16).astype(np.float32).view(np.uint32)
    return (maxima >> np.uint32(1)) & np.uint32(0xFFFF0000)


def _pins(variant: str, fmt: Any) -> dict[int, int]:
    """Scale code -> the largest maximum that has it at the domains' tensor maximum."""
    maxima = _maxima(fmt)
    codes = get_variant(variant).steps(maxima[:, None], np.array([TENSOR], np.uint32))[0].codes[:, 0]
    last = np.flatnonzero(np.diff(codes.astype(int), append=-1))
    return {int(codes[place]): int(maxima[place]) for place in last if codes[place]}


def _pairs(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    fmt = target_of(operation, params).input
    pins = _pins(str(params["variant"]), fmt)
    maxima = _maxima(fmt)
    below = {code: _near(maxima, pin) for code, pin in pins.items()}

    def make() -> Iterator[Chunk]:
        parts, members, first = [], [], 0
        for code, near in below.items():
            index = np.full((-(-len(near) // 15), 15), -1, np.int64)
            index.reshape(-1)[: len(near)] = np.arange(len(near))
            signed = near | (np.arange(len(near), dtype=np.uint32) % np.uint32(3) == 0).astype(np.uint32) << np.uint32(
                31
            )
            rest = np.where(index < 0, np.uint32(0), signed[np.maximum(index, 0)])
            parts.append(np.concatenate([np.full((len(rest), 1), pins[code], np.uint32), rest], axis=1))
            pin = np.full((len(rest), 1), -1, np.int64)
            members.append(np.concatenate([pin, np.where(index < 0, -1, index + first)], axis=1))
            first += len(near)
        blocks, held = np.concatenate(parts), np.concatenate(members)
        x = as_float(in_rows(_own(blocks, fmt), 1024), fmt)
        yield Chunk({"x": x, "tensor_amax": one(TENSOR)}, lambda: in_rows(held, 1024, -1))

    how = ("beside the largest maximum of each scale code, every number from 2^-12 of it to it, 15 a block, one of "
           "three negative; tensor maximum 7.5")  # fmt: skip
    size = sum(map(len, below.values()))
    return Domain("every number beside every scale", operation, profile, params, size, how, make)


def _near(maxima: np.ndarray, pin: int) -> np.ndarray:
    """The numbers of the format from 2**-12 of a maximum to the maximum."""
    return maxima[(maxima <= pin) & (maxima >= max(pin - (12 << 23), 0))]


def quantize_nvfp4(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Maxima of every variant; pairs for 1x16 tiles of the variants with one scale."""
    yield _alone(operation, profile, params)
    if params["tile"][0] == 1 and not str(params["variant"]).startswith("FOUR"):
        yield _pairs(operation, profile, params)


def dequantize_nvfp4(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every code under every scale code, at one tensor maximum."""
    codes = np.arange(16, dtype=np.uint8)
    row, square = codes[0::2] | codes[1::2] << 4, params["tile"][0] == 16

    def make() -> Iterator[Chunk]:
        held = np.arange(4096, dtype=np.int64).reshape(256, 16)
        packed = np.tile(row, (256, 1))
        scales = BYTES[:, None].copy()
        if square:
            packed, scales, held = packed.reshape(1, -1), BYTES[None, :].copy(), held.reshape(1, -1)
        yield Chunk({"packed": packed, "scales": scales, "tensor_amax": one(TENSOR)}, lambda: held)

    how = "block s has the scale code s and all elements; tensor maximum 7.5"
    yield Domain("every code under every scale", operation, profile, params, 4096, how, make)
