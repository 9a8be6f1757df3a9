"""Questions about oscillating weights: quotients beside whole numbers, counts beside periods, edges of bins, norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from refnum.arrays import pack_nibbles
from refnum.formats import BF16, FP32

from ...cases.corners import oscillation as corners
from ...cases.corners.nvfp4 import narrowed
from ...cases.corners.tetrajet import content
from ...cases.corners.tetrajet_v2 import stored
from ...cases.draw.bits import as_float
from ...cases.operation import OPERATIONS
from ..draft import INF, LARGEST, NAN, SIGN, SNAN, Draft, plain

PERIODS = ("RAMPING_ALPHA_BELOW", "RAMPING_EPSILON_LEFT_OUT", "RAMPING_ONE_LEFT_OUT", "RAMPING_PERIOD_WRAPS",
           "RAMPING_ROUNDED_QUOTIENT", "RAMPING_UNBOUNDED")  # fmt: skip
STEPS = ("RAMPING_FINITE_BY_ELEMENT", "RAMPING_MEAN_OF_PERIOD", "RAMPING_ONLY_AT_PERIOD", "RAMPING_TOTAL_STAYS")
RESETS = ("OSCI_EDGE_COUNTS", "OSCI_NAN_RESETS", "OSCI_ONE_WIDTH", "OSCI_RECIPROCAL")
MOVED = ("OSCI_ABOVE_ONLY", "OSCI_BY_PRODUCT", "OSCI_STILL_WEIGHTS")
CHOSEN = ("CHANNELS_BY_BITS", "CHANNELS_BY_MAGNITUDE", "CHANNELS_LAST_OF_TIES", "CHANNELS_NAN_BELOW",
          "CHANNELS_NOT_LOWERED", "CHANNELS_NOT_ROUNDED", "CHANNELS_OF_FIRST_ROW", "CHANNELS_PRODUCT_RAISED",
          "CHANNELS_ROUNDED_DOWN", "CHANNELS_SHARE_IN_FLOAT32")  # fmt: skip
ORDERED = (0xFF800000, 0xFF7FFFFF, 0xBF800000, SIGN | 1, SIGN, 0, 1, 0x3F800000, LARGEST, INF, 0xFFC00001, NAN, SNAN)
"""float32 bits in the order of norms: both zeros are equal, and so are the three NaN."""
SHARED = ((127, 1, 1), (128, 1, (1 << 31) - 1), (128, 1, 128), (130, 129, 130), (257, 1, 2), (300, 0, 1), (300, 1, 1),
          (300, 128, 300), (300, 128001, 300000), (300, 128999, 300000), (300, 129, 300), (385, 128500, 385000),
          (385, 257, 385), (540, 385, 540), (531, 385, 531), (301, 128999999, 301000000), (640, 128, 640),
          (640, 129, 640))  # fmt: skip
"""Channels, and the numerator and denominator of a share of them at and beside a multiple of 128, and one more."""
KINDS = np.array([[0, SIGN, 1, SIGN | 1, 0x00800000, 0x322BCC77, 0x3F800000, 0xBF800000, 0x41800000, 0x7F7FFFFF,
                   0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001]], np.uint32)  # fmt: skip


def _defaults(operation: str) -> dict[str, Any]:
    return {name: value for name, value in OPERATIONS[operation].defaults().items() if name != "input"}


def _kinds(first: str, second: str) -> dict[str, np.ndarray]:
    """Two arrays that hold all pairs of numbers of every kind, a pair of rows a number."""
    found = {first: np.repeat(KINDS, KINDS.size, axis=0).T, second: np.repeat(KINDS, KINDS.size, axis=0)}
    return {name: np.ascontiguousarray(words).view(np.float32) for name, words in found.items()}


def _q_ramping() -> Iterator[Draft]:
    usual = _defaults("q_ramping")
    yield Draft(_kinds("dist_w", "dist_q"), usual, PERIODS, "distances of every kind")
    for more in ({}, *corners.MOVES):
        above, below = more.get("alpha", (16, 1))
        near = corners.whole_quotients(above / below)
        yield Draft(near, {**usual, **more}, PERIODS, "quotients at and beside whole numbers")
        yield Draft(corners.distances((3, 24), 1), {**usual, **more}, PERIODS, "distances of many sizes")
    yield Draft(corners.distances((0, 3)), usual, PERIODS, "no rows")


def _ramping_step() -> Iterator[Draft]:
    whole = corners.counted((KINDS.size, KINDS.size))
    finite = _kinds("total", "grad")
    finite["grad"] = np.where(np.isfinite(finite["grad"]), finite["grad"], np.float32(-2.5))
    yield Draft({**whole, **finite}, {}, STEPS, "numbers of every kind, finite gradients")
    due = {**whole, **finite, "period": np.ones_like(whole["period"])}
    yield Draft(due, {}, STEPS, "numbers of every kind, all of them due")
    counts = np.array([[0, 1, 2, 5, 6, 7, 8, 15, (1 << 24) - 2, 1 << 24, (1 << 24) + 2, (1 << 31) - 3, (1 << 31) - 2]])
    step = corners.counted((3, counts.size), 2)
    step["count"] = np.repeat(counts, 3, axis=0).astype(np.int32)
    step["period"][2] = np.minimum(counts + 1, (1 << 31) - 2)
    yield Draft(step, {}, STEPS, "counts at multiples of periods, small and large")
    for pattern in (0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001):
        step = corners.counted((2, 16), 3)
        step["grad"].view(np.uint32)[1, 11] = pattern
        yield Draft(step, {}, STEPS, f"a gradient of 0x{pattern:08X}")
    yield Draft(corners.counted((5, 33), 7), {}, STEPS, "numbers of many sizes")
    yield Draft(corners.counted((0, 3)), {}, STEPS, "no rows")
    step = corners.counted((1, 4), 9)
    step["count"] = np.array([[0, 1, (1 << 31) - 3, (1 << 31) - 2]], np.int32)
    step["period"] = np.full((1, 4), (1 << 31) - 1, np.int32)
    yield Draft(step, {}, STEPS, "the largest period")


def _osci_reset() -> Iterator[Draft]:
    for above, below in ((495, 1000), (1, 4), (5, 1)):
        params = {"threshold": [above, below]}
        for scale, outer in ((0x38, 1), (0x3B, 0.7), (0xB9, 3), (0x01, 2.0**-140)):
            made = corners.coded_edges(above / below, scale, outer)
            yield Draft(made, params, RESETS, f"edges of every bin under the scales 0x{scale:02X} and {outer}")
        for scale, outer in ((0, 1), (0x7F, 1), (0x38, np.inf), (0x38, np.nan)):
            made = {**corners.coded_edges(above / below, 0x38, 1), "scales": np.full((3, 8), scale, np.uint8),
                    "outer": np.full((3, 1), outer, np.float32)}  # fmt: skip
            yield Draft(made, params, RESETS, f"the scales 0x{scale:02X} and {outer}")
    usual = _defaults("osci_reset")
    for fmt in (FP32, BF16):
        w = as_float(narrowed(content((3, 256), FP32, 4).astype(np.uint32), fmt), fmt)
        yield Draft(corners.quantised(w), usual, RESETS, f"quantised weights in {w.dtype.name}")
        yield Draft({"w": w, **stored((3, 256), 8)}, usual, RESETS, f"codes of others in {w.dtype.name}")
    codes = pack_nibbles(np.resize(np.arange(16, dtype=np.uint8), (KINDS.size, 128)))
    w = np.repeat(KINDS.T, 128, axis=1).view(np.float32)
    ones: dict[str, np.ndarray] = {
        "scales": np.full((len(w), 8), 0x38, np.uint8),
        "outer": np.ones((len(w), 1), np.float32),
    }
    yield Draft({"w": w, "packed": codes, **ones}, usual, RESETS, "weights of every kind with every code")
    yield Draft(corners.quantised(np.zeros((0, 128), np.float32)), usual, RESETS, "no rows")


def _osci_reset_by_distance() -> Iterator[Draft]:
    usual = _defaults("osci_reset_by_distance")
    yield Draft(_kinds("dist_w", "dist_q"), usual, MOVED, "distances of every kind")
    for above, below in ((16, 1), (3, 2), (1, 3)):
        near = corners.threshold_quotients(above / below)
        yield Draft(near, {"threshold": [above, below]}, MOVED, "quotients at and beside the threshold")
        yield Draft(corners.distances((3, 24), 1), {"threshold": [above, below]}, MOVED, "distances of many sizes")
    yield Draft(corners.distances((0, 3)), usual, MOVED, "no rows")


def _neighbours() -> np.ndarray:
    """Rows of 129 of which all but one are kept, NaN but for two: neighbours in order, either first, and equal ones."""
    rows = [(a, b) for i, a in enumerate(ORDERED) for b in ORDERED[max(0, i - 1) : i + 2]]
    found = np.full((len(rows), 129), NAN, np.uint32)
    found[:, 40], found[:, 90] = np.array(rows, np.uint32).T
    return found.view(np.float32)


def _out_control() -> Iterator[Draft]:
    usual = _defaults("out_control")
    yield Draft(
        {"norms": _neighbours()}, {"share": [1, 1]}, CHOSEN, "one is left out: neighbours in the order of norms"
    )
    for kept in (0xFFF00000, 0x80000000, 0xFFFFFFFF):
        norms = corners.norms((3, 300), 1, kept)
        yield Draft(norms, {"share": [1, 3]}, CHOSEN, f"norms of which the bits {kept:08X} are kept")
    for k, above, below in SHARED:
        yield Draft(corners.norms((1, k), 2), {"share": [above, below]}, CHOSEN, f"a share of {k} channels")
    for k in (128, 160, 640, 1280, 1290):
        yield Draft(corners.norms((2, k), k), usual, CHOSEN, f"a tenth of {k} channels")
    for shape in ((0, 130), (3, 0), (3, 127)):
        yield Draft(corners.norms(shape, 4), usual, CHOSEN, "no rows" if not shape[0] else "no channel is kept")


q_ramping, ramping_step = plain(_q_ramping), plain(_ramping_step)
osci_reset, osci_reset_by_distance = plain(_osci_reset), plain(_osci_reset_by_distance)
out_control = plain(_out_control)
