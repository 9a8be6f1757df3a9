"""Questions about TetraJet-v2: maxima at the steps of both scales, ties, noise in every region, products (N24)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import BF16, FP16, FP32

from ...cases.corners.nvfp4 import narrowed
from ...cases.corners.tetrajet import content
from ...cases.corners.tetrajet_v2 import TOP, grouped, stepped, stored, tied
from ...cases.draw.bits import as_float
from ..draft import INF, LARGEST, NAN, SIGN, SNAN, Draft, float32, plain

FLAGS = ("V2_ONE_DIVISION", "V2_DIVIDED", "V2_SCALES_IN_TURN", "V2_NAN_IN_MAXIMUM", "V2_ZERO_SCALE",
         "V2_SCALE_NOT_ZERO", "NIBBLE_ORDER", "V2_ELEMENT_TIES_AWAY")  # fmt: skip
NOISY = (*FLAGS[:4], "V2_NOISE_IGNORED", "V2_NOISE_OF_ROWS", "V2_NOISE_UNBOUNDED", "V2_NOISE_WITHOUT_STEP",
         "V2_NOISE_STATE_OF_EACH", "V2_NOISE_LOW_BITS")  # fmt: skip
READ = ("V2_PRODUCT_IN_TURN", "NIBBLE_ORDER", "V2_SCALE_OF_GROUP")
SEEDS = (0, 1, 20251027, 0xFFFFFFFF)
FORMATS = (FP32, BF16, FP16)
SPECIAL = (0, SIGN, 1, SIGN | 1, 0x00800000, 0x3F800000, 0xBF000000, LARGEST, SIGN | LARGEST, INF, SIGN | INF, NAN,
           SIGN | NAN, SNAN)  # fmt: skip


def _draft(x: np.ndarray, seed: int | None, comment: str) -> Draft:
    return Draft({"x": x}, {"seed": seed}, FLAGS if seed is None else NOISY, comment)


def _group(*blocks: list[int]) -> list[int]:
    """One group of 128 float32 patterns from its blocks of 16, filled up with zeros."""
    lanes = [word for block in blocks for word in [*block, *[0] * (16 - len(block))]]
    return lanes + [0] * (128 - len(lanes))


def _steps() -> Iterator[Draft]:
    """Ties under some inner scales, maxima beside steps, maxima of every size, special numbers."""
    for fmt in FORMATS:
        rows = grouped(tied(fmt)[3:250:9]).reshape(-1, 128)[:4]
        yield _draft(as_float(narrowed(rows, fmt), fmt), None, "ties under inner scales")
        near = grouped(stepped(fmt)[7::61]).reshape(-1, 128)[:2]
        yield _draft(as_float(narrowed(near, fmt), fmt), None, "maxima beside steps of an inner scale")
        yield _draft(as_float(content((3, 128), fmt, 8), fmt), None, "numbers of many sizes")
        words = narrowed(np.array([SPECIAL], np.uint32), fmt)
        amid = as_float(np.concatenate([words, content((1, 114), fmt, 2).astype(words.dtype)], axis=1), fmt)
        yield _draft(amid, None, "special numbers amid others")
    tops = [0x00000001, 0x00000A80, 0x00200000, 0x01000000, 0x0B280000, 0x3F800000, TOP - 1, TOP, TOP + 1, 0x45280003,
            0x4A000000, 0x7E967699, LARGEST]  # fmt: skip
    mantissas = np.array([1.0, 0.83, -0.61, 0.4, -0.27, 0.13, 0.07, -0.031], np.float32)
    for top in tops:
        lanes = np.float32(np.uint32(top).view(np.float32)) * mantissas
        x = float32([_group(*(lanes[i : i + 2].view(np.uint32).tolist() for i in (0, 2, 4, 6)))])
        yield _draft(x, None, f"a maximum of 0x{top:08X}")
    for label, ends in (("zeros", [0, SIGN]), ("NaN", [NAN, SNAN]), ("Inf", [INF, SIGN | INF, 0x3F800000])):
        yield _draft(float32([_group(ends, [0x3F800000, 0x3F000000], ends), _group(ends)]), None, label)
    low = [0x45280000, *[0x3A800000 + step for step in (-1, 0, 1)]]
    below = [[word] for word in (0x3BBFFFFF, 0x3BC00000, 0x3BC00001, 0x3B000000, 0x3C400000)]
    yield _draft(float32([_group(low, *below)]), None, "inner scales of 0, of the least, and of ties between them")
    yield _draft(np.zeros((0, 128), np.float32), None, "no rows")
    thirds = (np.arange(1, 129, dtype=np.float32) / np.float32(7))[None]
    yield _draft(thirds, None, "sevenths, which a reciprocal misses")
    yield _draft(thirds.astype(ml_dtypes.bfloat16), None, "sevenths in bfloat16")


def _noise() -> Iterator[Draft]:
    """Every region and its bounds under several seeds, two rows, special numbers."""
    line = np.array([2688, *(np.arange(127) / 20)], np.float32)
    pinned = np.where(np.arange(128) % 16 == 0, np.float32(6), line)
    pinned[0] = 2688
    for seed, fmt in itertools.product(SEEDS, FORMATS):
        x = as_float(narrowed(content((2, 256), fmt, 9).astype(np.uint32) << (0 if fmt is FP32 else 16), fmt), fmt)
        yield _draft(x, seed, "numbers of many sizes")
    for seed in SEEDS:
        bounds = np.resize(
            np.array([2, 4, 6, -2, -4, -6, 0, -0.0, 0.01, -0.01, 1.99, 2.01, 3.99, 4.01, 6], np.float32), 127
        )
        x = np.stack([pinned, np.concatenate([np.array([6], np.float32), bounds])]).astype(np.float32)
        x[1, ::16] = 6
        yield _draft(x, seed, "every region and its bounds")
    x = float32([_group([NAN, INF, 0x3F800000], [0x3F800000, 0x3F000000], [0, SIGN]), _group([0x3F800000] * 16)])
    yield _draft(x, 20251027, "NaN, Inf and zeros")


def _read() -> Iterator[Draft]:
    """Every code under inner scales of every size, outer scales that round, overflow and are special."""
    outers = [0x3F800000, 0x3F8CCCCD, 0x00400001, 1, 0x7E000000, 0x7F000001, 0, SIGN, INF, NAN, 0xC0490FDB, 0x33D6BF95]
    for dtype in ("float32", "bfloat16"):
        for first in range(0, len(outers), 3):
            chosen = outers[first : first + 3]
            codes: np.ndarray = np.tile(np.arange(16, dtype=np.uint8), (len(chosen), 8))
            scales = np.array([[0x38, 0x3B, 0x01, 0x7E, 0x00, 0x7F, 0xB5, 0x08 + row] for row in range(3)], np.uint8)
            inputs = {
                "packed": pack_nibbles(codes),
                "scales": scales[: len(chosen)],
                "outer": float32([[o] for o in chosen]),
            }
            yield Draft(inputs, {"dtype": dtype}, READ, f"every code, outer scales from 0x{chosen[0]:08X} on")
        yield Draft(stored((3, 256), 5), {"dtype": dtype}, READ, "scales of many sizes")
        yield Draft(stored((0, 128)), {"dtype": dtype}, READ, "no rows")
    yield Draft(stored((1, 128), 77), {"dtype": "float32"}, READ, "one group")


quantize_tetrajet_v2, dequantize_tetrajet_v2 = plain(_steps, _noise), plain(_read)
