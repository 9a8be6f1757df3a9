"""Corners of NVFP4 (N21): scales at the ties of E4M3, elements one ulp beside their bounds, maxima of all sizes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refnum import philox
from refnum.formats import BF16, FP16, FP32, Format
from refnum.nvfp4_codes import least_inputs
from refnum.nvfp4_scales import get_variant

from ..draw.bits import as_float, word
from ..draw.values import Target
from ..operation import OPERATIONS
from ..recipes.distributions import target_of
from .arrange import matrix
from .floats import SPECIALS, special_blocks, uniform_blocks

Corner = tuple[str, dict[str, np.ndarray]]
BYTES = np.arange(256, dtype=np.uint8)
AMAX = (0x40700000, 0x45280000, 0x3F9E3779, 0x41200000, 0x7F7FFFFF, 0x00800000, 0x00000001, 0, 0x80000000, 0xC1200000,
        0x7F800000, 0x7FC00000, 0xFFC00001, 0x3F800000, 0x3A83126F, 0x49742400, 0x0B000000, 0x74000000)  # fmt: skip
"""Tensor maxima: ordinary, powers of two, the ends of the range, zeros, with a sign, Inf, NaN."""
FAINT = np.array([tie + (field << 23) for field in range(6) for tie in (0x02220001, 0x023A0001)], np.uint32)
"""float32 bits of maxima whose scale, in the order of TE_2_8, is a tie of E4M3 where 2688 by the tensor's maximum is
beyond float32 and the largest number takes its place; with the number before that one the scale lies below the tie."""
LOWEST = (0x00000A80, 0x05800000)
"""Tensor maxima under which some blocks, and not all, have a factor of 0, of 2^-149 (`MODELOPT`) or Inf (`TORCHAO`)."""
TWICE_ROUNDED = {"te": (0x3FB3E666, 0x3FD8FFFF), "product": (0x3FC1471D, 0x3FB8B8E3),
                 "four_over_six": (0x3F906666, 0x3F844924)}  # fmt: skip
"""Order -> tensor maxima under which three times some scale is just above, and just below, the middle of two bfloat16
numbers that the float32 product is: rounded once and not twice (N21.7), it is the other one."""
BALANCED, BALANCED_BY = {"mse": (5485, 0x3F88CCD7), "mae": (90, 0xBFA47C09)}, 0x449A5225
"""Error -> a row of noise and float32 bits of one number in it, found by bisection; the tensor maximum beside them."""
SHAPES = ((0, 32), (1, 16), (1, 48), (3, 128), (15, 32), (16, 16), (17, 80), (33, 32), (130, 16), (2, 2064), (1, 7168))


def one(bits: int) -> np.ndarray:
    """A float32 [1] from its bits."""
    return np.array([bits], np.uint32).view(np.float32)


def narrowed(bits: np.ndarray, fmt: Format) -> np.ndarray:
    """The float32 patterns cut to a 16-bit input format, or as they are; float16 by its own exponent range."""
    if fmt is FP32:
        return bits
    if fmt is BF16:
        return bits >> np.uint32(16)
    with np.errstate(all="ignore"):
        return bits.view(np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)


def edge_blocks(variant: str, amax: int, fmt: Format) -> np.ndarray:
    """Blocks whose maximum is near a tie of the scale, filled with numbers beside the bounds of the elements' codes.

    Maxima rise by 1/64 of a binade over 20 binades, each with its neighbours; the other lanes hold the least numbers
    with the codes 1 to 7 under the factor that the block has, and the numbers one ulp below them, of either sign.
    """
    return narrowed(_edges(variant, amax), fmt)


@functools.lru_cache(maxsize=len(AMAX))  # each is asked of every format and tile
def _edges(variant: str, amax: int) -> np.ndarray:
    """Return `edge_blocks` in float32, which nobody may change."""
    steps = np.arange(20 << 6, dtype=np.int64) << 17
    top = min(max(amax & 0x7FFFFFFF, 21 << 23), 0x7F7FFFFF)
    maxima = np.maximum(top - steps[:, None] + np.array([0, 1, -1, 5461]), 1).reshape(-1).astype(np.uint32)
    maxima = np.minimum(maxima, np.uint32(top))
    tensor = np.array([amax & 0x7FFFFFFF], np.uint32)
    found = get_variant(variant).steps(maxima[:, None], tensor)[-1]
    factor = np.where(found.factor > np.uint32(0x7F800000), np.uint32(0), found.factor)
    least = least_inputs(factor[:, 0], found.divides).T.astype(np.int64)
    near = np.concatenate([maxima[:, None].astype(np.int64), least, least - 1, least[:, :1] + 1], axis=1)
    near = np.clip(near, 0, maxima[:, None].astype(np.int64)).astype(np.uint32)
    signs = (np.arange(near.size, dtype=np.uint32).reshape(near.shape) * np.uint32(2654435761)) & np.uint32(1 << 31)
    lanes = (np.arange(16)[None, :] + np.arange(len(near))[:, None]) % 16
    edges = np.take_along_axis(near | signs, lanes, axis=1)
    edges.setflags(write=False)
    return edges


def spaced(rows: np.ndarray) -> np.ndarray:
    """Each row in 16 rows of its own, zeros beside it: a 16x16 tile holds one block."""
    tall = np.zeros((len(rows), 16, rows.shape[1]), rows.dtype)
    tall[np.arange(len(rows)), np.arange(len(rows)) % 16] = rows
    return tall.reshape(-1, rows.shape[1])


def falling_blocks(amax: int) -> np.ndarray:
    """Blocks with a zero and 15 numbers up to a maximum, which falls from the tensor's by binades."""
    tops = np.arange(24) << 23
    tops = np.maximum(amax - tops, amax >> np.arange(24)) if amax >> 23 else amax >> np.arange(24)
    numbers = np.maximum(tops, 1)[:, None] * np.arange(16) // 15
    return numbers.astype(np.uint32) ^ np.uint32(1 << 31) * (np.arange(16, dtype=np.uint32) & 1)


