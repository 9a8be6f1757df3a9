"""Domains of the integer quantisers (N26): every 16-bit number as an element, and as what decides a scale.

A group's scale and zero point are functions of its extremes, a code one of the element and those two. The first domain
enumerates elements under fixed extremes, the second magnitudes of extremes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import FP32, Format

from ..draw.bits import as_float, word
from ..recipes.distributions import target_of
from .domain import Chunk, Domain, sequence

PINS = {"int4_affine": (-1.0, 0.875), "efficient_qat": (-1.0, 0.875), "int4_keep_two": (2.0, -4.0, 0.875)}
"""Operation -> the elements that decide, beside which every other one stands."""
GROUP, COLUMNS = 32, 1024


def _patterns(fmt: Format, first: int = 0, stop: int = 1 << 16) -> np.ndarray:
    """16-bit patterns; those of float32 have a lower half of zeros."""
    pattern = np.arange(first, stop, dtype=np.uint32)
    return (pattern << np.uint32(16) if fmt is FP32 else pattern).astype(word(fmt))


def _binades(fmt: Format) -> np.ndarray:
    return np.concatenate([_patterns(fmt, 0x3C00, 0x4100), _patterns(fmt, 0xBC00, 0xC100)])


def sawb(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every 16-bit number in one tensor, and all those of ten binades in one."""
    fmt = target_of(operation, params).input
    for name, bits, how in (
        ("every 16-bit number in one tensor", _patterns(fmt).reshape(256, 256), "patterns in order"),
        ("every number of ten binades in one tensor", _binades(fmt).reshape(-1, 64), "positive ones first"),
    ):

        def make(bits: np.ndarray = bits) -> Iterator[Chunk]:
            yield Chunk({"x": as_float(bits, fmt)}, sequence(0, bits.shape))

        yield Domain(name, operation, profile, params, bits.size, how, make)


def _rows(blocks: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(blocks.reshape(-1, min(COLUMNS, blocks.size)))


def _elements(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    fmt, pins = target_of(operation, params).input, PINS[operation]
    room, patterns = GROUP - len(pins), _patterns(fmt)
    count = -(-len(patterns) // (room * COLUMNS // GROUP)) * COLUMNS // GROUP
    index = np.full((count, room), -1, np.int64)
    index.reshape(-1)[: len(patterns)] = np.arange(len(patterns))

    def make() -> Iterator[Chunk]:
        fixed = np.array(pins, np.float32).view(np.uint32) >> np.uint32(0 if fmt is FP32 else 16)
        beside: np.ndarray = np.broadcast_to(fixed.astype(word(fmt)), (count, len(pins)))
        rest = np.where(index < 0, word(fmt)(0), patterns[np.maximum(index, 0)])
        held = np.concatenate([np.full((count, len(pins)), -1, np.int64), index], axis=1)
        yield Chunk({"x": as_float(_rows(np.concatenate([beside, rest], axis=1)), fmt)}, lambda: _rows(held))

    how = f"patterns in order, {room} a group beside {', '.join(map(str, pins))}"
    return Domain("every 16-bit number as an element", operation, profile, params, len(patterns), how, make)


def _extremes(operation: str, profile: str, params: Mapping[str, Any]) -> Domain:
    fmt = target_of(operation, params).input
    tops = _patterns(fmt, 1, 0x7F80)
    kept = 3 if operation == "int4_keep_two" else 1

    def make() -> Iterator[Chunk]:
        blocks: np.ndarray = np.zeros((-(-len(tops) // GROUP) * GROUP, GROUP), word(fmt))
        held = np.full(blocks.shape, -1, np.int64)
        number = np.arange(len(tops))
        for step in range(kept):
            blocks[number, (number + step) % GROUP] = tops
        held[number, (number + kept - 1) % GROUP] = number
        lower = np.minimum(tops, tops[np.maximum(number - 40, 0)])
        blocks[number, (number + 9) % GROUP] = lower | word(fmt)(fmt.sign_mask)
        blocks[number, (number + 17) % GROUP] = lower >> word(fmt)(1)
        yield Chunk({"x": as_float(_rows(blocks), fmt)}, lambda: _rows(held))

    how = f"a magnitude in {kept} lanes that rotate, the one 40 below it negative nine lanes on, and half its bits"
    return Domain("every 16-bit number as an extreme", operation, profile, params, len(tops), how, make)


def int4_affine(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Elements, and extremes."""
    yield _elements(operation, profile, params)
    yield _extremes(operation, profile, params)


efficient_qat = int4_keep_two = int4_affine


def llm_qat(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every 16-bit number but NaN and Inf, and those of ten binades, in rows of numbers that lie apart."""
    fmt = target_of(operation, params).input
    every = np.concatenate([_patterns(fmt, 0, 0x7F80), _patterns(fmt, 0x8000, 0xFF80)])
    for name, bits in (("every 16-bit number", every), ("every number of ten binades", _binades(fmt))):
        order = (np.arange(len(bits)) * 40507 % len(bits)).reshape(-1, 64)

        def make(bits: np.ndarray = bits, order: np.ndarray = order) -> Iterator[Chunk]:
            yield Chunk({"x": as_float(bits[order], fmt)}, lambda: order)

        yield Domain(name, operation, profile, params, len(bits), "number 40507 i mod n in place i, 64 a row", make)


def dequantize_int4(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every code under every positive 16-bit number as scale; every code and zero point under 512 scales."""
    scales = _patterns(FP32, 0, 0x7F80)

    def signed() -> Iterator[Chunk]:
        codes: np.ndarray = np.tile(np.arange(16, dtype=np.uint8), (len(scales) // 32, 32))
        yield Chunk({"codes": codes, "scales": as_float(scales.reshape(-1, 32), FP32)}, sequence(0, codes.shape))

    how = "scales upward in groups of 16 codes, 32 groups a row"
    yield Domain("every code and 16-bit scale", operation, profile, params, 16 * len(scales), how, signed)
    mantissas = np.concatenate([_patterns(FP32, 0x3F00, 0x4000), _patterns(FP32, 0xBF00, 0xC000)])

    def placed() -> Iterator[Chunk]:
        codes: np.ndarray = np.tile(np.arange(16, dtype=np.uint8), (len(mantissas), 16))
        zeros: np.ndarray = np.tile(np.arange(16, dtype=np.uint8), (len(mantissas), 1))
        held = as_float(np.repeat(mantissas[:, None], 16, axis=1), FP32)
        yield Chunk({"codes": codes, "scales": held, "zeros": zeros}, sequence(0, codes.shape))

    how = "a scale of two binades of either sign in each row, a group of 16 codes under each zero point"
    size = 256 * len(mantissas)
    yield Domain("every code and zero point", operation, profile, params, size, how, placed)


def llm_fp4(operation: str, profile: str, params: Mapping[str, Any]) -> Iterator[Domain]:
    """Every 16-bit number under 6, and under 5."""
    bits = _patterns(target_of(operation, params).input).reshape(64, 1024)
    for top in (6, 5):

        def make(top: int = top) -> Iterator[Chunk]:
            x = as_float(bits, target_of(operation, params).input)
            yield Chunk({"x": x, "maxval": np.array([top], np.float32)}, sequence(0, bits.shape))

        yield Domain(
            f"every 16-bit number under {top}", operation, profile, params, bits.size, "patterns in order", make
        )
