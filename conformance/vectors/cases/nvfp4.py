"""Questions about NVFP4: every variant at its scales' ties, its elements' bounds and its ends (N21)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import refnum
from refnum.formats import FP32
from refnum.nvfp4_scales import VARIANTS, get_variant

from ...cases.corners.nvfp4 import AMAX, edge_blocks, one
from ..draft import DTYPES, INF, NAN, SIGN, Draft, bfloat16, bits, each, float16, float32, octets, plain

FLAGS = ("NVFP4_ABOVE_SIX_WRAPS", "NVFP4_MAXIMUM_OF_32", "NVFP4_NAN_IN_MAXIMUM", "NVFP4_NO_TENSOR_SCALE",
         "NVFP4_OTHER_ORDER", "NVFP4_SCALE_NOT_ROUNDED", "NVFP4_SCALE_ROUNDED_UP",
         "STOCHASTIC_FALSE_CARRY")  # fmt: skip
KNOWN = np.array([[0, -0.0, 0.1, -0.1, 0.25, -0.33, 0.5, -0.75, 1, -1.25, 1.5, -2, 2.5, -3, 3.25, -3.75]], np.float32)
SEED = 2654435761


def _draft(comment: str, x: np.ndarray, variant: str = "TE", amax: int | None = None, clause: str = "", tall: int = 1,
           rbits: np.ndarray | None = None) -> Draft:  # fmt: skip
    params: dict[str, Any] = {"variant": variant, "tile": [tall, 16]}
    given = {} if amax is None else {"tensor_amax": one(amax)}
    random = {} if rbits is None else {"rbits": rbits}
    return Draft({"x": x, **given, **random}, params, FLAGS, comment, clause or "N21")


def _noise(shape: tuple[int, int], seed: int, spread: int = 6) -> np.ndarray:
    """float32 bits of many sizes and both signs, by integer arithmetic."""
    place = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape) + np.uint32(seed * 7919)
    mixed = (place * np.uint32(SEED)) ^ ((place * np.uint32(40503)) >> np.uint32(7))
    exponent = np.uint32(127 - spread // 2) + (mixed >> np.uint32(11)) % np.uint32(spread)
    return mixed & np.uint32(0x807FFFFF) | exponent << np.uint32(23)


def _variant(variant: str) -> Iterator[Draft]:
    """The known answers, scales and codes beside their bounds under every tensor maximum, tiles, the ends."""
    yield _draft("the known block, its own maximum", KNOWN, variant)
    yield _draft("the known block under a tensor maximum of 10", KNOWN, variant, bits(10))
    for number, amax in enumerate(AMAX):
        count = 8 if number < 4 else 2
        blocks = edge_blocks(variant, amax, FP32)[7 * number + 2 :: 5120 // count][:count]
        x = np.ascontiguousarray(blocks.reshape(-1, 32)).view(np.float32)
        yield _draft(f"bounds of scales and codes, tensor maximum {amax:#010x}", x, variant, amax)
    x = np.zeros((2, 16), np.uint32)
    x[:, :2] = [[0x3BA7FFFD, 0xBBA7FFFD], [0x3BCFFFFF, 0xBB7FFFFF]]
    yield _draft("scales rounded down so far that 7 and more of them occur", x.view(np.float32), variant, bits(1000))
    yield _draft("32 blocks of numbers of six binades", _noise((16, 32), 1).view(np.float32), variant)
    yield _draft("squares, the last of two rows", _noise((18, 32), 2).view(np.float32), variant, tall=16)
    for tall in (1, 16):
        x = np.zeros((3, 32), np.float32)
        yield _draft("zeros", x, variant, tall=tall)
        x = float32([[NAN, SIGN | NAN, bits(3), SIGN | bits(1), *[0] * 12, INF, SIGN | INF, bits(6), *[SIGN] * 13],
                     [bits(0.5)] * 16 + [NAN] * 16])  # fmt: skip
        yield _draft("NaN and Inf", x, variant, tall=tall)
        yield _draft("NaN and Inf under a finite maximum", x, variant, bits(7), "N21", tall)
    yield _draft("no rows", np.zeros((0, 32), np.float32), variant, clause="N0")
    words = _noise((4, 32), 5, 4)
    yield _draft("bfloat16", bfloat16((words >> np.uint32(16)).tolist()), variant)
    halves = (words >> np.uint32(16) & np.uint32(0x83FF)) | (
        (words >> np.uint32(9) & np.uint32(7)) + np.uint32(11) << 10
    )
    yield _draft("float16", float16(halves.tolist()), variant)


def _random() -> Iterator[Draft]:
    """Random bytes at every step, the 128 pairs of a false carry among them (N21.6)."""
    for variant in VARIANTS:
        x = _noise((6, 32), 9, 5)
        rbits = (np.arange(192, dtype=np.uint32).reshape(6, 32) * np.uint32(SEED) >> np.uint32(24)).astype(np.uint8)
        yield _draft("random bytes", x.view(np.float32), variant, bits(12), "N21", rbits=rbits)
        yield _draft("random bytes, squares", x.view(np.float32), variant, None, "N21", 16, rbits)
    k = np.arange(128, dtype=np.int64)
    below = np.array([bits(int(n) / 512) for n in k + 1], np.uint32) - np.uint32(1)
    rows = np.full((9, 16), bits(6), np.uint32)
    flat = np.zeros(135, np.uint32)
    flat[:128] = below
    rows[:, :15] = flat.reshape(9, 15)
    rbits = np.zeros((9, 16), np.uint8)
    rbits[:, :15] = np.concatenate([255 - k, np.zeros(7, np.int64)]).reshape(9, 15)
    yield _draft("numbers just below k/512 beside 255 - k", rows.view(np.float32), "TE", bits(2688), "N21", rbits=rbits)


def _decoded(dtype: str) -> Iterator[Draft]:
    """Every code under every scale, tensor maxima of every kind, both tiles, all orders."""
    row = [low | high << 4 for low, high in zip(range(0, 16, 2), range(1, 16, 2), strict=True)]
    for order in ("te", "product", "four_over_six"):
        for number, amax in enumerate(AMAX):
            codes = np.unique((np.arange(12) * 23 + 5 * number) % 256).astype(np.uint8)
            inputs = {"packed": octets([row] * len(codes)), "scales": codes[:, None], "tensor_amax": one(amax)}
            params = {"order": order, "tile": [1, 16], "dtype": dtype}
            yield Draft(inputs, params, FLAGS, f"every code under 12 scales, tensor maximum {amax:#010x}")
        square = {"packed": np.resize(octets([row + row]), (17, 16)), "scales": octets([[0x38, 0x7E], [0x07, 0xB9]]),
                  "tensor_amax": one(AMAX[2])}  # fmt: skip
        yield Draft(square, {"order": order, "tile": [16, 16], "dtype": dtype}, FLAGS, "squares, the last of one row")


TELLING, BALANCED = 0x41020000, 0x41110000
"""Tensor maxima under which many blocks tell TE from TE_2_8, and under which both scales often have the same error."""
MIXED = (0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15)


def _scales_of(x: np.ndarray, tall: int = 1) -> np.ndarray:
    found: np.ndarray = refnum.quantize_nvfp4(x, "FOUR_OVER_SIX", one(BALANCED), (tall, 16))[1]
    return found


def _telling() -> Iterator[Draft]:
    """Blocks whose scale tells one order of operations from another, found among many by the model."""
    maxima = np.arange(0x3800, 0x4100, dtype=np.uint32) << np.uint32(16)
    sides = [
        get_variant(name).steps(maxima[:, None], np.array([TELLING], np.uint32))[0].codes for name in ("TE", "TE_2_8")
    ]
    apart = np.flatnonzero(sides[0] != sides[1])[:4]
    x = np.repeat(maxima[apart, None], 16, axis=1).view(np.float32)
    for variant in ("TE", "TE_2_8"):
        yield _draft("blocks whose scale depends on where a sixth is taken", x, variant, TELLING, "N21")
    x = (_noise((1 << 14, 16), 5, 2) & np.uint32(0xFFFFF000)).view(np.float32)
    found = x[(_scales_of(x) != _scales_of(np.ascontiguousarray(x[:, ::-1])))[:, 0]]
    yield _draft("blocks whose scale depends on the order of the sum", found, "FOUR_OVER_SIX", BALANCED, "N21")
    lane, row, way = np.arange(16), np.arange(16)[:, None], np.arange(120)[:, None, None]
    tiles = found[:, ((way // 15 * 2 + 1) * lane + (way % 15 + 1) * row) % 16].reshape(-1, 16, 16)
    turned = np.ascontiguousarray(tiles[:, MIXED]).reshape(-1, 16)
    sides = [_scales_of(tiles.reshape(-1, 16), 16), _scales_of(turned, 16)]
    rows = tiles[np.flatnonzero(sides[0] != sides[1])[:4]].reshape(-1, 16)
    yield _draft("squares whose scale depends on the tree", rows, "FOUR_OVER_SIX", BALANCED, "N21", 16)


quantize_nvfp4 = plain(_telling, lambda: (draft for variant in VARIANTS for draft in _variant(variant)), _random)
dequantize_nvfp4 = each(DTYPES, _decoded)
