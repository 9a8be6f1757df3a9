"""Questions about DGE and OCC: ends and middles of intervals, every k's kind, thresholds of every kind (N25)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...cases.corners.estimators import BOUNDS, TINY
from ..draft import INF, LARGEST, NAN, SIGN, SNAN, Draft, bfloat16, both_signs, float16, float32, plain

SLOPE = ("DGE_EVEN_INTERVALS", "DGE_INPUT_NARROWED", "DGE_NAN", "DGE_OTHER_EDGES", "DGE_POWER_ROUNDED",
         "DGE_WITHOUT_CAP", "FTZ_SILENT")  # fmt: skip
CLAMP = ("OCC_BY_MAGNITUDE", "OCC_INDEX_IN_FLOAT64", "OCC_OTHER_AXIS", "OCC_RESIDUAL_LEFT_OUT", "OCC_UPPER_ALONE")
HALVES = np.linspace(-6, 6, 20).astype(np.float32).view(np.uint32)
"""The numbers of the released code's own test, before they are rounded to bfloat16."""
NEAR_CAP = 0x3E845609
"""The least float32 above 1/4 whose slope for k = 5 is below 3."""


def _slope(x: np.ndarray, compat: str, target: str, comment: str, k: int = 5, cap: float = 3) -> Draft:
    params: dict[str, Any] = {"target": target, "compat": compat, "k": k, "cap": cap}
    return Draft({"x": x}, params, SLOPE, comment)


def _slopes() -> Iterator[Draft]:
    beside = both_signs(b + step for b in BOUNDS for step in (-2, -1, 0, 1, 2, 5000))
    cap = both_signs(base + step for base in (NEAR_CAP, 0x3E7753F0) for step in range(-3, 4))
    small = both_signs(b + step for b in TINY for step in (-1, 0, 1))
    ends = [
        0,
        SIGN,
        1,
        SIGN | 1,
        *both_signs([0x40C00001, 0x41200000, 0x4C000001, 0x7E800000, 0x7F000001, LARGEST, INF]),
    ]
    for compat in ("paper", "ms-amp"):
        for target in ("bfloat16", "float32"):
            yield _slope(float32([beside]), compat, target, "bounds and middles of intervals, and numbers beside them")
            yield _slope(float32([cap]), compat, target, "beside the place where the cap begins")
            yield _slope(float32([small]), compat, target, "numbers that a sum with 1/2 or 1 loses")
            yield _slope(float32([ends]), compat, target, "zeros, subnormals, beyond 6, infinities")
            yield _slope(float32([[NAN, SIGN | NAN, SNAN, SIGN | SNAN]]), compat, target, "NaN")
            known = np.array([HALVES + 0x7FFF + (HALVES >> 16 & 1) >> 16], np.uint16)
            yield _slope(bfloat16(known.tolist()), compat, target, "the released code's test: 20 numbers from -6 to 6")
            spread = [[0x8000 * (i & 1) + 0x3B00 + 31 * i for i in range(46)]]
            yield _slope(bfloat16(spread), compat, target, "bfloat16 of eleven binades")
            yield _slope(bfloat16([[0xC13D, 0xC35F, 0xCD5A, 0xFEFF, 0xFF7F]]), compat, target,
                         "below -6, where the released code's three roundings give other bits")  # fmt: skip
            for k, most in ((1, 3), (2, 3), (3, 2), (4, 1), (7, 65536), (10, 3), (16, 1024)):
                yield _slope(float32([beside[::5] + small[::3]]), compat, target, f"k = {k}, cap = {most}", k, most)
        yield _slope(float16([[0, 0x3400, 0x3401, 0x33FF, 0x4500, 0x4600, 0x4601, 0xC601, 0x7C00, 0xFC00, 1]]), compat,
                     "bfloat16", "float16")  # fmt: skip
    yield _slope(np.zeros((0, 4), np.float32), "paper", "bfloat16", "no numbers")


def _noise(shape: tuple[int, int], seed: int) -> np.ndarray:
    """float32 bits of 12 binades and both signs, by integer arithmetic."""
    place = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape) + np.uint32(seed * 7919)
    mixed = (place * np.uint32(2654435761)) ^ ((place * np.uint32(40503)) >> np.uint32(7))
    return mixed & np.uint32(0x807FFFFF) | (np.uint32(121) + (mixed >> np.uint32(11)) % np.uint32(12)) << np.uint32(23)


def _laid(bits: np.ndarray, dtype: str) -> np.ndarray:
    wide = np.ascontiguousarray(bits).astype(np.uint32)
    return wide.view(np.float32) if dtype == "float32" else bfloat16((wide >> np.uint32(16)).tolist())


def _clamp(bits: np.ndarray, axis: str, dtype: str, comment: str, alpha: tuple[int, int] = (99, 100)) -> Draft:
    return Draft({"x": _laid(bits, dtype)}, {"axis": axis, "alpha": list(alpha)}, CLAMP, comment)


def _clamps() -> Iterator[Draft]:
    for axis in ("tensor", "token", "channel"):
        for dtype in ("bfloat16", "float32"):
            yield _clamp(_noise((12, 14), 1), axis, dtype, "168 numbers of twelve binades")
            yield _clamp(_noise((10, 10), 2), axis, dtype, "vectors of 10, quantiles 0.1 and 0.9", (9, 10))
            yield _clamp(_noise((10, 10), 3), axis, dtype, "vectors of 10 or 100, quantiles 0.43 and 0.57", (57, 100))
            yield _clamp(_noise((5, 6), 4), axis, dtype, "both thresholds are the median", (1, 2))
            yield _clamp(_noise((4, 7), 5), axis, dtype, "nothing is cut off", (1, 1))
            zeros = np.zeros((6, 8), np.uint32)
            zeros[:, 1::2] = SIGN
            yield _clamp(zeros, axis, dtype, "zeros of both signs", (2, 3))
            special = _noise((8, 8), 6)
            special[0], special[3, 2], special[:5, 7], special[5:, 7] = INF, NAN, SIGN | INF, NAN
            special[2, ::3] = SIGN | NAN
            yield _clamp(special, axis, dtype, "NaN and infinities among the numbers and the thresholds", (3, 4))
            far = _noise((4, 8), 7)
            far[:, 0], far[:, 1] = 0x7F000000, 0x00400000
            yield _clamp(far, axis, dtype, "residuals that are rounded", (7, 8))
    yield _clamp(np.zeros((3, 0), np.uint32), "tensor", "float32", "no numbers")


dge, occ = plain(_slopes), plain(_clamps)
