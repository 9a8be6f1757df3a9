"""Corners of rotations (N22): terms that cancel, ties far from what decides them, every kind of mask, odd shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum.formats import FP32, Format
from refnum.hadamard import SIGNS
from refnum.nvfp4_scales import VARIANTS

from ..draw.bits import as_float, word
from ..draw.values import Target
from ..operation import OPERATIONS
from ..recipes.distributions import target_of
from .arrange import matrix
from .floats import special_blocks, uniform_blocks
from .nvfp4 import AMAX, one

Corner = tuple[str, dict[str, np.ndarray], dict[str, Any]]
MASKS = (SIGNS, 0, 0xFFFF, *(1 << bit for bit in range(16)), 0x8001, 0x1234, 0xD7E9)
"""Signs: the published ones, none, all, each alone, and some without symmetry."""
SHAPES = ((0, 32), (1, 16), (2, 48), (15, 32), (16, 16), (17, 80), (31, 64), (33, 32), (130, 16), (3, 2064), (1, 7168))
APART = 0x3A200000
"""float32 bits of a number that, alone in its group and under the tensor maximum 10, has another scale in `TE_2_8` than
in `TE`."""
PLACES = ((0, 1), (3, 11), (15, 4), (8, 7), (5, 10), (14, 2), (6, 9), (13, 12))
"""Lanes of a group in which two terms stand that cancel."""


def laid(blocks: np.ndarray, axis: int, columns: int = 256) -> np.ndarray:
    """Groups [n, 16] in rows, or each in a column of its own."""
    return matrix(blocks, columns) if axis else np.ascontiguousarray(blocks.T)


def _noise(count: int, salt: int) -> np.ndarray:
    """Whole numbers u32 [count, 16], a hash of the place."""
    place = np.arange(count * 16, dtype=np.uint32).reshape(count, 16) + np.uint32(salt * 40503)
    mixed = place * np.uint32(2654435761)
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x2C1B3C6D)
    return mixed ^ mixed >> np.uint32(13)


def spread_blocks(fmt: Format, binades: int, count: int = 256) -> np.ndarray:
    """Groups of random fractions and signs whose exponents span so many binades, over the whole range in turn."""
    hashed = _noise(count, binades)
    low = np.arange(count, dtype=np.uint32)[:, None] * np.uint32(254 - binades) // np.uint32(count)
    exponent = low + (hashed >> np.uint32(4)) % np.uint32(binades + 1)
    bits = hashed & np.uint32(0x807FFFFF) | exponent << np.uint32(23)
    return (bits if fmt is FP32 else bits >> np.uint32(16)).astype(word(fmt))


def cancelling_blocks(fmt: Format) -> np.ndarray:
    """A tie of the result, something below it or nothing, and two terms that cancel and are far above.

    The tie is half a last place of bfloat16 or of float32 above or below an odd or even number, at several exponents.
    """
    rows: list[np.ndarray] = []
    for width in (8, 24) if fmt is FP32 else (8,):
        for exponent, small, large in ((127, 0, 250), (127, 1, 200), (100, 1 << 23, 140), (60, 0, 61), (2, 3, 254)):
            for odd, nudge, sign in ((0, 0, 0), (1, 0, 1), (0, 1, 1), (1, -1, 0), (0, -1, 1), (1, 1, 0)):
                row = np.zeros(16, np.int64)
                near, far = PLACES[len(rows) % 8], PLACES[(len(rows) + 3) % 8]
                row[near[0]] = exponent << 23 | odd << 24 - width
                row[near[1]] = max(exponent - width, 0) << 23
                row[(near[0] + 5) % 16] = small + (nudge > 0)
                if nudge < 0:
                    row[(near[0] + 5) % 16] = 1 | 1 << 31
                row[far[0]] |= 0 if row[far[0]] else large << 23
                row[far[1]] |= 0 if row[far[1]] else large << 23 | 1 << 31
                rows.append(row ^ np.where(row > 0, sign << 31, 0))
    bits = np.array(rows, np.int64).astype(np.uint32)
    return (bits if fmt is FP32 else bits >> np.uint32(16)).astype(word(fmt))


def long_blocks(fmt: Format) -> np.ndarray:
    """Groups whose sum has one digit more than float32 and lies above a tie of bfloat16.

    Of bfloat16 numbers of 14 binades it is 2**17 + 2**9 + 2**-7; of float32 it is half of that too, of 13 binades and
    with one number of nine digits. The longest number stands in each place in turn.
    """
    groups = [[1 + 2**-7, -1, 10752, *[10240] * 7, *[8192] * 6]]
    groups += [[1 + 2**-8, -1, 5376, *[5120] * 7, *[4096] * 6]] * (fmt is FP32)
    rolled = [np.roll(np.array(group, np.float32), place) for group in groups for place in range(16)]
    bits = np.stack(rolled).view(np.uint32)
    return (bits if fmt is FP32 else bits >> np.uint32(16)).astype(word(fmt))


def heavy_blocks(fmt: Format) -> np.ndarray:
    """Fifteen numbers of almost 2 and one that is 0 to 80 binades smaller: their sums need every bit of a word."""
    bits = np.full((81, 16), 0x3FFFFFFF, np.uint32)
    place = np.arange(81)
    bits[place, place % 16] = (127 - place) << 23 | 0x10000
    return (bits if fmt is FP32 else bits >> np.uint32(16)).astype(word(fmt))


def lone_zeros(fmt: Format, signs: int) -> np.ndarray:
    """Groups of zeros under signs: in each, another result has only terms of -0, so that its sum is +0 (N22.2)."""
    lane = np.arange(16, dtype=np.uint32)
    odd = np.bitwise_count(lane[:, None] & lane) + (np.uint32(signs) >> lane & 1)
    return ((odd & 1 ^ 1).astype(np.uint32) << np.uint32(fmt.bits - 1)).astype(word(fmt))


def _blocks(fmt: Format) -> Iterator[tuple[str, np.ndarray]]:
    target = Target(fmt, OPERATIONS["hadamard16"].rounds_to.format({}), 16)
    yield "special values in every lane", special_blocks(target)
    yield "whole groups of zeros, subnormals, Inf, NaN", uniform_blocks(target)
    pattern = np.arange(1 << 16, dtype=np.uint32) << np.uint32(fmt.bits - 16)
    yield "all 16-bit patterns in sequence", pattern.astype(word(fmt)).reshape(-1, 16)
    yield "ties beside something small, under terms that cancel", cancelling_blocks(fmt)
    yield "the smallest numbers", (_noise(64, 3) & np.uint32(0x80000007 if fmt is FP32 else 0x8007)).astype(word(fmt))
    largest = np.uint32(fmt.max_code) - (_noise(64, 5) & np.uint32(3)) | (_noise(64, 7) & np.uint32(1)) * np.uint32(
        fmt.sign_mask
    )
    yield "the largest numbers", largest.astype(word(fmt))
    for binades in (0, 8, 12, 13, 20, 37, 38, 60, 120, 253):
        yield f"groups of {binades + 1} binades", spread_blocks(fmt, binades)


def _every(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Yield groups of every kind under the published signs, masks, and shapes."""
    fmt, axis = target_of(operation, params).input, int(params["axis"])
    for label, blocks in _blocks(fmt):
        cut = blocks[:: 8 if params["order"] == "sequential" and len(blocks) > 1024 else 1]
        yield label, {"x": as_float(laid(cut, axis), fmt)}, {}
    yield "sums of 25 digits above a tie", {"x": as_float(laid(long_blocks(fmt), axis, 16), fmt)}, {"signs": 0}
    yield "fifteen large numbers and a small one", {"x": as_float(laid(heavy_blocks(fmt), axis, 16), fmt)}, {"signs": 0}
    for signs in MASKS[:2]:
        zeros = as_float(laid(lone_zeros(fmt, signs), axis, 16), fmt)
        yield f"sums of zeros, signs {signs:#06x}", {"x": zeros}, {"signs": signs}
    for signs in MASKS:
        yield f"signs {signs:#06x}", {"x": as_float(laid(spread_blocks(fmt, 6, 4), axis, 16), fmt)}, {"signs": signs}
    for number, (rows, columns) in enumerate(SHAPES):
        count = -(-rows * columns // 16)
        x = spread_blocks(fmt, 5, max(count, 1)).reshape(-1)[: rows * columns].reshape(rows, columns)
        yield f"shape {rows}x{columns}", {"x": as_float(x, fmt)}, {"signs": MASKS[number]} if number % 3 == 1 else {}


hadamard16 = _every


def hadamard_quantize_nvfp4(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """The same under their own maximum, given maxima of every kind, every variant, and random bytes."""
    fmt, axis = target_of(operation, params).input, int(params["axis"])
    blocks = np.concatenate([spread_blocks(fmt, binades, 32) for binades in (3, 12, 30)])
    x = as_float(laid(blocks, axis), fmt)
    yield from _every(operation, params)
    for amax in AMAX:
        yield f"tensor maximum {amax:#010x}", {"x": x, "tensor_amax": one(amax)}, {}
    told = blocks.copy()
    told[0] = 0
    told[0, 0] = APART >> 32 - fmt.bits
    for variant in list(VARIANTS)[1:]:
        inputs = {"x": as_float(laid(told, axis), fmt), "tensor_amax": one(AMAX[3])}
        yield f"variant {variant}", inputs, {"variant": variant}
    shape = x.shape if axis else (x.shape[1], 16)
    dice = _noise(-(-shape[0] * shape[1] // 16), 9).reshape(-1)[: shape[0] * shape[1]]
    rbits = (dice >> np.uint32(24)).astype(np.uint8).reshape(shape)
    yield "random bytes", {"x": x, "tensor_amax": one(AMAX[3]), "rbits": rbits}, {}
