"""What kernels of N21, N24 and N25 take beside the variants of `OPERATIONS`: keys and layouts of NVFP4, binary16, and
DGE of any sharpness.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from refnum import nvfp4, philox, tetrajet
from refnum.estimators import COMPATS
from refnum.formats import FP16, FP32

from ...cases.case import Case
from ...cases.corners.estimators import beside_middles, near
from ...cases.corners.tetrajet import TIES
from ...cases.draw.bits import as_float

PROFILE = "HOPPER"
EXPONENTS = 31
"""Exponent fields of finite binary16."""
MIDDLES = TIES[:6].astype(np.uint32).view(np.float32).astype(np.float64)
"""The midpoints of E2M1 below 4."""


def _blocks() -> np.ndarray:
    """Binary16 [n, 32] whose maximum has each exponent: many fractions below it, ties, one special in some.

    The first of each exponent has 4 times its scale above the midpoints of E2M1 and the numbers beside these.
    """
    rng = np.random.default_rng(24)
    rows = []
    for field in range(EXPONENTS):
        bits = rng.integers(0, field + 1 << 10, (12, 32))
        bits[:, 8:] &= ~np.array([0, 0x3F, 0xFF, 0x1FF])[np.arange(24) % 4]  # ties, and what a subnormal loses
        bits[1::3] = np.minimum(bits[1::3], (field << 10) + 0x200)
        bits[2::3] = np.maximum(bits[2::3] - (3 << 10), 0)
        tops = [0, 1, 0x1FF, 0x200, 0x201, 0x202, 0x203, 0x204, 0x2FF, 0x300, 0x3FE, 0x3FF]
        bits[:, 0] = (field << 10) + np.array(tops)
        middles = (MIDDLES * 2.0 ** (field - 17)).astype(np.float16).view(np.uint16).astype(np.int64)
        bits[0, 1:19] = (middles[:, None] + np.array([-1, 0, 1])).reshape(-1).clip(0)
        rows.append(np.stack([np.roll(row, number) for number, row in enumerate(bits)]))
    blocks = np.concatenate([*rows, np.zeros((12, 32), np.int64)])
    blocks |= rng.integers(0, 2, blocks.shape) << 15
    blocks[-4, 3], blocks[-3, 6], blocks[-2, 9] = 0x7C00, 0xFC00, 0x7E01
    return blocks.astype(np.uint16)


def _laid(blocks: np.ndarray, axis: int) -> np.ndarray:
    """Blocks along rows, or down columns."""
    found = blocks.reshape(-1, 64) if axis else blocks.reshape(-1, 64, 32).transpose(0, 2, 1).reshape(-1, 64)
    return np.ascontiguousarray(found).view(np.float16)


def tetrajet_halves() -> Iterator[Case]:
    """TetraJet of binary16: every rule, both axes, to nearest and by random bytes."""
    for axis, rule, ties in itertools.product((1, 0), tetrajet.RULES, tetrajet.TIES):
        x = _laid(_blocks(), axis)
        params = {"axis": axis, "rule": rule, "ties": ties, "ratio": "bfloat16"}
        yield Case("quantize_tetrajet", PROFILE, params, {"x": x}, label=f"binary16 {rule} {ties}, axis {axis}")
        given = {"x": x, "rbits": philox.random_bits(x.shape, 8, seed=axis)}
        yield Case("quantize_tetrajet", PROFILE, params, given, label=f"binary16 {rule} random, axis {axis}")


def q_ema_halves() -> Iterator[Case]:
    """Q-EMA of binary16, beside averages of binary16 and of float32."""
    for axis, rule, kind in itertools.product((1, 0), tetrajet.RULES, (np.float16, np.float32)):
        w = _laid(_blocks(), axis)
        near = np.roll(_laid(_blocks(), axis), 1, axis=1).astype(kind)
        yield Case("q_ema", PROFILE, {"axis": axis, "rule": rule}, {"w": w, "ema": near},
                   label=f"binary16 beside {np.dtype(kind).name} {rule}, axis {axis}")  # fmt: skip


def sharp() -> Iterator[Case]:
    """DGE of every sharpness, beside the bounds and beside the middles of its results."""
    for k, (target, compat) in itertools.product(range(1, 17), itertools.product(("bfloat16", "float32"), COMPATS)):
        for fmt in (FP32, FP16):
            x = np.concatenate([near(fmt).reshape(-1), *([beside_middles(k)[::8]] if k > 1 and fmt is FP32 else [])])
            params = {"target": target, "compat": compat, "k": k, "cap": 3}
            given = {"x": as_float(x, fmt)}
            yield Case("dge", PROFILE, params, given, label=f"k {k} of {fmt.name}, {compat}, {target}")


def nvfp4_beside() -> Iterator[Case]:
    """NVFP4 by keys and with swizzled scales, of either block; a short square block that both scales give exactly."""
    x = np.random.default_rng(21).standard_normal((37, 96)).astype(np.float32)
    for tile, variant in itertools.product(nvfp4.TILES, ("TE", "FOUR_OVER_SIX")):
        params = {"variant": variant, "tile": list(tile)}
        for more in ({"philox": (2**63 + 5, 2**32 - 1, 7, 64)}, {"philox": (3, 0, 9)}, {"layout_out": "swizzled"}):
            yield Case("quantize_nvfp4", PROFILE, params | more, {"x": x}, label=f"{variant} {tile} {more}")
    both = np.zeros((3, 32), np.float32)
    both[0, :2] = 12, 6  # under scales of 2 and of 3
    given = {"x": both, "tensor_amax": np.array([1536], np.float32)}
    params = {"variant": "FOUR_OVER_SIX", "tile": [16, 16]}
    yield Case("quantize_nvfp4", PROFILE, params, given, label="both scales are exact")


MAKERS = {"quantize_nvfp4": nvfp4_beside, "quantize_tetrajet": tetrajet_halves, "q_ema": q_ema_halves, "dge": sharp}
