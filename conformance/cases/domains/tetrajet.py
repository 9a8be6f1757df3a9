"""Domains of TetraJet (N24): every 16-bit number as block maximum, every number beside every scale byte.

A block's byte is a function of its maximum, and a code one of the element and that byte, or of the weight, its average
and that byte. The first domain enumerates the first function; the others enumerate the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import Format
from refnum.tetrajet import block_bytes

from ..corners.tetrajet import laid, narrowed
from ..draw.bits import as_float
from ..recipes.distributions import target_of
from .domain import Chunk, Domain

MAXIMA = np.arange(1, 0x7F80, dtype=np.uint32) << np.uint32(16)
"""Positive finite bfloat16 numbers as float32 patterns."""
SIX = 0x40C00000


def _place(blocks: np.ndarray, axis: int, filler: int = 0) -> np.ndarray:
    """Blocks [n, 32] laid out along an axis; fillers where there is no block."""
    wide = laid(blocks - blocks.dtype.type(filler), axis, 1024)
    return wide + wide.dtype.type(filler)


def _inputs(operation: str, fmt: Format, axis: int, blocks: np.ndarray, averages: np.ndarray) -> dict[str, np.ndarray]:
    x = as_float(laid(narrowed(blocks, fmt), axis, 1024), fmt)
    if operation == "quantize_tetrajet":
        return {"x": x}
    return {"w": x, "ema": as_float(laid(narrowed(averages, fmt), axis, 1024), fmt)}


def _alone(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    fmt, axis = target_of(operation, params).input, int(params["axis"])

    def make() -> Iterator[Chunk]:
        blocks = np.zeros((len(MAXIMA), 32), np.uint32)
        number = np.arange(len(MAXIMA))
        blocks[number, number % 32] = MAXIMA
        blocks[number, (number + 5) % 32] = (MAXIMA >> np.uint32(1)) & np.uint32(0xFFFF0000)
        held = np.full(blocks.shape, -1, np.int64)
        held[number, number % 32] = number
        yield Chunk(_inputs(operation, fmt, axis, blocks, blocks), lambda: _place(held, axis, -1))

    how = "a maximum in a lane that rotates, a smaller number five lanes on, zeros otherwise; each is its own average"
    return Domain("every number as block maximum", operation, profile, params, len(MAXIMA), how, make)


def _pins(params: Mapping[str, Any]) -> dict[int, int]:
    """Scale byte -> the largest maximum that has it."""
    columns = np.resize(MAXIMA, (1, -(-len(MAXIMA) // 32) * 32))
    found = block_bytes(columns, 0, str(params["rule"]), str(params.get("ratio", "bfloat16")))[0, : len(MAXIMA)]
    last = np.flatnonzero(np.diff(found.astype(int), append=-1))
    return {int(found[place]): int(MAXIMA[place]) for place in last}


def _pairs(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    fmt, axis = target_of(operation, params).input, int(params["axis"])
    below = {pin: MAXIMA[(pin >= MAXIMA) & (max(pin - (5 << 23), 0) <= MAXIMA)] for pin in _pins(params).values()}

    def make() -> Iterator[Chunk]:
        parts, members, first = [], [], 0
        for pin, near in below.items():
            index = np.full((-(-len(near) // 31), 31), -1, np.int64)
            index.reshape(-1)[: len(near)] = np.arange(len(near))
            signed = near | (np.arange(len(near)) % 3 == 0).astype(np.uint32) << np.uint32(31)
            rest = np.where(index < 0, np.uint32(0), signed[np.maximum(index, 0)])
            parts.append(np.concatenate([np.full((len(rest), 1), pin, np.uint32), rest], axis=1))
            held = np.where(index < 0, -1, index + first)
            members.append(np.concatenate([np.full((len(rest), 1), -1, np.int64), held], axis=1))
            first += len(near)
        blocks, places = np.concatenate(parts), np.concatenate(members)
        yield Chunk(_inputs(operation, fmt, axis, blocks, blocks), lambda: _place(places, axis, -1))

    how = (
        "beside the largest maximum of each byte every number from 2^-5 of it to it, 31 a block, one of three negative"
    )
    return Domain(
        "every number beside every scale", operation, profile, params, sum(map(len, below.values())), how, make
    )


def _averages(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    """Weights of five significant bits from 2^-3 to 6 beside every bfloat16 average from 2^-4 to 16, of either sign."""
    fmt, axis = target_of(operation, params).input, int(params["axis"])
    weights = np.arange(0x3E00, 0x40C1, 8, dtype=np.uint32) << np.uint32(16)
    averages = np.arange(0x3D80, 0x4180, dtype=np.uint32) << np.uint32(16)
    averages = np.concatenate([averages, averages | np.uint32(1 << 31)])
    size = len(weights) * len(averages)

    def make() -> Iterator[Chunk]:
        left, right = (part.reshape(-1) for part in np.meshgrid(weights, averages, indexing="ij"))
        index = np.full((-(-size // 31), 31), -1, np.int64)
        index.reshape(-1)[:size] = np.arange(size)
        blocks = []
        for flat in (left, right):
            block = np.full((len(index), 32), SIX, np.uint32)
            block[:, 1:] = np.where(index < 0, np.uint32(0), flat[np.maximum(index, 0)])
            blocks.append(block)
        places = np.concatenate([np.full((len(index), 1), -1, np.int64), index], axis=1)
        yield Chunk(_inputs(operation, fmt, axis, *blocks), lambda: _place(places, axis, -1))

    how = "31 pairs a block beside a 6, so that the scale of the rules without truncation is 1"
    return Domain("every weight beside every average", operation, profile, params, size, how, make)


def quantize_tetrajet(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Maxima, and numbers beside scales."""
    yield _alone(operation, profile, params)
    yield _pairs(operation, profile, params)


def q_ema(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Maxima, and weights beside averages."""
    yield _alone(operation, profile, params)
    yield _averages(operation, profile, params)