def close_blocks(error: str) -> np.ndarray:
    """Blocks of 12 whose errors under the scales 2 and 3 (N21.5) are equal, or differ by a few units of the last place.

    In units of 2^-24: a number 1/2 + a below 3/4 has the values 1 and 0, one of 5/4 + c the values 1 and 3/2, and one
    below 1/2 has 0 twice. The errors are as large where the sum of the c is that of the a, of the squares twice it.
    """
    words = philox.random_bits((256, 14), 24, seed=21).astype(np.int64)
    factor = 2 if error == "mse" else 1
    over, beside, low = words[:, :6] >> 4 | 1, words[:, 6:11] >> 7, words[:, 11:] >> 1 | 1
    past = factor * over[:, :5] + beside & ~1
    apart = np.arange(-8, 8)[np.arange(256) % 16] & ~1
    last = factor * over.sum(axis=1) + apart - past.sum(axis=1)
    units = np.concatenate(
        [np.full((256, 1), 12 << 24), over + (1 << 23), past + (5 << 22), last[:, None] + (5 << 22), low], axis=1
    )
    lanes = (np.arange(16) + np.arange(256)[:, None]) % 16
    return np.take_along_axis(units, lanes, axis=1).astype(np.float32) * np.float32(2.0**-24)


def balanced_block(error: str) -> np.ndarray:
    """A block whose errors lie so close that the other scale has less where v (N21.5) takes its factors in another
    order, by way of a reciprocal, or is not rounded before x is subtracted."""
    row, bits = BALANCED[error]
    block = philox.random_bits((1, 16), 24, seed=22, offset=16 * row).astype(np.int64) - (1 << 23)
    numbers = block.astype(np.float32) * np.float32(2.0**-20)
    numbers[0, 5] = one(bits)[0]
    return numbers


def endless_blocks() -> np.ndarray:
    """Blocks of 2^66 and of up to 15 numbers of three quarters of it, which only the scale by 4 holds: the squares of
    the other's errors add up to Inf from some number on."""
    lanes = np.arange(16)
    rows = np.where(lanes <= lanes[:, None], np.float32(0.75), np.float32(0))
    rows[:, 0] = 1
    return rows * np.float32(2.0**66)


@functools.lru_cache(maxsize=3)
def _fixed(fmt: Format) -> tuple[tuple[str, np.ndarray], ...]:
    target = Target(fmt, OPERATIONS["quantize_nvfp4"].rounds_to.format({}), 16)
    pattern = np.arange(1 << 16, dtype=np.uint32) << np.uint32(fmt.bits - 16)
    return (
        ("special values in every lane", special_blocks(target)),
        ("whole blocks of zeros, subnormals, Inf, NaN", uniform_blocks(target)),
        ("all 16-bit patterns in sequence", pattern.reshape(-1, 16)),
    )


def quantize_nvfp4(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Edges under every tensor maximum, specials, every pattern, odd shapes, and random bits."""
    fmt, variant, square = target_of(operation, params).input, str(params["variant"]), params["tile"][0] == 16
    dear = variant.startswith("FOUR")
    for number, amax in enumerate(AMAX):
        blocks = edge_blocks(variant, amax, fmt)[number % 4 :: 32 if square else 16 if dear or number > 3 else 4]
        inputs = {"x": as_float(spaced(matrix(blocks, 256)) if square else matrix(blocks, 256), fmt)}
        yield f"bounds of codes and scales, tensor maximum {amax:#010x}", {**inputs, "tensor_amax": one(amax)}
    for label, blocks in _fixed(fmt):
        x = as_float(matrix(blocks[:: 8 if dear else 1], 512), fmt)
        yield label, {"x": x, "tensor_amax": one(0x43960000)}
    if fmt is FP32:
        blocks = np.zeros((16, 16), np.uint32)
        blocks[np.arange(12), np.arange(12)] = FAINT
        yield "scales at ties, faint maximum", {"x": as_float(matrix(blocks, 16), fmt), "tensor_amax": one(0x05270000)}
        for amax in LOWEST:
            x = as_float(spaced(falling_blocks(amax)), fmt)
            yield f"some factors 0 or Inf, tensor maximum {amax:#010x}", {"x": x, "tensor_amax": one(amax)}
        if dear:
            x = close_blocks(get_variant(variant).error)
            yield "errors that are equal, or nearly", {"x": x, "tensor_amax": one(0x44C00000)}
            x = balanced_block(get_variant(variant).error)
            inputs = {"x": spaced(x) if square else x, "tensor_amax": one(BALANCED_BY)}
            yield "errors that the order of the factors decides", inputs
            yield "errors beyond float32", {"x": endless_blocks(), "tensor_amax": one(0x60800000)}
    yield "specials, the maximum of the tensor itself", {"x": as_float(matrix(_fixed(fmt)[1][1], 64), fmt)}
    yield from _shapes(fmt)
    yield from _random(fmt, variant)


def _content(shape: tuple[int, int], fmt: Format) -> np.ndarray:
    """Numbers of many sizes in which neighbours and blocks differ."""
    place = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape)
    mixed = place * np.uint32(2654435761) ^ (place >> np.uint32(5)) * np.uint32(40503)
    exponent = np.uint32(121) + (mixed >> np.uint32(9)) % np.uint32(8) + (place >> np.uint32(4)) % np.uint32(5)
    return narrowed(mixed & np.uint32(0x807FFFFF) | exponent << np.uint32(23), fmt).astype(word(fmt))


def _shapes(fmt: Format) -> Iterator[Corner]:
    for number, shape in enumerate(SHAPES):
        given = {"tensor_amax": one(0x42280000)} if number % 2 else {}
        yield f"shape {shape[0]}x{shape[1]}", {"x": as_float(_content(shape, fmt), fmt), **given}


def _random(fmt: Format, variant: str) -> Iterator[Corner]:
    """Every random byte beside numbers on both sides of each step of the lattice."""
    blocks = edge_blocks(variant, AMAX[3], fmt)[:: 16 if fmt is FP16 else 8]
    x = as_float(matrix(blocks, 256), fmt)
    places = np.arange(x.size, dtype=np.uint32).reshape(x.shape)
    rbits = (places * np.uint32(97) >> np.uint32(1)).astype(np.uint8)
    yield "random bytes", {"x": x, "tensor_amax": one(AMAX[3]), "rbits": rbits}
    extremes = np.where(places & 1, np.uint8(255), np.uint8(0)).astype(np.uint8)
    yield "random bytes 0 and 255", {"x": x, "rbits": extremes}
    specials = np.tile(np.array(SPECIALS[fmt], np.uint32), 16)[: 16 * (len(SPECIALS[fmt]) // 1)].reshape(-1, 16)
    rbits = philox.random_bits(specials.shape, 8, seed=5)
    yield "random bytes beside specials", {"x": as_float(specials, fmt), "tensor_amax": one(AMAX[2]), "rbits": rbits}


def dequantize_nvfp4(operation: str, params: Mapping[str, Any]) -> Iterator[Corner]:
    """Every code under every scale under every tensor maximum of the list; odd shapes."""
    codes = np.arange(16, dtype=np.uint8)
    packed = np.broadcast_to(codes[0::2] | codes[1::2] << 4, (256, 8)).copy()
    for amax in AMAX + (TWICE_ROUNDED[params["order"]] if params["dtype"] == "bfloat16" else ()):
        if params["tile"][0] == 1:
            inputs = {"packed": packed, "scales": BYTES[:, None].copy()}
        else:
            inputs = {"packed": np.tile(packed[:3], (1, 256)), "scales": BYTES[None, :].copy()}
        yield f"every code under every scale, tensor maximum {amax:#010x}", {**inputs, "tensor_amax": one(amax)}
    for number, (rows, columns) in enumerate(SHAPES):
        place = np.arange(rows * columns // 2, dtype=np.uint32).reshape(rows, columns // 2)
        grid = -(-rows // params["tile"][0]), columns // 16
        scales = (np.arange(grid[0] * grid[1], dtype=np.uint32) * np.uint32(11) % np.uint32(127)).astype(np.uint8)
        yield f"shape {rows}x{columns}", {
            "packed": (place * np.uint32(2654435761) >> np.uint32(24)).astype(np.uint8),
            "scales": scales.reshape(grid), "tensor_amax": one(AMAX[number % 4])}  # fmt: skip
